package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"connectrpc.com/connect"
)

// isJSON reports whether the body of a request is plain JSON. For a stream this is no protocol
// of Connect, which frames the messages of streams.
func isJSON(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return r.Method == http.MethodPost && err == nil && media == "application/json"
}

// serveLines serves a stream to scripts: the request is JSON as that of other methods, the
// response one line of JSON for each message. An error before the first message is the
// response; a later one is the last line, {"error": {...}}.
func (a *httpAPI) serveLines(w http.ResponseWriter, r *http.Request, limit int, call func(context.Context, *frame, func(any) error) error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, int64(limit)))
	if err != nil {
		_ = a.errors.Write(w, r, readError(err, limit)) // fails if the client is gone
		return
	}
	out := &lines{w: w, encoding: jsonEncoding("json")}
	err = call(r.Context(), &frame{encoded: body, encoding: out.encoding}, out.send)
	switch {
	case err == nil:
		out.begin()
	case !out.begun:
		_ = a.errors.Write(w, r, err)
	default:
		writeJSON(w, map[string]wireError{"error": wireErrorOf(err)})
	}
}

// readError returns the error of a body that could not be read.
func readError(err error, limit int) error {
	var tooLarge *http.MaxBytesError
	var known *connect.Error
	switch {
	case errors.As(err, &tooLarge):
		return connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("the request is larger than %d bytes: send less", limit))
	case errors.As(err, &known):
		return err
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("read the request: %w", err))
}

// lines writes messages as lines of JSON.
type lines struct {
	w        http.ResponseWriter
	encoding encoding
	begun    bool
}

func (l *lines) send(message any) error {
	data, err := l.encoding.Marshal(message)
	if err != nil {
		return err
	}
	l.begin()
	if _, err := l.w.Write(append(data, '\n')); err != nil {
		return err
	}
	return http.NewResponseController(l.w).Flush()
}

// begin sends the header unless it was sent.
func (l *lines) begin() {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
	}
}

// wireError is Connect's form of errors in JSON, without details.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message,omitempty"`
}

func wireErrorOf(err error) wireError {
	var c *connect.Error
	if !errors.As(err, &c) {
		return wireError{Code: connect.CodeUnknown.String(), Message: err.Error()}
	}
	return wireError{Code: c.Code().String(), Message: c.Message()}
}

// writeJSON writes one line. Write errors are ignored: the client is gone.
func writeJSON(w io.Writer, value any) { _ = json.NewEncoder(w).Encode(value) }
