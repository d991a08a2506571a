package control

import (
	"context"
	"errors"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// anything matches all states.
type anything struct{}

func (anything) matches(*string) bool        { return true }
func (anything) mayMatch(deploy.Change) bool { return true }

// TestChangesThatCannotBeRead: they end the subscriptions, unless the agent stops meanwhile: then these
// end with the reason of that.
func TestChangesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, stopping := range map[string]bool{"the store fails": false, "the agent stops": true} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			failure := errors.New("the store does not answer")
			h := newHub(watched[string, string]{
				topic: deploy.TopicDeployment,
				read: func(ctx context.Context, _ []string) ([]string, error) {
					if stopping {
						stop()
						return nil, ctx.Err()
					}
					return nil, failure
				},
			})
			sub := h.subscribe(anything{}, false)
			defer sub.close()
			h.publish(ctx, []deploy.Change{{Topic: deploy.TopicDeployment, ID: "d"}})
			want := failure
			if stopping {
				want = nil
			}
			if _, err := sub.take(); !errors.Is(err, want) {
				t.Errorf("the subscription ended with %v, want %v", err, want)
			}
		})
	}
}
