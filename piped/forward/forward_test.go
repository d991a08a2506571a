package forward

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
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

// TestAccept: a listener of this process gets the connections, those that are passed on end, and after it
// was closed further ones are passed on again. The address stays the same.
func TestAccept(t *testing.T) {
	f := started(t, 10)
	far, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	f.SetTarget(far.Addr().String())
	passed := dial(t, f)
	arrived, err := far.Accept() // before, the near listener could get it
	if err != nil {
		t.Fatal(err)
	}
	defer arrived.Close()
	near, err := f.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Accept(); err == nil {
		t.Error("there are two listeners for one address")
	}
	if _, err := passed.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection that was passed on goes on: %v", err)
	}
	if near.Addr().String() != f.Addr() {
		t.Errorf("the address is %s, want %s", near.Addr(), f.Addr())
	}
	client := dial(t, f)
	conn, err := near.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if conn.RemoteAddr().String() != client.LocalAddr().String() {
		t.Errorf("the client is %s, want %s", conn.RemoteAddr(), client.LocalAddr())
	}
	if err := near.Close(); err != nil {
		t.Error(err)
	}
	if _, err := near.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener accepts: %v", err)
	}
	if _, err := io.WriteString(conn, "still here"); err != nil {
		t.Error(err)
	}
	conn.Close()
	if got, err := io.ReadAll(client); err != nil || string(got) != "still here" {
		t.Errorf("the accepted connection: %q, %v", got, err)
	}
	f.SetTarget(echo(t, "far"))
	again := dial(t, f)
	if _, err := io.WriteString(again, "x"); err != nil {
		t.Fatal(err)
	}
	if err := again.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(again); err != nil || string(got) != "far: x" {
		t.Errorf("after the listener was closed: %q, %v", got, err)
	}
}
