package pipectl_test

import (
	"io"
	"net"
	"strings"
	gosync "sync"
	"testing"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/pipectl"
)

// wire is a proxy to an agent whose connections can be cut.
type wire struct {
	listener net.Listener
	to       string

	mu    gosync.Mutex
	conns []net.Conn
	done  gosync.WaitGroup
}

func wireTo(t *testing.T, agent *controltest.Agent) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: listener, to: agent.Server.Addr()}
	w.done.Go(w.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		w.cut()
		w.done.Wait()
	})
	return w
}

func (w *wire) accept() {
	for {
		from, err := w.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", w.to)
		if err != nil {
			_ = from.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, from, to)
		w.mu.Unlock()
		w.done.Go(func() { carry(from, to) })
		w.done.Go(func() { carry(to, from) })
	}
}

// carry copies until one side ends, and closes both.
func carry(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_, _ = from.Close(), to.Close()
}

// cut closes every connection.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

// onText is an output that runs steps when their texts are written.
type onText struct {
	mu   gosync.Mutex
	buf  strings.Builder
	then []func(written string) bool // only the first is checked; true removes it
}

func (o *onText) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if len(o.then) > 0 && o.then[0](o.buf.String()) {
		o.then = o.then[1:]
	}
	return len(p), nil
}

// when returns a step that runs do when text is written.
func when(text string, do func()) func(string) bool {
	return func(written string) bool {
		if !strings.Contains(written, text) {
			return false
		}
		do()
		return true
	}
}

// TestFollowedLogsOverABrokenConnection: followed logs resume after a broken connection
// without lost or repeated entries.
func TestFollowedLogsOverABrokenConnection(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Running, "")
	agent.Log("d1", controltest.SyncStage, "first", "second")
	w := wireTo(t, agent)
	var stderr strings.Builder
	out := &onText{then: []func(string) bool{
		when("second", func() {
			w.cut()
			third := deploy.LogBlock{DeploymentID: "d1", StageID: controltest.SyncStage, Index: 2, Severity: deploy.SeverityInfo, Log: "third", At: controltest.Epoch}
			if err := agent.Store.AppendStageLogs(t.Context(), []deploy.LogBlock{third}); err != nil {
				t.Error(err)
			}
		}),
		when("third", func() {
			w.cut()
			agent.Move("d1", deploy.Success, "good")
		}),
	}}
	code := pipectl.Run(t.Context(), []string{"deployment", "logs", "--deployment-id=d1", "--follow", "--insecure", "--address", w.listener.Addr().String(),
		"--api-key", agent.ReadOnly}, strings.NewReader(""), out, &stderr)
	if code != 0 {
		t.Errorf("exit code %d, stderr %s", code, stderr.String())
	}
	for _, text := range []string{"K8S_SYNC  first\n", "K8S_SYNC  second\n", "K8S_SYNC  third\n"} {
		if n := strings.Count(out.buf.String(), text); n != 1 {
			t.Errorf("%q is there %d times in\n%s", text, n, out.buf.String())
		}
	}
	if n := strings.Count(stderr.String(), "The connection to the agent broke, trying again..."); n != 2 {
		t.Errorf("stderr reports %d breaks, want 2: %s", n, stderr.String())
	}
}

// TestWatchOverABrokenConnection: watching a deployment resumes after a broken
// connection.
func TestWatchOverABrokenConnection(t *testing.T) {
	agent := controltest.Start(t, t.TempDir())
	agent.Deployment("d1", agent.Application("web", nil), "")
	w := wireTo(t, agent)
	var stderr strings.Builder
	out := &onText{then: []func(string) bool{
		when("PENDING", func() {
			w.cut()
			agent.Move("d1", deploy.Running, "")
		}),
		when("RUNNING", func() {
			w.cut()
			agent.Move("d1", deploy.Success, "good")
		}),
	}}
	code := pipectl.Run(t.Context(), []string{"deployment", "watch", "--deployment-id=d1", "--insecure", "--address", w.listener.Addr().String(),
		"--api-key", agent.ReadOnly}, strings.NewReader(""), out, &stderr)
	if got := out.buf.String(); code != 0 || strings.Count(got, "is PENDING") != 1 || strings.Count(got, "is SUCCESS\n") != 1 {
		t.Errorf("exit code %d, stderr %s, stdout\n%s", code, stderr.String(), got)
	}
}
