package forward

import (
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds each read of a test.
const patience = time.Minute

// echo answers each connection with a name and what was received until its end.
func echo(t *testing.T, name string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				data, _ := io.ReadAll(conn)
				_, _ = io.WriteString(conn, name+": "+string(data))
			}()
		}
	}()
	return l.Addr().String()
}

func started(t *testing.T, connections int) *Forwarder {
	t.Helper()
	f, err := listen("127.0.0.1:0", slog.New(slog.DiscardHandler), connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func dial(t *testing.T, f *Forwarder) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// answer sends a text with its end, and returns what comes back.
func answer(t *testing.T, conn *net.TCPConn, text string) string {
	t.Helper()
	_, _ = io.WriteString(conn, text) // it may be closed
	_ = conn.CloseWrite()
	data, _ := io.ReadAll(conn)
	return string(data)
}

// TestForward: bytes and the end of each direction are passed on. Connections end with their
// target, and without one, or where it leads back, at once.
func TestForward(t *testing.T) {
	f := started(t, maxConnections)
	if got := answer(t, dial(t, f), "x"); got != "" {
		t.Errorf("without a target: %q", got)
	}
	f.SetTarget(echo(t, "first"))
	kept := dial(t, f)
	long := strings.Repeat("long", 1<<20)
	if got := answer(t, dial(t, f), long); got != "first: "+long {
		t.Errorf("got %d bytes, want %d", len(got), len(long)+7)
	}
	f.SetTarget(echo(t, "second"))
	if got := answer(t, dial(t, f), "x"); got != "second: x" {
		t.Errorf("got %q", got)
	}
	if got := answer(t, kept, "y"); got != "" {
		t.Errorf("the connection from before: %q", got)
	}
	f.SetTarget(f.Addr())
	if got := answer(t, dial(t, f), "x"); got != "" {
		t.Errorf("to itself: %q", got)
	}
	f.SetTarget("127.0.0.1:1")
	if got := answer(t, dial(t, f), "x"); got != "" {
		t.Errorf("to an address without a listener: %q", got)
	}
}

// TestClose: Close ends connections that do nothing, and frees the address.
func TestClose(t *testing.T) {
	f := started(t, maxConnections)
	f.SetTarget(echo(t, "agent"))
	conn := dial(t, f)
	if _, err := io.WriteString(conn, "x"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if data, err := io.ReadAll(conn); len(data) > 0 {
		t.Errorf("received %q, %v", data, err)
	}
	l, err := net.Listen("tcp", f.Addr())
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// TestLimit: a connection too many is closed, and one that ends makes room.
func TestLimit(t *testing.T) {
	f := started(t, 1)
	f.SetTarget(echo(t, "agent"))
	first := dial(t, f)
	if _, err := io.WriteString(first, "x"); err != nil {
		t.Fatal(err)
	}
	for len(f.slots) == 0 {
		time.Sleep(time.Millisecond)
	}
	if got := answer(t, dial(t, f), "y"); got != "" {
		t.Errorf("a connection too many: %q", got)
	}
	if got := answer(t, first, ""); got != "agent: x" {
		t.Errorf("the first: %q", got)
	}
	for end := time.Now().Add(patience); answer(t, dial(t, f), "z") != "agent: z"; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no room after the end of the first")
		}
	}
}
