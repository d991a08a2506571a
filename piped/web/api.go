package web

import (
	"errors"
	"io"
	"net/http"
	"time"

	"connectrpc.com/connect"
)

// apiPrefix is the path below which Config.API is served.
const apiPrefix = "/api/v1"

// api serves Config.API. It rejects requests that a browser sends for a page of another origin,
// since these carry the cookies of the user. It gives each write the time of a whole response,
// so that streams have any length; the read timeout ends with the body of the request anyway.
type api struct {
	next   http.Handler
	limits limits
	large  slots // bodies larger than limits.small
	errors *connect.ErrorWriter
}

func newAPI(next http.Handler, l limits) http.Handler {
	a := &api{
		next: http.StripPrefix(apiPrefix, next), limits: l, errors: connect.NewErrorWriter(),
		large: slots{most: l.deliveries, perAddress: l.perAddress},
	}
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = a.errors.Write(w, r, connect.NewError(connect.CodePermissionDenied, errors.New("cross-origin requests of browsers are rejected"))) // fails if the client is gone
	}))
	return origin.Handler(a)
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := &apiBody{ReadCloser: r.Body, api: a, address: addressOf(r.RemoteAddr), compressed: compressed(r.Header)}
	defer body.release()
	r.Body = body
	unhurried(a.next, a.limits.write).ServeHTTP(w, r)
}

// unhurried gives each write of a handler the time of a whole response.
func unhurried(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &apiWriter{w, http.NewResponseController(w), timeout}
		defer out.extend() // for what the server still has buffered
		next.ServeHTTP(out, r)
	})
}

// compressed reports whether the body of a request is compressed, in any of the protocols.
func compressed(h http.Header) bool {
	for _, name := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if encoding := h.Get(name); encoding != "" && encoding != "identity" {
			return true
		}
	}
	return false
}

// apiBody is the body of a request.
type apiBody struct {
	io.ReadCloser
	api        *api
	address    string
	compressed bool // and may become large
	n          int64
	taken      bool // a slot
	ended      bool
}

// Read implements io.Reader. A body that is or can become large needs a slot, so that clients
// without credentials cannot occupy the memory.
func (b *apiBody) Read(p []byte) (int, error) {
	if allowed := b.api.limits.small + 1 - b.n; allowed > 0 && !b.compressed {
		p = p[:min(int64(len(p)), allowed)]
	} else if !b.taken && !b.ended {
		if !b.api.large.take(b.address) {
			return 0, connect.NewError(connect.CodeResourceExhausted, errors.New("too many large requests are being read: try again"))
		}
		b.taken = true
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if errors.Is(err, io.EOF) {
		b.ended = true
		b.release()
	}
	return n, err
}

// release releases the slot, if there is one.
func (b *apiBody) release() {
	if b.taken {
		b.taken = false
		b.api.large.release(b.address)
	}
}

// apiWriter gives each write the time of a whole response.
type apiWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

func (w *apiWriter) extend() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) // fails only for a closed connection
}

// WriteHeader implements http.ResponseWriter.
func (w *apiWriter) WriteHeader(code int) {
	w.extend()
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *apiWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// WriteString implements io.StringWriter, so that a text for many clients is not copied for each.
func (w *apiWriter) WriteString(text string) (int, error) {
	w.extend()
	return io.WriteString(w.ResponseWriter, text)
}

// Flush implements http.Flusher.
func (w *apiWriter) Flush() {
	w.extend()
	_ = w.control.Flush() // a later write reports the error
}

// Unwrap returns the writer for http.ResponseController.
func (w *apiWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
