package page

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// countedSource has one part that changes and one that does not, and counts what is rendered.
type countedSource struct {
	everyApplication
	word     string
	rendered int
}

func (s *countedSource) parts(*visit) ([]part, error) {
	body := func(text string) templ.Component {
		return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
			s.rendered++
			_, err := io.WriteString(w, text)
			return err
		})
	}
	return []part{{"word", keyOf(s.word), body(s.word)}, {"rest", keyOf("rest"), body("the rest")}}, nil
}

// TestRoom: what changes is rendered once for all members. A member that shows the present state is
// sent nothing, one that shows another state is sent everything, and one that was slow misses no
// change.
func TestRoom(t *testing.T) {
	f := calm(t)
	v := &visit{Handler: f.page(), ctx: signedIn(t), allowed: map[string]bool{}}
	src := &countedSource{word: "one"}
	refresh := func() {
		t.Helper()
		if err := v.roomOf(t, "a").refresh(v, src); err != nil {
			t.Fatal(err)
		}
	}
	parts, _ := src.parts(v)
	here, slow := v.rooms.join("a", keyOfParts(parts), nil), v.rooms.join("a", keyOfParts(parts), nil)
	other := v.rooms.join("b", "", nil)
	refresh()
	if src.rendered != 0 || here.take() != "" {
		t.Errorf("%d parts were rendered for browsers that show them", src.rendered)
	}
	src.word = "two"
	refresh()
	if got := here.take(); src.rendered != 1 || !strings.Contains(got, "two") || strings.Contains(got, "the rest") {
		t.Errorf("%d parts were rendered, and %q was sent", src.rendered, got)
	}
	late := v.rooms.join("a", "something else", nil)
	src.word = "three"
	refresh()
	if got := late.take(); src.rendered != 3 || !strings.Contains(got, "three") || !strings.Contains(got, "the rest") {
		t.Errorf("%d parts were rendered, and the browser that joined was sent %q", src.rendered, got)
	}
	if got := slow.take(); !strings.Contains(got, "three") || strings.Contains(got, "two") || strings.Contains(got, "the rest") {
		t.Errorf("the slow browser was sent %q", got)
	}
	if got := other.take(); got != "" {
		t.Errorf("another room was sent %q", got)
	}
	for _, m := range []*member{here, slow, late, other} {
		v.rooms.leave(m)
	}
	if len(v.rooms.open) != 0 {
		t.Errorf("%d rooms without members are open", len(v.rooms.open))
	}
}

// nestedSource is a source with one part in another.
type nestedSource struct {
	everyApplication
	shape, row string
}

func (s nestedSource) parts(*visit) ([]part, error) {
	text := func(format string, values ...any) templ.Component {
		return templ.ComponentFunc(func(_ context.Context, w io.Writer) error {
			_, err := fmt.Fprintf(w, format, values...)
			return err
		})
	}
	return []part{
		{"list", keyOf(s.shape), text("[list %s: row %s]", s.shape, s.row)},
		{"row", keyOf(s.row), within{text("[row %s]", s.row), "list"}},
	}, nil
}

// TestPartsWithinParts: a browser that missed a change of a part and a later one of what it
// contains shows both.
func TestPartsWithinParts(t *testing.T) {
	v := &visit{Handler: calm(t).page(), ctx: signedIn(t), allowed: map[string]bool{}}
	src := nestedSource{shape: "one", row: "a"}
	parts, _ := src.parts(v)
	join := func() *member { return v.rooms.join("a", keyOfParts(parts), keysOf(parts)) }
	quick, slow := join(), join()
	for _, c := range []struct {
		shape, row string
		sent       []string
	}{
		{"one", "a", nil},
		{"two", "a", []string{"[list two: row a]"}}, // with its row
		{"two", "b", []string{"[row b]"}},
		{"two", "c", []string{"[row c]"}},
	} {
		src.shape, src.row = c.shape, c.row
		if err := v.roomOf(t, "a").refresh(v, src); err != nil {
			t.Fatal(err)
		}
		if got := shownBy(quick.take()); !slices.Equal(got, c.sent) {
			t.Errorf("%s, %s: %q was sent, want %q", c.shape, c.row, got, c.sent)
		}
	}
	if got, want := shownBy(slow.take()), []string{"[list two: row a]", "[row c]"}; !slices.Equal(got, want) {
		t.Errorf("%q was sent to the slow browser, want %q", got, want)
	}
}

// shownBy returns the texts in brackets of an event.
func shownBy(event string) []string { return regexp.MustCompile(`\[[^]]*\]`).FindAllString(event, -1) }

// TestRightsThatEnd: what a leader reads once its watch has ended, such as with other rights, is
// shown to no member.
func TestRightsThatEnd(t *testing.T) {
	v := &visit{Handler: calm(t).page(), ctx: signedIn(t), allowed: map[string]bool{}}
	m := v.rooms.join("a", "", nil)
	src := endingSource{countedSource: &countedSource{word: "theirs"}, end: make(chan error), ended: make(chan struct{})}
	if err := m.room.lead(v, src); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the leader ended with %v", err)
	}
	if got := m.take(); got != "" {
		t.Errorf("%q was sent", got)
	}
}

// endingSource is a source whose watch ends with end while its parts are read.
type endingSource struct {
	*countedSource
	end   chan error
	ended chan struct{}
}

func (s endingSource) watch(v *visit) (receive, error) {
	began := false
	return func() (bool, error) {
		if !began {
			began = true
			return true, nil
		}
		err := <-s.end
		context.AfterFunc(v.ctx, func() { close(s.ended) })
		return false, err
	}, nil
}

func (s endingSource) parts(v *visit) ([]part, error) {
	s.end <- status.Error(codes.Unauthenticated, "the roles have changed")
	<-s.ended
	return s.countedSource.parts(v)
}

// TestRoomsOfCallers: callers with the same rights share a room, unless the parts depend on who
// asks.
func TestRoomsOfCallers(t *testing.T) {
	user, apiKey := controlv1.CallerKind_CALLER_KIND_USER, controlv1.CallerKind_CALLER_KIND_API_KEY_SESSION
	key := func(subject, issuer string, kind controlv1.CallerKind, session string, open func(*visit) (source, error)) string {
		v := &visit{r: httptest.NewRequest("GET", "/x/live", nil), caller: &controlv1.GetCallerResponse{Subject: subject, Issuer: issuer, Kind: kind, Id: session, Roles: []string{"Limited"}}}
		src, err := open(v)
		if err != nil {
			t.Fatal(err)
		}
		return v.roomKey(src)
	}
	for name, c := range map[string]struct {
		open   func(*visit) (source, error)
		shared bool
	}{
		"plan previews": {livePlanPreviews, false},
		"traces":        {liveTrace, false},
		"now":           {liveNow, true},
	} {
		ana := key("ana", "idp", user, "1", c.open)
		if again := key("ana", "idp", user, "2", c.open); again != ana {
			t.Errorf("%s: one caller has two rooms", name)
		}
		for _, other := range []string{key("ben", "idp", user, "3", c.open), key("ana", "other", user, "4", c.open)} {
			if (other == ana) != c.shared {
				t.Errorf("%s: shared %v, want %v", name, other == ana, c.shared)
			}
		}
		if same := key("ci", "", apiKey, "5", c.open) == key("ci", "", apiKey, "6", c.open); same != c.shared {
			t.Errorf("%s: shared by two API keys of one subject: %v, want %v", name, same, c.shared)
		}
	}
}

// TestNextLeader: when the browser that leads goes, another one leads and shows what changed
// meanwhile.
func TestNextLeader(t *testing.T) {
	f := calm(t)
	h := f.page()
	src := &countedSource{word: "one"}
	visitOf := func() (*visit, context.CancelFunc) {
		ctx, cancel := context.WithCancel(signedIn(t))
		return &visit{Handler: h, ctx: ctx}, cancel
	}
	first, goes := visitOf()
	second, ends := visitOf()
	m := h.rooms.join("a", "", nil)
	ended := make(chan error, 2)
	watched := idleSource{src, make(chan struct{}, 2)}
	go func() { ended <- m.room.lead(first, watched) }()
	<-watched.began
	go func() { ended <- m.room.lead(second, watched) }()
	goes()
	<-ended
	<-watched.began
	select {
	case <-m.signal:
	case <-time.After(10 * time.Minute):
		t.Fatal("the next leader showed nothing")
	}
	if got := m.take(); !strings.Contains(got, "one") {
		t.Errorf("%q was sent", got)
	}
	ends()
	<-ended
}

// idleSource is a source whose watch reports the present state and then waits.
type idleSource struct {
	*countedSource
	began chan struct{}
}

func (s idleSource) watch(v *visit) (receive, error) {
	caughtUp := false
	s.began <- struct{}{}
	return func() (bool, error) {
		if !caughtUp {
			caughtUp = true
			return true, nil
		}
		<-v.ctx.Done()
		return false, v.ctx.Err()
	}, nil
}

// roomOf returns an open room.
func (v *visit) roomOf(t *testing.T, key string) *room {
	t.Helper()
	if v.rooms.open[key] == nil {
		t.Fatal("there is no room", key)
	}
	return v.rooms.open[key]
}

// slowSource has a part that is read at once, and one that only renew reads. It waits for a cluster.
type slowSource struct {
	everyApplication
	changes chan struct{}
	cluster chan string // answers

	mu       sync.Mutex
	word     string
	live     string
	liveRead time.Time
}

func (s *slowSource) watch(v *visit) (receive, error) {
	began := false
	return func() (bool, error) {
		if !began {
			began = true
			return true, nil
		}
		select {
		case <-s.changes:
			return false, nil
		case <-v.ctx.Done():
			return false, v.ctx.Err()
		}
	}, nil
}

func (s *slowSource) renew(v *visit) {
	at := v.config.Now()
	select {
	case live := <-s.cluster:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.live, s.liveRead = live, at
	case <-v.ctx.Done():
	}
}

func (s *slowSource) parts(v *visit) ([]part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.saw(s.liveRead.UnixMilli())
	return []part{{"word", keyOf(s.word), templ.Raw(s.word)}, {"live", keyOf(s.live), templ.Raw(s.live)}}, nil
}

// TestSlowCluster: a change is shown while its cluster does not answer, and what the cluster answers
// follows. It is read again only after a change.
func TestSlowCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := New(Config{Conn: newFake(t), Token: func(*http.Request) string { return "token" }})
		src := &slowSource{changes: make(chan struct{}), cluster: make(chan string), word: "running", live: "no pods", liveRead: time.Now().Add(-time.Second)}
		parts, _ := src.parts(&visit{})
		m := h.rooms.join("a", keyOfParts(parts), nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.room.lead(&visit{Handler: h, ctx: ctx}, src) }()
		time.Sleep(5 * time.Second)
		select {
		case src.cluster <- "one pod": // of the beginning, when the room was asked
		default:
			t.Error("the cluster is not asked when the room opens")
		}
		time.Sleep(time.Second)
		if got := m.take(); !strings.Contains(got, "one pod") {
			t.Errorf("%q was sent, not the answer of the cluster", got)
		}
		src.mu.Lock()
		src.word = "succeeded"
		src.mu.Unlock()
		src.changes <- struct{}{}
		time.Sleep(livePause)
		synctest.Wait()
		if got := m.take(); !strings.Contains(got, "succeeded") || strings.Contains(got, "pod") {
			t.Errorf("%q was sent, not the change alone", got)
		}
		time.Sleep(2 * liveAge)
		src.cluster <- "two pods"
		time.Sleep(livePause)
		synctest.Wait()
		if got := m.take(); !strings.Contains(got, "two pods") {
			t.Errorf("%q was sent, not what the cluster has answered after the change", got)
		}
		cancel()
		<-ended
	})
}
