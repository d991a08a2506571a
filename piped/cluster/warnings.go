package cluster

import (
	"context"
	"log/slog"
)

// warningSink is the context key of the function that receives the API server's warnings
// about a call.
type warningSink struct{}

// WithWarnings returns a context whose requests pass the API server's warnings to sink. Sink
// must be safe for concurrent use if the requests are concurrent.
func WithWarnings(ctx context.Context, sink func(text string)) context.Context {
	return context.WithValue(ctx, warningSink{}, sink)
}

// warnings passes the API server's warnings, such as those about deprecated kinds, to the
// sink of the request's context (WithWarnings), or logs them without one.
type warnings struct{ log *slog.Logger }

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
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
