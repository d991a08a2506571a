package app

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestPushWebhookWakesTheAgent: a signed delivery leads to a deployment although the
// branch is polled once an hour; one with a wrong signature does not; a changed secret
// takes effect at once.
func TestPushWebhookWakesTheAgent(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{})
	secret := filepath.Join(t.TempDir(), "secret")
	replaceFile(t, secret, "first\n")
	agent := runReloading(t, spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": server.URL}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: fmt.Sprintf("  syncInterval: 1h\n  webhooks: [{name: github, type: GITHUB, secretFile: %s}]\n", secret),
	}, 10*time.Millisecond)
	deliver := func(secret string, want int) {
		t.Helper()
		payload := fmt.Sprintf(`{"ref": "refs/heads/main", "after": %q, "repository": {"clone_url": %q}}`, repo.Head(), server.URL)
		if got := post(t, "http://"+agent.app.WebAddr()+"/webhooks/github", "push", payload, secret); got != want {
			t.Fatalf("a delivery signed with %q is answered %d, want %d", secret, got, want)
		}
	}

	deliver("guessed", http.StatusUnauthorized)
	commit := repo.Push(t, "add web", webApp(ns, "v1", ""))
	deliver("first", http.StatusAccepted)
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	replaceFile(t, secret, "second\n")
	agent.awaitLog(inEffect, "changed=webhooks")
	deliver("first", http.StatusUnauthorized)
	commit = repo.Push(t, "web v2", webApp(ns, "v2", ""))
	deliver("second", http.StatusAccepted)
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// post sends an event as GitHub does and returns the status code.
func post(t *testing.T, url, event, payload, secret string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewBufferString(payload))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(payload))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-GitHub-Event", event)
	req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
