package background

import (
	"context"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Answer answers commands for which no stage waits. It calls answer at the start, when a command is
// written, at an interval as a fallback for missed changes, and, as long as commands stay open, after
// every change of the feed, which may be the end of the stage that they are for. answer returns how
// many stay open. Answer returns when ctx ends, and closes the feed.
func Answer(ctx context.Context, feed Feed, every time.Duration, answer func(ctx context.Context) (open int, err error), failed func(error)) {
	defer feed.Close()
	scan := time.NewTicker(every)
	defer scan.Stop()
	for pending, open := true, 0; ; {
		if pending {
			var err error
			if open, err = answer(ctx); err != nil && ctx.Err() == nil {
				failed(err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-scan.C:
			pending = true
		case <-feed.C():
			changes := feed.Take() // also while commands are open: a feed keeps what is not taken
			pending = open > 0 || slices.ContainsFunc(changes, func(c deploy.Change) bool { return c.Topic == deploy.TopicCommand })
		}
	}
}
