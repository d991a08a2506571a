package web

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDeliveryTooLarge(t *testing.T) {
	b := newEnv(t, func(l *limits) { l.body = 1000 })
	fits := pushOf("shop/config", "main")
	fits += strings.Repeat(" ", 1000-len(fits))
	for name, tc := range map[string]struct {
		body string
		as   func(string) io.Reader
		code int
	}{
		"just fits":                   {fits, func(s string) io.Reader { return strings.NewReader(s) }, 202},
		"one byte more":               {fits + " ", func(s string) io.Reader { return strings.NewReader(s) }, 413},
		"one byte more, not recorder": {fits + " ", func(s string) io.Reader { return io.MultiReader(strings.NewReader(s)) }, 413},
		"unsigned is not even read":   {strings.Repeat("x", 1<<20), func(s string) io.Reader { return strings.NewReader(s) }, 401},
	} {
		t.Run(name, func(t *testing.T) {
			h := header(secret, tc.body)
			if tc.code == 401 {
				h.Del("X-Hub-Signature-256")
				h.Set("Expect", "100-continue") // the client sends the body only when the server asks for it
			}
			if code, answer := b.send("POST", "/webhooks/github", h, tc.as(tc.body)); code != tc.code {
				t.Errorf("answer %d %q, want %d", code, answer, tc.code)
			}
		})
	}
}

// slow is a delivery whose header was sent and whose body is awaited.
type slow struct {
	conn  net.Conn
	reply *bufio.Reader
}

// beginDelivery returns once the server reads the body.
func (b *env) beginDelivery(body string) slow {
	b.t.Helper()
	conn, err := net.Dial("tcp", b.server.Addr())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		b.t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /webhooks/github HTTP/1.1\r\nHost: piped\r\nContent-Type: application/json\r\nX-Github-Event: push\r\n"+
		"X-Hub-Signature-256: %s\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", signed(secret, body), len(body))
	s := slow{conn, bufio.NewReader(conn)}
	for _, want := range []string{"HTTP/1.1 100 Continue\r\n", "\r\n"} {
		if line, err := s.reply.ReadString('\n'); err != nil || line != want {
			b.t.Fatalf("read %q, %v; want %q", line, err, want)
		}
	}
	return s
}

// response reads the response.
func (s slow) response(t *testing.T) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(s.reply, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestTooManyDeliveries(t *testing.T) {
	b := newEnv(t, func(l *limits) { // the slots are held for as long as the test takes
		l.deliveries, l.slack, l.read, l.write = 3, time.Hour, time.Hour, time.Hour
	})
	body := pushOf("shop/config", "main")
	var open []slow
	for range 3 {
		open = append(open, b.beginDelivery(body))
	}
	post := func() *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+b.server.Addr()+"/webhooks/github", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header(secret, body)
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	if resp := post(); resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "5" {
		t.Errorf("one more: code %d, Retry-After %q; want 503, 5", resp.StatusCode, resp.Header.Get("Retry-After"))
	}
	if code, _ := b.send("GET", "/healthz", http.Header{}, nil); code != 200 {
		t.Errorf("health while deliveries are read: code %d, want 200", code)
	}
	for _, s := range open {
		if _, err := io.WriteString(s.conn, body); err != nil {
			t.Fatal(err)
		}
		if resp := s.response(t); resp.StatusCode != 202 {
			t.Errorf("held delivery: code %d, want 202", resp.StatusCode)
		}
	}
	if resp := post(); resp.StatusCode != 202 {
		t.Errorf("after they ended: code %d, want 202", resp.StatusCode)
	}
	if want := 4 * 2; len(b.takePolled()) != want {
		t.Errorf("not every accepted delivery was announced, want %d polls", want)
	}
}

func TestSlowDelivery(t *testing.T) {
	b := newEnv(t, func(l *limits) { l.read, l.deliveries = 300*time.Millisecond, 1 })
	body := pushOf("shop/config", "main")
	s := b.beginDelivery(body)
	if _, err := io.WriteString(s.conn, body[:10]); err != nil {
		t.Fatal(err)
	}
	if resp := s.response(t); resp.StatusCode != 408 {
		t.Errorf("code %d, want 408", resp.StatusCode)
	}
	if _, err := s.reply.ReadByte(); err != io.EOF {
		t.Errorf("reading on: %v; want that the connection is closed", err)
	}
	if code, _ := b.send("POST", "/webhooks/github", header(secret, body), strings.NewReader(body)); code != 202 {
		t.Errorf("the next delivery: code %d, want 202", code)
	}
}

func TestSlowClientsAreCutOff(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*limits)
		send   string
		want   string // prefix of the response
	}{
		"header never ends":   {func(l *limits) { l.header = 200 * time.Millisecond }, "GET /healthz HTTP/1.1\r\nHost: piped\r\nX-A: ", ""},
		"no second request":   {func(l *limits) { l.idle = 200 * time.Millisecond }, "GET /healthz HTTP/1.1\r\nHost: piped\r\n\r\n", "HTTP/1.1 200 OK\r\n"},
		"header has no bound": {func(l *limits) { l.headerBytes = 1 << 10 }, "GET /healthz HTTP/1.1\r\nHost: piped\r\nX-A: " + strings.Repeat("a", 8<<10) + "\r\n\r\n", "HTTP/1.1 431 "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newEnv(t, tc.change)
			conn, err := net.Dial("tcp", b.server.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(10 * time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, tc.send); err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(conn) // ends when the server closes
			if err != nil {
				t.Fatalf("the connection was not closed: %v", err)
			}
			if !strings.HasPrefix(string(data), tc.want) || tc.want == "" && len(data) > 0 {
				t.Errorf("answer %q, want it to begin with %q", data, tc.want)
			}
		})
	}
}

// TestDefaultLimits covers the default values; the other tests set their own limits.
func TestDefaultLimits(t *testing.T) {
	s, err := New(Config{Address: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.http
	if l := s.hooks.limits; l.body != 25<<20 || s.hooks.slots.most != 8 || s.hooks.slots.perAddress != 4 || l.rate != 16<<10 || l.slack != 3*time.Second {
		t.Errorf("limits %+v, want 25 MiB, 8 deliveries at once, 4 of one address, and 16 KiB/s after 3 s", l)
	}
	order := []time.Duration{0, h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout}
	if !slices.IsSorted(order) || h.ReadHeaderTimeout == 0 || h.WriteTimeout == h.ReadTimeout {
		t.Errorf("timeouts %v: a request that took as long as it may could not be answered", order)
	}
	if h.IdleTimeout == 0 || h.MaxHeaderBytes == 0 {
		t.Errorf("idle timeout %v, header bytes %d; want bounds", h.IdleTimeout, h.MaxHeaderBytes)
	}
}

// TestShutdownWaitsForDeliveries: a running delivery is handled within the grace period.
func TestShutdownWaitsForDeliveries(t *testing.T) {
	b := newEnv(t, func(*limits) {})
	l := defaultLimits()
	l.slack, l.read, l.write = time.Hour, time.Hour, time.Hour // as long as the test takes
	s, err := newServer(Config{Address: "127.0.0.1:0", Poll: b.server.hooks.poll, Grace: time.Hour}, l)
	if err != nil {
		t.Fatal(err)
	}
	s.SetWebhooks(*b.server.hooks.current.Load())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	body := pushOf("shop/infra", "main")
	d := (&env{t: t, server: s}).beginDelivery(body)
	cancel()
	if _, err := io.WriteString(d.conn, body); err != nil {
		t.Fatal(err)
	}
	if resp := d.response(t); resp.StatusCode != 202 {
		t.Errorf("code %d, want 202", resp.StatusCode)
	}
	if err := <-done; err != nil {
		t.Errorf("Run returned %v", err)
	}
	if diff := cmp.Diff([]string{"infra"}, b.takePolled()); diff != "" {
		t.Errorf("polled (-want +got):\n%s", diff)
	}
}

// TestSlowSendersBlockNoOthers: senders of a signature without a body are disconnected soon
// and cannot take all slots.
func TestSlowSendersBlockNoOthers(t *testing.T) {
	body := pushOf("shop/config", "main")
	b := newEnv(t, func(l *limits) { // the slots are held for as long as the test takes
		l.deliveries, l.perAddress, l.slack, l.read, l.write = 3, 2, time.Hour, time.Hour, time.Hour
	})
	for range 2 {
		b.beginDelivery(body)
	}
	if code, _ := b.send("POST", "/webhooks/github", header(secret, body), strings.NewReader(body)); code != 503 {
		t.Errorf("a third delivery of this address: code %d, want 503", code)
	}
	if !b.server.hooks.slots.take("192.0.2.1") {
		t.Error("another address finds no slot")
	}
	b.server.hooks.slots.release("192.0.2.1")
	unsigned := header(secret, body)
	unsigned.Del("X-Hub-Signature-256")
	if code, _ := b.send("POST", "/webhooks/github", unsigned, strings.NewReader(body)); code != 401 {
		t.Errorf("an unsigned delivery while there is no slot: code %d, want 401", code)
	}

	b = newEnv(t, func(l *limits) { // only the slack ends them while the test runs
		l.deliveries, l.perAddress, l.slack, l.read, l.write = 3, 2, 300*time.Millisecond, time.Hour, time.Hour
	})
	var open []slow
	for range 2 {
		open = append(open, b.beginDelivery(body))
	}
	began := time.Now()
	for _, s := range open {
		if resp := s.response(t); resp.StatusCode != 408 {
			t.Errorf("a sender of nothing: code %d, want 408", resp.StatusCode)
		}
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("disconnected after %s", took)
	}
	if code, _ := b.send("POST", "/webhooks/github", header(secret, body), strings.NewReader(body)); code != 202 {
		t.Errorf("after the disconnection: code %d, want 202", code)
	}
}

// timed is a response to a request whose body is read from a connection.
type timed struct {
	http.ResponseWriter
	conn net.Conn
}

// SetReadDeadline is called by http.ResponseController.
func (w timed) SetReadDeadline(at time.Time) error { return w.conn.SetReadDeadline(at) }

// TestMinimumRate: a sender below the minimal rate is cut off; one above it is not, however long
// it takes. The clock is that of a bubble: on a busy machine no sender is slower than it says.
func TestMinimumRate(t *testing.T) {
	for name, tc := range map[string]struct {
		piece int // bytes every 50 ms
		want  error
	}{"too slow": {20, os.ErrDeadlineExceeded}, "quick enough": {200, nil}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := defaultLimits()
				l.rate, l.slack = 1000, 400*time.Millisecond
				conn, sender := net.Pipe()
				var sending sync.WaitGroup
				defer sending.Wait()
				defer conn.Close()
				sending.Go(func() {
					defer sender.Close()
					for sent := 0; sent < 3000; sent += tc.piece {
						if _, err := sender.Write(make([]byte, tc.piece)); err != nil {
							return // cut off
						}
						time.Sleep(50 * time.Millisecond)
					}
				})
				d := newHooks(Config{}, l).newDelivery(timed{conn: conn}, httptest.NewRequest(http.MethodPost, "/webhooks/github", conn))
				began := time.Now()
				_, err := io.ReadAll(d)
				d.end(err == nil)
				if took := time.Since(began); !errors.Is(err, tc.want) || took <= l.slack {
					t.Errorf("read for %s: %v, want %v after the slack", took, err, tc.want)
				}
			})
		})
	}
}

func TestAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "[::ffff:192.0.2.1]:99": "192.0.2.1", "[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "[fe80::1%eth0]:80": "fe80::/64", "pipe": "pipe",
	} {
		if got := addressOf(remote); got != want {
			t.Errorf("%s is of %s, want %s", remote, got, want)
		}
	}
}
