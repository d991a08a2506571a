package app

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHTTPAPIOfAnAgent: the web address serves the API with the owner key, and an agent that
// stops ends its streams with an error that says what to do.
func TestHTTPAPIOfAnAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := filepath.Join(t.TempDir(), "piped.yaml")
	replaceFile(t, config, spec{dataDir: dir}.text(t.Name()))
	cfg, _, err := Kinds().LoadPiped(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	agent, err := New(ctx, cfg, Options{Logger: testLogger(t), LeaseEvery: -1})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	key, err := os.ReadFile(filepath.Join(dir, ownerKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+agent.WebAddr()+"/api/v1/piped.control.v1.ControlService/WatchDeployments", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"API-KEY " + strings.TrimSpace(string(key))}}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || !strings.Contains(strings.ReplaceAll(lines.Text(), " ", ""), `"caughtUp":true`) {
		t.Fatalf("%s %s", resp.Status, lines.Text())
	}
	stop()
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), `{"error":{"code":"unavailable","message":"the agent is shutting down`) {
		t.Errorf("the last line is %q, %v", lines.Text(), lines.Err())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
