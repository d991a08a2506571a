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
	"sync"
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

	// What takes long to read, such as live objects, follows a change: the refresh that shows the
	// change accepts what was read before it, up to knownAge ago. A later one has it as it was at
	// most liveAge ago.
	knownAge  = 15 * time.Second // more than liveTick, at which it is read anyway
	liveAge   = time.Second
	liveRead  = 2 * time.Second // between two such reads
	liveShare = 20              // the pause before the next one, in times that one took; at most liveTick
	stateAge  = 5 * time.Second // of the state of the agent, which no change announces
)

// part is an element that is replaced as a whole. Its key changes with its content, and does not
// with the time that has passed.
type part struct {
	id   string
	key  string
	body templ.Component
}

// within is the body of a part that another part contains, which comes before it.
type within struct {
	templ.Component
	part string // ID
}

// source returns the live parts of a view as they are now.
type source interface {
	parts(v *visit) ([]part, error)
	// watch watches what the parts depend on.
	watch(v *visit) (receive, error)
	// opened returns a key of what the source read when it was opened, and of the caller if the
	// parts depend on who that is (see visit.identity). Sources of the same address and the same
	// rights with the same key have the same parts.
	opened() string
}

// renewer is a source that waits for clusters. What renew has read, parts finds without waiting.
type renewer interface{ renew(*visit) }

// everyApplication is the base of sources whose parts depend on all applications.
type everyApplication struct{}

func (everyApplication) watch(v *visit) (receive, error) { return v.watchApplications() }

func (everyApplication) opened() string { return "" }

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
func keyOfParts(parts []part) string { return keyOf(keysOf(parts)) }

// keysOf returns the keys of parts by their IDs.
func keysOf(parts []part) map[string]string {
	keys := map[string]string{}
	for _, p := range parts {
		keys[p.id] = p.key
	}
	return keys
}

// maxShown is the number of parts that are remembered.
const maxShown = 100_000

// shownParts remembers the keys of the parts that browsers have lately been sent, so that a stream
// begins with what has changed since and not with the whole view.
type shownParts struct {
	mu    sync.Mutex
	keys  map[string]map[string]string // by the key of all parts
	order []string                     // the oldest first
	n     int                          // parts
}

func (s *shownParts) remember(id string, keys map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[id] != nil || len(keys) > maxShown {
		return
	}
	for s.n += len(keys); s.n > maxShown; s.order = s.order[1:] {
		s.n -= len(s.keys[s.order[0]])
		delete(s.keys, s.order[0])
	}
	if s.keys == nil {
		s.keys = map[string]map[string]string{}
	}
	s.keys[id], s.order = keys, append(s.order, id)
}

// recall returns the keys of the parts with a key; nil if they are not remembered.
func (s *shownParts) recall(id string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[id]
}

// stream sends the live parts of a view until the browser goes or the API ends.
func (v *visit) stream(open func(*visit) (source, error)) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	v.ctx = ctx
	ended, err := v.admitted(&running)
	if err != nil {
		v.endStream(err)
		return
	}
	src, err := open(v)
	if err != nil {
		v.endStream(err)
		return
	}
	has := cmp.Or(v.r.Header.Get("Last-Event-ID"), v.r.URL.Query().Get("from"))
	m := v.rooms.join(v.roomKey(src), has, v.shown.recall(has))
	defer v.rooms.leave(m)
	v.startStream()
	led := make(chan error, 1)
	running.Go(func() { led <- m.room.lead(v, src) })
	out := &events{v: v}
	if err := out.follow(m, ended, led); err != nil && v.r.Context().Err() == nil {
		out.end(err)
	}
}

// admitted returns a channel with the error by which the API ends the calls of the caller: with
// the session, when the roles change, and when the agent stops. The caller is read after that
// began, so that the rights hold until then.
func (v *visit) admitted(running *sync.WaitGroup) (<-chan error, error) {
	next, err := v.watchApplications("-") // there is none with this ID: nothing is reported
	if err == nil {
		_, err = next()
	}
	if err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	running.Go(func() {
		var err error
		for err == nil {
			_, err = next()
		}
		ended <- err
	})
	v.caller, err = v.control.GetCaller(v.ctx, &controlv1.GetCallerRequest{})
	return ended, err
}

// receive waits for a change, or for the end of the present state.
type receive func() (caughtUp bool, err error)

// watchApplications watches for changes of some applications, of all without IDs.
func (v *visit) watchApplications(ids ...string) (receive, error) {
	stream, err := v.control.WatchApplications(v.ctx, &controlv1.WatchApplicationsRequest{ApplicationIds: ids, ChangesOnly: true})
	return func() (bool, error) {
		m, err := stream.Recv()
		return m.GetCaughtUp(), err
	}, err
}

// watchDeployment watches a deployment.
func (v *visit) watchDeployment(id string) (receive, error) {
	stream, err := v.control.WatchDeployments(v.ctx, &controlv1.WatchDeploymentsRequest{DeploymentIds: []string{id}})
	return func() (bool, error) {
		m, err := stream.Recv()
		return m.GetCaughtUp(), err
	}, err
}

// events writes Server-Sent Events. The ID of an event is the key of all parts, so that a
// browser that reconnects without having missed anything is sent nothing.
type events struct{ v *visit }

// follow sends what a member of a room is shown until its calls end, or it fails to lead.
func (e *events) follow(m *member, ended, led <-chan error) error {
	beat := time.NewTicker(liveHeartbeat)
	defer beat.Stop()
	for {
		text := ": still here\n\n"
		select {
		case err := <-ended:
			return err
		case err := <-led:
			return err
		case <-beat.C:
		case <-m.signal:
			text = m.take()
		}
		if text == "" {
			continue
		}
		if err := e.write(text); err != nil {
			return err
		}
	}
}

// swap adds an instruction for htmx to morph the element with an ID.
func swap(out *strings.Builder, id, html string) {
	fmt.Fprintf(out, "<hx-partial hx-target=\"#%s\" hx-swap=\"outerMorph\">%s</hx-partial>", id, html)
}

// eventOf returns an event with HTML.
func eventOf(id, html string) string {
	var out strings.Builder
	if id != "" {
		fmt.Fprintf(&out, "id: %s\n", id)
	}
	for line := range strings.Lines(html) {
		out.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
	}
	out.WriteString("\n")
	return out.String()
}

// send sends an event with HTML.
func (e *events) send(id, html string) error { return e.write(eventOf(id, html)) }

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
