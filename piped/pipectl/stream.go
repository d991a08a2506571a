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
	// patience is how long an agent that went away is waited for.
	patience = 5 * time.Minute
	// tickInterval is how often something that is shown moves.
	tickInterval = time.Second
)

// errDone ends a stream from the client's side.
var errDone = errors.New("done")

// opener opens a stream, each time where the last one broke off.
type opener[M any] func(ctx context.Context) (grpc.ServerStreamingClient[M], error)

// following says how streams are kept going.
type following struct {
	what string                           // is read, for messages
	say  func(format string, args ...any) // tells a person that a stream broke
	tick func()                           // is called now and then between messages
	ends bool                             // the agent ends the stream when all is said; otherwise its end is a break
}

// follow reads messages across broken streams, until take returns errDone, the
// agent has said all, or something fails that will not pass. take and tick are
// never called at once.
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
		case !errors.Is(err, io.EOF) && !passes(err):
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

// passes reports whether it helps to open a broken stream again.
func passes(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.ResourceExhausted, codes.Canceled, codes.Aborted:
		return true
	}
	return false
}

// receive reads one stream until it ends, and reports whether anything came. It
// waits for the goroutine that it starts.
func receive[M any](ctx context.Context, open opener[M], take func(*M) error, tick func()) (came bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return false, err
	}
	messages := make(chan *M)
	var ended error // belongs to the reader until messages is closed
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
		for range messages { // what nobody wants any more
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
