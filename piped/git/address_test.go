package git

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAddress(t *testing.T) {
	type shown struct{ Text, Commit string }
	cases := map[string]shown{
		"/srv/repo.git":                                    {"/srv/repo.git", ""},
		"file:///srv/repo.git":                             {"/srv/repo.git", ""},
		"https://github.com/org/repo.git":                  {"https://github.com/org/repo.git", "https://github.com/org/repo/commit/abc"},
		"https://github.com/org/repo":                      {"https://github.com/org/repo", "https://github.com/org/repo/commit/abc"},
		"https://github.com/org/repo/":                     {"https://github.com/org/repo/", "https://github.com/org/repo/commit/abc"},
		"https://bot:token@github.com/org/repo.git":        {"https://github.com/org/repo.git", "https://github.com/org/repo/commit/abc"},
		"https://token@github.com/org/repo.git?key=secret": {"https://github.com/org/repo.git", "https://github.com/org/repo/commit/abc"},
		"http://git.example.com:3000/org/repo.git":         {"http://git.example.com:3000/org/repo.git", "http://git.example.com:3000/org/repo/commit/abc"},
		"https://gitlab.com/group/sub/repo.git":            {"https://gitlab.com/group/sub/repo.git", "https://gitlab.com/group/sub/repo/commit/abc"},
		"https://bitbucket.org/org/repo.git":               {"https://bitbucket.org/org/repo.git", "https://bitbucket.org/org/repo/commits/abc"},
		"git@github.com:org/repo.git":                      {"ssh://git@github.com/org/repo.git", "https://github.com/org/repo/commit/abc"},
		"git@bitbucket.org:org/repo.git":                   {"ssh://git@bitbucket.org/org/repo.git", "https://bitbucket.org/org/repo/commits/abc"},
		"ssh://git@git.example.com:2222/org/repo.git":      {"ssh://git@git.example.com:2222/org/repo.git", "https://git.example.com/org/repo/commit/abc"},
		"ssh://git:secret@git.example.com/org/repo.git":    {"ssh://git@git.example.com/org/repo.git", "https://git.example.com/org/repo/commit/abc"},
		"git:secret@git.example.com:org/repo.git":          {"ssh://git@git.example.com/org/repo.git", "https://git.example.com/org/repo/commit/abc"},
		"ssh://git@[::1]:2222/repo.git":                    {"ssh://git@[::1]:2222/repo.git", "https://[::1]/repo/commit/abc"},
	}
	for remote, want := range cases {
		a, err := parseAddress(remote)
		if err != nil {
			t.Errorf("%s: %v", remote, err)
			continue
		}
		if diff := cmp.Diff(want, shown{a.text, a.commitURL("abc")}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", remote, diff)
		}
	}
}

// TestPublicRemote: a remote is shown as it is written unless it contains credentials.
func TestPublicRemote(t *testing.T) {
	for remote, want := range map[string]string{
		"/srv/repo.git":                                    "/srv/repo.git",
		"file:///srv/repo.git":                             "file:///srv/repo.git",
		"https://github.com/org/repo":                      "https://github.com/org/repo",
		"git@github.com:org/repo.git":                      "git@github.com:org/repo.git",
		"ssh://git@git.example.com:2222/org/repo.git":      "ssh://git@git.example.com:2222/org/repo.git",
		"https://bot:token@github.com/org/repo.git":        "https://github.com/org/repo.git",
		"https://token@github.com/org/repo.git?key=secret": "https://github.com/org/repo.git",
		"https://github.com/org/repo.git?key=secret":       "https://github.com/org/repo.git",
		"ssh://git:secret@git.example.com/org/repo.git":    "ssh://git@git.example.com/org/repo.git",
		"git:secret@git.example.com:org/repo.git":          "ssh://git@git.example.com/org/repo.git",
		"gopher://user:secret@git.example.com/repo.git":    "",
	} {
		if got := PublicRemote(remote); got != want {
			t.Errorf("%s is shown as %q, want %q", remote, got, want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	auth := Auth{Username: "bot", Password: "s3cret", SSHKey: "k3y"}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "auth", auth, "password", auth.Password)
	encoded, err := json.Marshal(auth)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(auth), fmt.Sprintf("%+v %#v %s %q", auth, auth, auth, auth.SSHKey), log.String(), string(encoded)} {
		if strings.Contains(text, "s3cret") || strings.Contains(text, "k3y") || !strings.Contains(text, redacted) {
			t.Errorf("shown: %s", text)
		}
	}
}
