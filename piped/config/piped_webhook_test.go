package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

func TestWebhookSecretIsReadFromItsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	for content, want := range map[string]string{"hunter2": "hunter2", "hunter2\n": "hunter2", " hunter 2\r\n\n": " hunter 2"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := (Webhook{Name: "x", SecretFile: file}).Load(); err != nil || got.Reveal() != want {
			t.Errorf("%q: got %q, %v, want %q", content, got.Reveal(), err, want)
		}
	}
	if got, err := (Webhook{Name: "x", Secret: strict.NewSecret("own")}).Load(); err != nil || got.Reveal() != "own" {
		t.Errorf("got %q, %v, want the configuration's own secret", got.Reveal(), err)
	}
}

func TestWebhookSecretFileThatGivesNoSecretIsRefused(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, []byte(" \n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{empty: "is empty", filepath.Join(folder, "none"): "no such file"} {
		secret, err := Webhook{Name: "github", SecretFile: file}.Load()
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "webhook github: ") ||
			!strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error of kind invalid that says it %s", file, err, want)
		}
		if !secret.IsEmpty() {
			t.Errorf("%s: got a secret with the error", file)
		}
	}
}

func TestFilesAreThoseTheConfigurationNames(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	if got := parsePiped(t, "piped.yaml", pipedHead+"  {}\n").Files(); len(got) > 0 {
		t.Errorf("got %q of a configuration that names none", got)
	}
	got := parsePiped(t, "/etc/piped/piped.yaml", pipedHead+`
  dataDir: data
  api: {tlsCertFile: tls.crt, tlsKeyFile: tls.key}
  web: {tlsCertFile: web.crt, tlsKeyFile: web.key, clientCAFile: web-clients.crt}
  git: {sshKeyFile: ~/.ssh/id, knownHostsFile: /etc/known}
  webhooks:
    - {name: a, type: GITHUB, secretFile: hook}
    - {name: b, type: GITLAB, secretFile: hook}
    - {name: c, type: GITLAB, secret: own}
  platformProviders:
    - {name: dev, type: KUBERNETES, config: {kubeConfigPath: kube/dev}}
    - {name: here, type: KUBERNETES}
`).Files()
	want := []string{"/etc/known", "/etc/piped/hook", "/etc/piped/kube/dev", "/etc/piped/tls.crt", "/etc/piped/tls.key",
		"/etc/piped/web-clients.crt", "/etc/piped/web.crt", "/etc/piped/web.key", "/home/someone/.ssh/id"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
