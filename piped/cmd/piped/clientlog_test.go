package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestCancelledRequestsAreNoErrors: client-go logs the error as an attribute.
func TestCancelledRequestsAreNoErrors(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want string // the log level
	}{
		{"a stage was cancelled", fmt.Errorf("read: %w", deploy.StopCancelled), "DEBUG"},
		{"the agent ends", deploy.StopShutdown, "DEBUG"},
		{"a context was cancelled", fmt.Errorf("read: %w", context.Canceled), "DEBUG"},
		{"a stage ran out of time", deploy.StopTimedOut, "DEBUG"},
		{"the server hung up", errors.New("unexpected EOF"), "ERROR"},
		{"no error", nil, "ERROR"},
	}
	for _, tt := range tests {
		for _, least := range []slog.Level{slog.LevelDebug, slog.LevelInfo} {
			var out bytes.Buffer
			handler := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: least})
			slog.New(clientLog{handler}).With("component", "client-go").Error("Unexpected error when reading response body", "err", tt.err)
			if shown := tt.want == "ERROR" || least == slog.LevelDebug; shown != strings.Contains(out.String(), "level="+tt.want) || !shown && out.Len() > 0 {
				t.Errorf("%s, from level %s: got %q, want level %s", tt.name, least, out.String(), tt.want)
			}
		}
	}
}
