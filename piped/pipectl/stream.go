package pipectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// patience bounds the wait for an agent after a broken connection.
	patience = 5 * time.Minute
	// tickInterval is the interval of updates of the status line.
	tickInterval = time.Second
)

// errDone ends a stream from the client's side.
var errDone = errors.New("done")

// opener opens a stream, resuming where the last one broke.
type opener[M any] func(ctx context.Context) (grpc.ServerStreamingClient[M], error)

// following configures follow.
type following struct {
	what string                           // what is read, for messages
	say  func(format string, args ...any) // reports a broken stream to the user
	tick func()                           // called periodically between messages
	ends bool                             // the agent ends the stream when complete; otherwise its end is a broken stream
}

// follow reads messages and reopens broken streams, until take returns errDone, the
// stream is complete, or a permanent error occurs. It never calls take and tick
// concurrently.
func follow[M any](ctx context.Context, f following, open opener[M], take func(*M) error) error {
	const least, most = 100 * time.Millisecond, 5 * time.Second
	pause, since := least, time.Time{}
	for {
		came, err := receive(ctx, open, take, f.tick)
		switch {
		case errors.Is(err, errDone), f.ends && errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("stopped reading %s: %w", f.what, ctx.Err())
		case !errors.Is(err, io.EOF) && !isTransient(err):
			return failed("failed to read "+f.what, err)
		}
		if came || since.IsZero() {
			pause, since = least, time.Now()
			f.say("The connection to the agent broke, trying again...")
		}
		if time.Since(since) > patience {
			return failed(fmt.Sprintf("waited %s for the agent to read %s", patience, f.what), err)
		}
		pauseFor(ctx, pause)
		pause = min(2*pause, most)
	}
}

// isTransient reports whether a broken stream can be reopened.
func isTransient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Canceled, codes.Aborted:
		return true
	}
	return false
}

// receive reads one stream to its end, and reports whether it received a message. It
// waits for its goroutine.
func receive[M any](ctx context.Context, open opener[M], take func(*M) error, tick func()) (came bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return false, err
	}
	messages := make(chan *M)
	var ended error // owned by the reader until messages is closed
	go func() {
		defer close(messages)
		for {
			var m *M
			if m, ended = stream.Recv(); ended != nil {
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				ended = ctx.Err()
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range messages { // discard the rest
		}
	}()
	ticker := time.NewTicker(tickInterval)
	defer ticker.Stop()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return came, ended
			}
			came = true
			if err := take(m); err != nil {
				return came, err
			}
		case <-ticker.C:
			tick()
		}
	}
}
