package page

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/a-h/templ"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// screen is what a route shows.
type screen struct {
	title string
	nav   string          // label of the route in the bar that is marked as current
	body  templ.Component // of the whole page
	part  templ.Component // for htmx; nil: body
	live  string          // address of the stream with changes; "" if only the strip has any
	parts []part          // what the stream replaces, as it is shown
	strip *strip          // nil: it is read
	code  int             // default 200
	to    string          // redirects to this local address instead
}

// errWritten means that the response is written already.
var errWritten = errors.New("the response is written")

// minCompressed is the size from which responses are compressed.
const minCompressed = 1 << 10

// render writes a screen: the part that htmx asks for, or a whole page.
func (v *visit) render(s *screen) {
	if s.to != "" {
		http.Redirect(v.w, v.r, s.to, http.StatusSeeOther)
		return
	}
	body := s.part
	if !v.fragment() || body == nil && s.body != nil {
		body = s.body
	}
	if !v.fragment() {
		body = layout(frameOf(v, s), body)
	}
	text, err := html(v.r.Context(), body)
	if err != nil {
		v.config.Logger.ErrorContext(v.r.Context(), "cannot render a view", "path", v.r.URL.Path, "error", err)
		http.Error(v.w, "This view cannot be rendered; see the agent's log.", http.StatusInternalServerError)
		return
	}
	if s.strip != nil {
		keys := keysOf(append([]part{s.strip.part()}, s.parts...))
		v.shown.remember(keyOf(keys), keys)
	}
	v.write(s.code, []byte(text))
}

// write writes HTML. Write errors are ignored: the client is gone.
func (v *visit) write(code int, body []byte) {
	header := v.w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Add("Vary", "Accept-Encoding, HX-Request")
	if len(body) >= minCompressed && acceptsGzip(v.r) {
		header.Set("Content-Encoding", "gzip")
		body = zipped(body)
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	v.w.WriteHeader(max(code, http.StatusOK))
	_, _ = v.w.Write(body)
}

func acceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// zippers are used again: each has most of a megabyte of tables.
var zippers = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// zipped returns an answer compressed.
func zipped(body []byte) []byte {
	w, _ := zippers.Get().(*gzip.Writer) // the pool has nothing else
	defer zippers.Put(w)
	var out bytes.Buffer
	w.Reset(&out)
	_, err := w.Write(body)
	if err = errors.Join(err, w.Close()); err != nil { // a buffer causes none
		panic(err)
	}
	return out.Bytes()
}

// failure is a view that cannot be shown.
type failure struct {
	code    int
	title   string
	text    string
	signIn  string // address to sign in again; "" unless that helps
	retry   string // address to try again; "" unless that helps
	subject string // of the user who is signed in; "" without a sign-in
	request string // ID under which the log has the error; "" if the caller can understand it
}

// failureOf explains an error to the user.
func (v *visit) failureOf(err error) failure {
	f := failure{text: status.Convert(err).Message(), retry: v.here(), subject: v.caller.GetSubject()}
	switch status.Code(err) {
	case codes.Unauthenticated:
		f = failure{code: http.StatusUnauthorized, title: "Your session has ended", text: "Nothing was done. Sign in again to go on where you were.", signIn: v.signIn()}
	case codes.PermissionDenied:
		f.code, f.title, f.retry = http.StatusForbidden, "You may not do this", ""
	case codes.NotFound:
		f.code, f.title, f.retry = http.StatusNotFound, "This does not exist", ""
		f.text += ". It may have been deleted, or you may not view it."
	case codes.InvalidArgument:
		f.code, f.title, f.retry = http.StatusBadRequest, "This address or form is not valid", ""
	case codes.FailedPrecondition, codes.Aborted, codes.AlreadyExists:
		f.code, f.title = http.StatusConflict, "This is not possible now"
	case codes.ResourceExhausted:
		f.code, f.title = http.StatusTooManyRequests, "Too many requests"
	case codes.Unavailable, codes.DeadlineExceeded:
		f.code, f.title = http.StatusServiceUnavailable, "The agent cannot answer now"
	default:
		f.code, f.title = http.StatusInternalServerError, "Something went wrong"
	}
	return f
}

// failedTab returns a tab that explains an error, and its key. Callers with the same rights share
// it, so it does not say who read it.
func (v *visit) failedTab(err error) (templ.Component, string) {
	f := v.failureOf(err)
	f.subject = ""
	f.text, _, _ = strings.Cut(f.text, ", which no role of ")
	return tabFailed(f), keyOf(f)
}

// refuse answers a request that failed. A page without a session leads to the sign-in page.
func (v *visit) refuse(r route, err error) {
	signedOut := status.Code(err) == codes.Unauthenticated
	if v.r.Context().Err() != nil || errors.Is(err, errWritten) {
		return // the client is gone, or has the answer
	}
	if r.live != nil {
		v.endStream(err)
		return
	}
	if signedOut && r.pattern == otherwise {
		http.NotFound(v.w, v.r)
		return
	}
	if signedOut && v.r.Method == http.MethodGet && !v.fragment() {
		http.Redirect(v.w, v.r, v.signIn(), http.StatusSeeOther)
		return
	}
	f := v.failureOf(err)
	if f.code >= http.StatusInternalServerError {
		f.request = rand.Text()[:8]
		v.config.Logger.WarnContext(v.r.Context(), "cannot show a view", "path", v.r.URL.Path, "request", f.request, "error", err.Error())
	}
	v.render(&screen{title: f.title, code: f.code, body: failed(f)})
}

// lineEnds writes the ends of lines as browsers read them. In a stream, a carriage return would end
// the field of an event.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// html renders a component. It shows control characters as a replacement, wherever they come from.
// The rest of an escape sequence stays: one that does not end would take elements with it.
func html(ctx context.Context, c templ.Component) (string, error) {
	var out strings.Builder
	err := c.Render(ctx, &out)
	text := out.String()
	if strings.Contains(text, "\r") { // the replacer copies the text
		text = lineEnds.Replace(text)
	}
	return withoutControls(text), err
}

// showNothing answers for the addresses that no view has.
func showNothing(v *visit) (*screen, error) {
	return nil, status.Errorf(codes.NotFound, "There is no view at %s", v.r.URL.Path)
}
