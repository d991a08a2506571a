package config

import (
	"os"
	"path/filepath"
	"slices"
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
    - {host: other.example.com, type: GITEA, apiURL: "http://127.0.0.1:3000/api/v1/", token: d, commitStatus: false, contextPrefix: own}
    - {host: app.example.com, type: GITHUB, app: {appID: 1, privateKeyFile: key.pem}}
    - {host: app2.example.com, type: GITHUB, app: {appID: 1, privateKey: e}}
`)
	want := []string{"https://api.github.com", "https://ghe.example.com/api/v3", "https://gitlab.example.com/api/v4", "https://gitea.example.com/api/v1", "http://127.0.0.1:3000/api/v1",
		"https://app.example.com/api/v3", "https://app2.example.com/api/v3"}
	for i, h := range p.GitHosts {
		if h.APIURL != want[i] {
			t.Errorf("API of %s: %s, want %s", h.Host, h.APIURL, want[i])
		}
	}
	key := filepath.Join(dir, "key.pem")
	if got := p.Files(); !slices.Equal(got, []string{key, token}) {
		t.Errorf("files: %v, want %s and %s", got, key, token)
	}
	for i, h := range p.GitHosts {
		prefix := "piped"
		if i == 4 {
			prefix = "own"
		}
		if h.CommitStatus != (i != 4) || h.ContextPrefix != prefix || h.Deployments || h.Comments {
			t.Errorf("%s gets: %+v", h.Host, h)
		}
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
	if _, err := p.GitHosts[5].Load(); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "private key of the GitHub App") {
		t.Errorf("an App's key that is not there: %v", err)
	}
	if err := os.WriteFile(key, []byte("PEM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := p.GitHosts[5].Load(); err != nil || got.Reveal() != "PEM" {
		t.Errorf("an App's key in a file: %v", err)
	}
	if got, err := p.GitHosts[6].Load(); err != nil || got.Reveal() != "e" {
		t.Errorf("an App's key: %v", err)
	}
}
