package cluster

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/deploy"
)

// TestRetryIsCancelled: the error of a retry that is cancelled while a cluster does not
// answer must contain both the cause of the cancellation and what it waited for.
func TestRetryIsCancelled(t *testing.T) {
	c := offline(t, nil)
	c.retryFor = time.Minute
	ctx, stop := context.WithCancelCause(t.Context())
	outage := &url.Error{Op: "Get", URL: "https://api", Err: errors.New("connection refused")}
	err := c.Retry(ctx, func(error) { stop(deploy.StopTimedOut) }, func(context.Context) error { return outage })
	if !errors.Is(err, deploy.StopTimedOut) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("got %v, want both causes", err)
	}
}

// TestRetryAfter: a server that sends Retry-After is not asked before that time.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cluster{retryFor: time.Minute}
		begin, answers := time.Now(), []error{
			apierrors.NewTooManyRequests("busy", 7), apierrors.NewServerTimeout(schema.GroupResource{Resource: "pods"}, "get", 5), nil,
		}
		var asked []time.Duration
		err := c.Retry(t.Context(), nil, func(context.Context) error {
			asked = append(asked, time.Since(begin))
			return answers[len(asked)-1]
		})
		if want := []time.Duration{0, 7 * time.Second, 12 * time.Second}; err != nil || !slices.Equal(asked, want) {
			t.Errorf("asked after %v, then %v; want after %v", asked, err, want)
		}
	})
}

// TestWriteIsAnswered: a write that is in progress at a cancellation may finish within a
// limit, so that the caller learns its result. No other write may begin.
func TestWriteIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Cluster{retryFor: time.Minute}
		for name, answered := range map[string]bool{"in time": true, "never": false} {
			ctx, stop := context.WithCancelCause(t.Context())
			begin := time.Now()
			err := c.RetryWrite(ctx, nil, func(ctx context.Context) error {
				stop(deploy.StopTimedOut)
				if answered {
					time.Sleep(answerFor - time.Millisecond)
					return ctx.Err()
				}
				<-ctx.Done()
				return ctx.Err()
			})
			switch took := time.Since(begin); {
			case answered && err != nil:
				t.Errorf("%s: %v", name, err)
			case !answered && (!errors.Is(err, deploy.StopTimedOut) || took != answerFor):
				t.Errorf("%s: %v after %s, want %v after %s", name, err, took, deploy.StopTimedOut, answerFor)
			}
			err = c.RetryWrite(ctx, nil, func(context.Context) error {
				t.Errorf("%s: another request was sent", name)
				return nil
			})
			if !errors.Is(err, deploy.StopTimedOut) {
				t.Errorf("%s: another one: %v", name, err)
			}
		}
	})
}
