package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/c785c783/piped/piped/deploy"
)

// clientLog receives the log of client-go. It lowers the level of errors caused by
// cancelled requests, such as those of a stopped stage.
type clientLog struct{ slog.Handler }

// Handle implements slog.Handler.
func (h clientLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelError && cancelled(r) {
		if !h.Enabled(ctx, slog.LevelDebug) {
			return nil
		}
		r.Level = slog.LevelDebug
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h clientLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return clientLog{h.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (h clientLog) WithGroup(name string) slog.Handler { return clientLog{h.Handler.WithGroup(name)} }

// cancelled reports whether a record contains the error of a cancelled context.
func cancelled(r slog.Record) (yes bool) {
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		var stopped deploy.StopReason
		yes = ok && (errors.Is(err, context.Canceled) || errors.As(err, &stopped))
		return !yes
	})
	return yes
}
