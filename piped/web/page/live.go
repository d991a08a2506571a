package page

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Times of streams.
const (
	livePause     = 200 * time.Millisecond // between two refreshes, so that bursts are merged
	liveTick      = 10 * time.Second       // refreshes what no change announces, such as clusters
	liveHeartbeat = 15 * time.Second
)

// part is an element that is replaced as a whole. Its key changes with its content, and does not
// with the time that has passed.
type part struct {
	id   string
	key  string
	body templ.Component
}

// source returns the live parts of a view as they are now.
type source interface {
	parts(v *visit) ([]part, error)
	// watch watches what the parts depend on.
	watch(v *visit) (receive, error)
	// changed observes a changed application. It is called between calls of parts.
	changed(*controlv1.WatchApplicationsResponse)
}

// everyApplication is the base of sources whose parts depend on all applications.
type everyApplication struct{}

func (everyApplication) watch(v *visit) (receive, error) { return v.watchApplications() }

func (everyApplication) changed(*controlv1.WatchApplicationsResponse) {}

// keyOf returns a key of messages and words.
func keyOf(values ...any) string {
	sum := sha256.New()
	for _, value := range values {
		var encoded []byte
		if m, ok := value.(proto.Message); ok {
			encoded, _ = proto.MarshalOptions{Deterministic: true}.Marshal(m) // fails only for invalid UTF-8, which the API does not send
		} else {
			encoded = fmt.Append(nil, value)
		}
		fmt.Fprintf(sum, "%d:", len(encoded))
		sum.Write(encoded)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// keyOfAll returns a key of a list of messages.
func keyOfAll[M proto.Message](list []M) string {
	var keys strings.Builder
	for _, m := range list {
		keys.WriteString(keyOf(m))
	}
	return keyOf(keys.String())
}

// keyOfParts returns a key of all parts of a view, in any order.
func keyOfParts(parts []part) string {
	keys := map[string]string{}
	for _, p := range parts {
		keys[p.id] = p.key
	}
	return keyOf(keys)
}

// events writes Server-Sent Events. The ID of an event is the key of all parts, so that a
// browser that reconnects without having missed anything is sent nothing.
type events struct {
	v    *visit
	sent map[string]string // by part: key
}

// stream sends the live parts of a view until the browser goes or the API ends.
func (v *visit) stream(open func(*visit) (source, error)) {
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	v.ctx = ctx
	src, err := open(v)
	if err != nil {
		v.endStream(err)
		return
	}
	next, err := src.watch(v)
	if err != nil {
		v.endStream(err)
		return
	}
	changes, failed := v.watch(next)
	defer func() {
		cancel()
		for range changes { // closed at the end of the watch
		}
	}()
	v.startStream()
	out := &events{v: v, sent: map[string]string{}}
	if err := out.run(src, changes, failed); err != nil && v.r.Context().Err() == nil {
		out.end(err)
	}
}

// receive returns the next change, and whether the present state was sent before. The change is
// nil if it is about no application.
type receive func() (changed *controlv1.WatchApplicationsResponse, caughtUp bool, err error)

// watchApplications watches for changes of some applications, of all without IDs.
func (v *visit) watchApplications(ids ...string) (receive, error) {
	stream, err := v.control.WatchApplications(v.ctx, &controlv1.WatchApplicationsRequest{ApplicationIds: ids, ChangesOnly: true})
	return func() (*controlv1.WatchApplicationsResponse, bool, error) {
		m, err := stream.Recv()
		return m, m.GetCaughtUp(), err
	}, err
}

// watchDeployment watches a deployment.
func (v *visit) watchDeployment(id string) (receive, error) {
	stream, err := v.control.WatchDeployments(v.ctx, &controlv1.WatchDeploymentsRequest{DeploymentIds: []string{id}})
	return func() (*controlv1.WatchApplicationsResponse, bool, error) {
		m, err := stream.Recv()
		return nil, m.GetCaughtUp(), err
	}, err
}

// watch returns a channel of changes, which is closed when the watch fails; then failed has the
// error. It ends with the visit's context.
func (v *visit) watch(next receive) (changes <-chan *controlv1.WatchApplicationsResponse, failed <-chan error) {
	out, end := make(chan *controlv1.WatchApplicationsResponse), make(chan error, 1)
	go func() {
		defer close(out)
		for began := false; ; {
			m, caughtUp, err := next()
			if err != nil {
				end <- err
				return
			}
			if began = began || caughtUp; !began {
				continue
			}
			select {
			case out <- m:
			case <-v.ctx.Done():
				end <- v.ctx.Err()
				return
			}
		}
	}()
	return out, end
}

// run refreshes the parts when an application changes, and regularly.
func (e *events) run(src source, changes <-chan *controlv1.WatchApplicationsResponse, failed <-chan error) error {
	tick, beat := time.NewTicker(liveTick), time.NewTicker(liveHeartbeat)
	defer tick.Stop()
	defer beat.Stop()
	var due <-chan time.Time // set while a refresh is due
	// The view was read a moment ago. A search as one types replaces its stream before the first
	// refresh.
	last := time.Now()
	for {
		select {
		case m, ok := <-changes:
			if !ok {
				return <-failed
			}
			if m != nil {
				src.changed(m)
			}
			if due == nil {
				due = time.After(max(0, livePause-time.Since(last)))
			}
			continue
		case <-beat.C:
			if err := e.write(": still here\n\n"); err != nil {
				return err
			}
			continue
		case <-due:
		case <-tick.C:
		}
		due, last = nil, time.Now()
		if err := e.refresh(src); err != nil {
			return err
		}
	}
}

// refresh sends the parts that have changed since they were sent last.
func (e *events) refresh(src source) error {
	e.v.now = e.v.config.Now()
	clear(e.v.allowed)
	parts, err := src.parts(e.v)
	if err != nil {
		return err
	}
	keys := map[string]string{}
	for _, p := range parts {
		keys[p.id] = p.key
	}
	id := keyOfParts(parts)
	if len(e.sent) == 0 && cmp.Or(e.v.r.Header.Get("Last-Event-ID"), e.v.r.URL.Query().Get("from")) == id {
		e.sent = keys
		return nil
	}
	var out strings.Builder
	for _, p := range parts {
		if e.sent[p.id] == p.key {
			continue
		}
		text, err := html(e.v.ctx, p.body)
		if err != nil {
			return err
		}
		swap(&out, p.id, text)
	}
	if out.Len() == 0 {
		return nil
	}
	e.sent = keys
	return e.send(id, out.String())
}

// swap adds an instruction for htmx to morph the element with an ID.
func swap(out *strings.Builder, id, html string) {
	fmt.Fprintf(out, "<hx-partial hx-target=\"#%s\" hx-swap=\"outerMorph\">%s</hx-partial>", id, html)
}

// send sends an event with HTML.
func (e *events) send(id, html string) error {
	var out strings.Builder
	if id != "" {
		fmt.Fprintf(&out, "id: %s\n", id)
	}
	for line := range strings.Lines(html) {
		out.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
	}
	out.WriteString("\n")
	return e.write(out.String())
}

func (e *events) write(text string) error {
	if _, err := io.WriteString(e.v.w, text); err != nil {
		return err
	}
	return http.NewResponseController(e.v.w).Flush()
}

// startStream sends the header at once, so that the browser knows that it is connected.
func (v *visit) startStream() {
	header := v.w.Header()
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("X-Accel-Buffering", "no") // proxies send events at once
	v.w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(v.w).Flush() // a later write reports the error
}

// endStream answers with a stream that ends at once.
func (v *visit) endStream(err error) {
	v.startStream()
	(&events{v: v}).end(err)
}

// end shows the user why nothing more comes. A browser reconnects after an error that may pass.
func (e *events) end(err error) {
	code := status.Code(err)
	if code == codes.Unavailable || code == codes.ResourceExhausted || errors.Is(err, context.Canceled) {
		return
	}
	text, renderErr := html(e.v.r.Context(), notice(e.v.failureOf(err)))
	if renderErr != nil {
		return
	}
	var out strings.Builder
	swap(&out, "notice", text)
	if e.send("", out.String()) == nil {
		_ = e.write("event: end\ndata:\n\n") // fails if the client is gone
	}
}
