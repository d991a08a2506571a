package deploy

import (
	"context"
	"errors"
	"testing"
)

func TestStopReasonStatus(t *testing.T) {
	for why, want := range map[StopReason]StageStatus{
		StopCancelled: StageCancelled,
		StopSkipped:   StageSkipped,
		StopTimedOut:  StageFailure,
	} {
		if got := why.Status(); got != want {
			t.Errorf("%s: a stage ends %s, want %s", why, got, want)
		}
	}
}

func TestStopped(t *testing.T) {
	for name, c := range map[string]struct {
		cause error
		want  StopReason
	}{
		"a reason":        {StopSkipped, StopSkipped},
		"a wrapped one":   {errors.Join(errors.New("x"), StopTimedOut), StopTimedOut},
		"any other cause": {errors.New("x"), StopShutdown},
		"no cause":        {nil, StopShutdown},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		if got := Stopped(ctx); got != "" {
			t.Errorf("%s: stopped because %q before it was", name, got)
		}
		stop(c.cause)
		if got := Stopped(ctx); got != c.want {
			t.Errorf("%s: stopped because %q, want %q", name, got, c.want)
		}
	}
}
