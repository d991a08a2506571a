package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

func TestGitHosts(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	p := parsePiped(t, filepath.Join(dir, "piped.yaml"), pipedHead+`
  gitHosts:
    - {host: github.com, type: GITHUB, tokenFile: token}
    - {host: ghe.example.com, type: GITHUB, token: a}
    - {host: gitlab.example.com, type: GITLAB, token: b}
    - {host: gitea.example.com, type: GITEA, token: c}
    - {host: other.example.com, type: GITEA, apiURL: "http://127.0.0.1:3000/api/v1/", token: d}
`)
	want := []string{"https://api.github.com", "https://ghe.example.com/api/v3", "https://gitlab.example.com/api/v4", "https://gitea.example.com/api/v1", "http://127.0.0.1:3000/api/v1"}
	for i, h := range p.GitHosts {
		if h.APIURL != want[i] {
			t.Errorf("API of %s: %s, want %s", h.Host, h.APIURL, want[i])
		}
	}
	if got := p.Files(); len(got) != 1 || got[0] != token {
		t.Errorf("files: %v, want %s", got, token)
	}
	load := func(content string) (strict.Secret, error) {
		t.Helper()
		if err := os.WriteFile(token, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p.GitHosts[0].Load()
	}
	if _, err := p.GitHosts[0].Load(); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("a file that is not there: %v", err)
	}
	if _, err := load(" \n"); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "is empty") {
		t.Errorf("an empty file: %v", err)
	}
	if got, err := load("secret\n"); err != nil || got.Reveal() != "secret" {
		t.Errorf("a file: %v", err)
	}
	if got, err := p.GitHosts[1].Load(); err != nil || got.Reveal() != "a" {
		t.Errorf("a text: %v", err)
	}
}
