package ownership_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// TestHold: work runs while there is the right to it, ends with the right, and begins again with
// the next one. A refused write ends it until then.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		rights := ownershiptest.New()
		var got []string
		fenced := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			err := ownership.Hold(ctx, rights, "web", func(ctx context.Context, moving <-chan struct{}) error {
				got = append(got, fmt.Sprint("begins with ", deploy.TermsOf(ctx)[0].Number))
				select {
				case <-moving:
					time.Sleep(time.Second) // the step in progress
					got = append(got, fmt.Sprint("moves, its context has ended: ", ctx.Err() != nil))
				case <-ctx.Done():
					got = append(got, fmt.Sprint("ends: ", context.Cause(ctx)))
				case <-fenced:
					return deploy.Errorf(deploy.Fenced, "the term is over")
				}
				return nil
			})
			got = append(got, fmt.Sprint("held: ", err))
		})
		number := int64(0)
		begin := func() {
			number++
			rights.GrantTerm("web", deploy.Term{Number: number})
			synctest.Wait()
		}
		begin()
		rights.HandOver("web")
		begin()
		rights.Lose("web")
		begin()
		fenced <- struct{}{}
		synctest.Wait()
		begin()
		stop()
		running.Wait()
		want := []string{
			"begins with 1", "moves, its context has ended: false",
			"begins with 2", "ends: " + ownership.ErrLost.Error(),
			"begins with 3",
			"begins with 4", "ends: context canceled", "held: <nil>",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestHoldEndsWithAnError: an error of the work ends it for good, also where all rights are there.
func TestHoldEndsWithAnError(t *testing.T) {
	broken := errors.New("broken")
	for _, rights := range []ownership.Rights{ownership.All{}, ownershiptest.New("web")} {
		err := ownership.Hold(t.Context(), rights, "web", func(context.Context, <-chan struct{}) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("%T: %v", rights, err)
		}
	}
}
