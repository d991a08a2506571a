package cluster

import (
	"context"
	"log/slog"
)

// warningSink is the context key under which a call says where the API server's
// warnings about it go.
type warningSink struct{}

func withWarnings(ctx context.Context, sink func(text string)) context.Context {
	return context.WithValue(ctx, warningSink{}, sink)
}

// warnings hands what the API server warns of, such as a kind about to be
// withdrawn, to whoever made the call, and otherwise to the agent's log.
type warnings struct{ log *slog.Logger }

// HandleWarningHeaderWithContext is called by client-go for each warning.
func (w warnings) HandleWarningHeaderWithContext(ctx context.Context, code int, _, text string) {
	if code != 299 || text == "" {
		return
	}
	if sink, ok := ctx.Value(warningSink{}).(func(string)); ok {
		sink(text)
		return
	}
	w.log.DebugContext(ctx, "the API server warns", "warning", text)
}
