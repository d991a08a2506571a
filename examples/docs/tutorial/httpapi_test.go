package tutorial

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/web"
)

const httpPage = "../../../docs/reference/http-api.md"

// Every command of the page about the HTTP API prints what the page shows.
func TestHTTPAPI(t *testing.T) {
	text, err := os.ReadFile(httpPage)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	agent := controltest.Start(t, dir)
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Success, "done")
	agent.Log("d1", controltest.SyncStage, "Start applying 2 objects", "All objects are applied")
	key := filepath.Join(dir, "owner.key")
	if err := os.WriteFile(key, []byte(agent.ReadWrite+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	places := strings.NewReplacer("127.0.0.1:9085", serveWeb(t, agent), "/var/lib/piped/owner.key", key)
	sh, steps := startShell(t, dir, dir), parsePage(string(text))
	if len(steps) < 8 {
		t.Fatalf("found only %d steps", len(steps))
	}
	for _, s := range steps {
		printed, code := sh.run(t, places.Replace(s.command))
		if code != 0 || !matches(s.output, printed) {
			t.Errorf("http-api.md:%d: %s: exit code %d, prints\n%s\nthe page shows\n%s", s.line, s.command, code, printed, s.output)
		}
	}
}

// serveWeb serves the HTTP API as the agent does, and returns its address.
func serveWeb(t *testing.T, agent *controltest.Agent) (address string) {
	t.Helper()
	server, err := web.New(web.Config{Address: "127.0.0.1:0", API: agent.Server.Handler()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return server.Addr()
}
