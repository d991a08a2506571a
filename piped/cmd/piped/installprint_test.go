package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/manifest"
)

// TestInstallPrints: the manifests are on the standard output and nothing else, in an order in which
// kubectl applies them, and need no cluster. Parts without secrets have none.
func TestInstallPrints(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	private, public, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	key := write("id", string(private))
	hosts := write("known_hosts", "git.example.com "+string(ssh.MarshalAuthorizedKey(public)))
	all := []string{"install", "--repo", "git@git.example.com:team/apps.git", "--image", "registry.example/piped:v1", "--ssh-key-file", key, "--known-hosts-file", hosts,
		"--postgres", "postgres://me@db/piped", "--postgres-password-file", write("password", "s3cret\n")}
	printed := func(code int, args ...string) (kinds []string, stdout, stderr string) {
		t.Helper()
		var out, messages bytes.Buffer
		if got := run(t.Context(), slices.Concat(all, args), &out, &messages); got != code {
			t.Fatalf("exit code %d\n%s", got, messages.String())
		}
		objects, err := manifest.Parse("stdout", out.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			kinds = append(kinds, o.GetKind())
			if data, is, _ := unstructured.NestedString(o.Object, "data", "pgpass"); is && data != "ZGI6NTQzMjpwaXBlZDptZTpzM2NyZXQK" { // base64 of db:5432:piped:me:s3cret
				t.Errorf("the password file is %s", data)
			}
		}
		return kinds, out.String(), messages.String()
	}
	kinds, stdout, stderr := printed(0)
	if !slices.Equal(kinds[:5], []string{"Namespace", "Secret", "Secret", "Secret", "ServiceAccount"}) || kinds[len(kinds)-1] != "Deployment" {
		t.Errorf("the order is %q", kinds)
	}
	if line := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))); !strings.Contains(stderr, line) || !strings.Contains(stderr, "keep it out of Git") || strings.Contains(stderr+stdout, "s3cret") {
		t.Errorf("said %s", stderr)
	}
	kinds, _, stderr = printed(0, "--only", "permissions,agent")
	if slices.Contains(kinds, "Secret") || slices.Contains(kinds, "Namespace") || !slices.Contains(kinds, "ClusterRole") || stderr != "" {
		t.Errorf("without secrets: %q, %q", kinds, stderr)
	}
	http := []string{"--repo", "https://git.example.com/team/apps.git", "--ssh-key-file", "", "--known-hosts-file", "", "--postgres", "", "--postgres-password-file", ""}
	if _, _, stderr := printed(1, append(http, "--git-username", "ci")...); !strings.Contains(stderr, "--git-password-file is missing") {
		t.Errorf("a user without password: %s", stderr)
	}
	if _, _, stderr := printed(1, append(http, "--git-password-file", write("empty", "\n"))...); !strings.Contains(stderr, "is empty") {
		t.Errorf("an empty password: %s", stderr)
	}
	if kinds, stdout, stderr := printed(0, append(http, "--git-password-file", write("token", "t0ken\n"))...); !slices.Equal(kinds[:2], []string{"Namespace", "Secret"}) ||
		!strings.Contains(stdout, "password: dDBrZW4=") || !strings.Contains(stdout, "username: piped") || strings.Contains(stdout+stderr, "t0ken") {
		t.Errorf("a repository over HTTP: %q\n%s%s", kinds, stdout, stderr)
	}
	if _, _, stderr := printed(1, "--only", "everything"); !strings.Contains(stderr, "use secrets, permissions or agent") {
		t.Errorf("an unknown part: %s", stderr)
	}
}
