package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
)

// startAPI runs a server with an API until the test ends and returns its address.
func startAPI(t *testing.T, change func(*limits), api http.HandlerFunc) (address string) {
	t.Helper()
	l := defaultLimits()
	change(&l)
	s, err := newServer(Config{Address: "127.0.0.1:0", API: api, Grace: 200 * time.Millisecond}, l)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	return s.Addr()
}

func unchanged(*limits) {}

func TestAPIIsBelowItsPrefix(t *testing.T) {
	address := startAPI(t, unchanged, func(w http.ResponseWriter, r *http.Request) { answer(w, 200, r.URL.Path) })
	if code, body := get(t, "POST", "http://"+address+"/api/v1/s/M"); code != 200 || body != "/s/M\n" {
		t.Errorf("got %d %q", code, body)
	}
	for _, path := range []string{"/api/v2/s/M", "/s/M"} {
		if code, _ := get(t, "POST", "http://"+address+path); code == 200 {
			t.Errorf("%s is served", path)
		}
	}
	if code, _ := get(t, "POST", start(t, nil)+"/api/v1/s/M"); code != 404 {
		t.Errorf("without an API: %d", code)
	}
}

// TestAPIRejectsOtherOrigins: a browser marks requests that a page of another origin makes,
// which carry the cookies of the user.
func TestAPIRejectsOtherOrigins(t *testing.T) {
	address := startAPI(t, unchanged, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, "called") })
	for name, tc := range map[string]struct {
		method string
		header http.Header
		code   int
	}{
		"a script":                       {"POST", http.Header{}, 200},
		"our page":                       {"POST", http.Header{"Sec-Fetch-Site": {"same-origin"}, "Cookie": {"session=x"}}, 200},
		"our page in an older browser":   {"POST", http.Header{"Origin": {"http://" + address}, "Cookie": {"session=x"}}, 200},
		"another page":                   {"POST", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Cookie": {"session=x"}}, 403},
		"a page of a sibling host":       {"POST", http.Header{"Sec-Fetch-Site": {"same-site"}, "Cookie": {"session=x"}}, 403},
		"another page, an older browser": {"POST", http.Header{"Origin": {"https://evil.example.com"}, "Cookie": {"session=x"}}, 403},
		"another page with a key":        {"POST", http.Header{"Sec-Fetch-Site": {"cross-site"}, "Authorization": {"API-KEY x"}}, 403},
		"a link to the description":      {"GET", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://"+address+"/api/v1/s/M", strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = tc.header
			req.Header.Set("Content-Type", "application/json")
			code, body := roundTrip(t, req)
			if code != tc.code || code == 403 && body != `{"code":"permission_denied","message":"cross-origin requests of browsers are rejected"}` {
				t.Errorf("got %d %q, want %d", code, body, tc.code)
			}
		})
	}
}

func roundTrip(t *testing.T, req *http.Request) (code int, body string) {
	t.Helper()
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// TestAPIStreamsOutliveTimeouts: neither the read nor the write timeout ends a stream.
func TestAPIStreamsOutliveTimeouts(t *testing.T) {
	// Each pause is longer than the timeouts, and these are longer than a write takes on a busy machine.
	const lines, timeout, pause = 2, 2 * time.Second, 3 * time.Second
	address := startAPI(t, func(l *limits) { l.read, l.write = timeout, timeout }, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			t.Error(err)
		}
		for i := range lines {
			select {
			case <-r.Context().Done():
				t.Errorf("the call was cancelled before line %d", i)
				return
			case <-time.After(pause):
			}
			if _, err := fmt.Fprintln(w, i); err != nil {
				t.Errorf("line %d: %v", i, err)
			}
			w.(http.Flusher).Flush()
		}
	})
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/api/v1/s/M", strings.NewReader("body\n"))
	if err != nil {
		t.Fatal(err)
	}
	if code, body := roundTrip(t, req); code != 200 || body != "body\n0\n1\n" {
		t.Errorf("got %d %q", code, body)
	}
}

// open sends the beginning of a request.
func open(t *testing.T, address, request string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestAPIClientsThatStall: one that reads nothing, and one that does not send its body, occupy
// the server no longer than the timeouts.
func TestAPIClientsThatStall(t *testing.T) {
	ended := make(chan error, 1)
	address := startAPI(t, func(l *limits) { l.read, l.write = 200*time.Millisecond, 200*time.Millisecond }, func(w http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		for data := make([]byte, 1<<20); err == nil; {
			_, err = w.Write(data)
		}
		ended <- err
	})
	for name, request := range map[string]string{
		"reads nothing": "POST /api/v1/s/M HTTP/1.1\r\nHost: piped\r\nContent-Length: 2\r\n\r\n{}",
		"sends no body": "POST /api/v1/s/M HTTP/1.1\r\nHost: piped\r\nContent-Length: 2\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			open(t, address, request)
			var timeout net.Error
			if err := <-ended; !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("the call ended with %v, want a timeout", err)
			}
		})
	}
}

// TestAPIReadsFewLargeBodies at once; small ones are always read.
func TestAPIReadsFewLargeBodies(t *testing.T) {
	const first = 15 // bytes of a large body that is sent in two parts, more than a small one has
	taken := make(chan struct{})
	address := startAPI(t, func(l *limits) { l.small, l.deliveries, l.read = 10, 1, time.Hour }, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Held") != "" {
			if _, err := io.CopyN(io.Discard, r.Body, first); err != nil {
				t.Error(err)
			}
			close(taken)
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			answer(w, 429, connect.CodeOf(err).String())
			return
		}
		if n, err := r.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("after its end the body has %d bytes, %v", n, err)
		}
		answer(w, 200, "read")
	})
	post := func(body string, compression ...string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+"/api/v1/s/M", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for _, header := range compression {
			req.Header.Set(header, "gzip")
		}
		return roundTrip(t, req)
	}
	large := strings.Repeat("x", 20)
	// The first one has the slot before another is sent, which would be taken in its place.
	held := open(t, address, "POST /api/v1/s/M HTTP/1.1\r\nHost: piped\r\nHeld: yes\r\nContent-Length: 20\r\n\r\n"+large[:first])
	<-taken
	if code, body := post(large); code != 429 || body != "resource_exhausted\n" {
		t.Errorf("a second large body: %d %q", code, body)
	}
	if code, body := post("small"); code != 200 {
		t.Errorf("a small body: %d %q", code, body)
	}
	for _, header := range []string{"Content-Encoding", "Connect-Content-Encoding", "Grpc-Encoding"} {
		if code, body := post("small", header); code != 429 {
			t.Errorf("a small body that can become large (%s): %d %q", header, code, body)
		}
	}
	if _, err := io.WriteString(held, large[first:]); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.ReadResponse(bufio.NewReader(held), nil); err != nil || resp.StatusCode != 200 {
		t.Errorf("the first large body: %v, %v", resp, err)
	}
	if code, body := post(large); code != 200 {
		t.Errorf("after the first one: %d %q", code, body)
	}
}

// TestShutdownAbortsTheAPI: Run ends after the grace period though a call goes on, and the call
// is cancelled.
func TestShutdownAbortsTheAPI(t *testing.T) {
	begun, ended := make(chan struct{}), make(chan struct{})
	s, err := New(Config{Address: "127.0.0.1:0", Grace: 50 * time.Millisecond, API: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Error(err)
		}
		close(begun)
		<-r.Context().Done()
		close(ended)
	})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	open(t, s.Addr(), "POST /api/v1/s/M HTTP/1.1\r\nHost: piped\r\nContent-Length: 2\r\n\r\n{}")
	<-begun
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-ended
}
