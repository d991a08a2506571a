package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// runIn executes a command line in a work tree.
func runIn(t *testing.T, c checkout, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Chdir(string(c))
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

// The command image writes the image for both architectures, and pushes it where it is
// asked to.
func TestImageCommand(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // no credentials of this machine
	to, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/team/piped:latest")
	if err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := runIn(t, newCheckout(t, "Begin"), "-version", "v1.2.0", "-push", to.Name(), "image")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	for _, file := range []string{"dist/image/index.json", "dist/piped_v1.2.0_linux_amd64_image.tar", "dist/piped_v1.2.0_linux_arm64_image.tar"} {
		if info, err := os.Stat(file); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	pushed, err := remote.Index(to)
	if err != nil {
		t.Fatal(err)
	}
	digest, err := pushed.Digest()
	if err != nil || !strings.Contains(stdout, filepath.Join("dist", layoutDir)+"  "+digest.String()) {
		t.Errorf("the registry has %s: %v; printed:\n%s", digest, err, stdout)
	}
}

// What cannot be made is refused, with the reason.
func TestRefusals(t *testing.T) {
	c := newCheckout(t, "Begin")
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"image"}, 2, "usage"},
		{[]string{"-version", "v1.2.0"}, 2, "usage"},
		{[]string{"-version", "v1.2.0", "everything"}, 2, "usage"},
		{[]string{"-version", "7e230e4", "all"}, 1, "no version"},
		{[]string{"-version", "v1.2.0", "-push", "127.0.0.1:1/piped", "all"}, 1, "pushes nothing"},
	} {
		if code, _, stderr := runIn(t, c, test.args...); code != test.code || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: exit code %d, %s", test.args, code, stderr)
		}
	}
	c.write(t, "changed", "text")
	if code, _, stderr := runIn(t, c, "-version", "v1.2.0", "all"); code != 1 || !strings.Contains(stderr, "changed") {
		t.Errorf("a work tree that differs: exit code %d, %s", code, stderr)
	}
	if code, _, stderr := runIn(t, c, "-version", "v1.2.0", "-push", "127.0.0.1:1/piped", "image"); code != 1 || !strings.Contains(stderr, "differs from its commit") {
		t.Errorf("a push of a work tree that differs: exit code %d, %s", code, stderr)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if code, _, stderr := runIn(t, c, "-version", "v1.2.0", "image"); code != 1 || !strings.Contains(stderr, "SOURCE_DATE_EPOCH") {
		t.Errorf("a time that is none: exit code %d, %s", code, stderr)
	}
}

// TestDirtyVersions: the version says that it is of no commit, once.
func TestDirtyVersions(t *testing.T) {
	for version, want := range map[string]string{"v1.2.0": "v1.2.0-dirty", "7e230e4-dirty": "7e230e4-dirty"} {
		if got := marked(version); got != want {
			t.Errorf("%s: %s", version, got)
		}
	}
}
