package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/c785c783/piped/examples/release/build"
)

// checkout is a work tree of a small project with programs where this one has them.
type checkout string

func newCheckout(t *testing.T, subjects ...string) checkout {
	t.Helper()
	c := checkout(t.TempDir())
	for _, name := range []string{agent, client} {
		c.write(t, "piped/cmd/"+name+"/main.go", "package main\n\nvar version, commit string\n\nfunc main() { println(version, commit) }\n")
	}
	for _, name := range []string{"go.mod", "go.sum"} { // they name what the image takes from modules
		text, err := os.ReadFile(filepath.Join(moduleRoot, name))
		if err != nil {
			t.Fatal(err)
		}
		c.write(t, name, string(text))
	}
	c.git(t, "init", "--quiet")
	c.git(t, "add", ".")
	for _, subject := range subjects {
		c.commit(t, subject)
	}
	return c
}

func (c checkout) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(string(c), name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func (c checkout) git(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
	const date = "1795000000 +0000"
	cmd.Dir, cmd.Env = string(c), append(os.Environ(), "GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func (c checkout) commit(t *testing.T, subject string) {
	t.Helper()
	c.git(t, "commit", "--quiet", "--allow-empty", "--message", subject)
}

func (c checkout) source(t *testing.T, version string) build.Source {
	t.Helper()
	source, err := build.ReadSource(t.Context(), string(c), version)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestVersions(t *testing.T) {
	for version, good := range map[string]bool{
		"v1.2.3": true, "v0.1.0-rc.1": true, "1.2.3": false, "v1.2": false, "v1.2.3+x": false, "v01.2.3": false, "7e230e43-dirty": false, "": false,
	} {
		if err := checkVersion(version); (err == nil) != good {
			t.Errorf("%q: %v", version, err)
		}
	}
}

// A release is made of a commit, not of a work tree that differs, and not of a commit
// whose version is another's.
func TestCheckout(t *testing.T) {
	c := newCheckout(t, "Begin")
	check := func(version, want string) {
		t.Helper()
		err := checkCheckout(t.Context(), c.source(t, version))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", version, err, want)
		}
	}
	check("v1.0.0", "")
	c.git(t, "tag", "v1.0.0")
	c.git(t, "tag", "--annotate", "--message", "a release", "v1.0.1")
	check("v1.0.0", "")
	check("v1.0.1", "")
	c.commit(t, "Go on")
	check("v1.0.0", "is of another commit")
	check("v1.0.1", "is of another commit")
	check("v1.1.0", "")
	c.write(t, "new", "file")
	check("v1.1.0", "new")
	shallow := checkout(t.TempDir())
	shallow.git(t, "clone", "--quiet", "--depth=1", "file://"+string(c), ".")
	c = shallow
	check("v1.1.0", "--unshallow")
}

func TestReleaseNotes(t *testing.T) {
	c := newCheckout(t, "Begin", "store: add rows")
	notes := func(version string) string {
		t.Helper()
		text, err := releaseNotes(t.Context(), c.source(t, version))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := notes("v1.0.0"); !strings.Contains(got, "2 commits since the beginning") || !strings.Contains(got, "## store\n\n* add rows (") {
		t.Errorf("the first release:\n%s", got)
	}
	c.git(t, "tag", "v1.0.0")
	c.commit(t, "page, store: show <rows>")
	c.git(t, "tag", "v1.1.0-rc.1")
	c.git(t, "tag", "v9.9.9-not.a+version")
	c.commit(t, "Repair a test: it was slow")
	want := []string{
		"# piped v1.1.0", "", "2 commits since v1.0.0. What an upgrade may change: docs/releases.md.", "",
		"## general", "", "* Repair a test: it was slow (HASH)", "", "## page, store", "", "* show &lt;rows> (HASH)", "",
	}
	var got []string
	for line := range strings.SplitSeq(notes("v1.1.0"), "\n") {
		if i := strings.LastIndex(line, "("); i >= 0 {
			line = line[:i] + "(HASH)"
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if got := notes("v1.1.0-rc.2"); !strings.Contains(got, "1 commits since v1.1.0-rc.1") {
		t.Errorf("the second candidate:\n%s", got)
	}
}

// Helm reads the packed chart, which has the version of the release.
func TestChart(t *testing.T) {
	c := newCheckout(t, "Begin")
	if err := os.CopyFS(filepath.Join(string(c), chartDir), os.DirFS("testdata/chart")); err != nil {
		t.Fatal(err)
	}
	r := release{source: c.source(t, "v1.2.0-rc.1"), dir: t.TempDir(), stdout: &bytes.Buffer{}}
	if err := r.chart(); err != nil {
		t.Fatal(err)
	}
	packed, err := loader.LoadFile(filepath.Join(r.dir, "small-1.2.0-rc.1.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := packed.Validate(); err != nil {
		t.Error(err)
	}
	got := []string{packed.Metadata.Name, packed.Metadata.Version, packed.Metadata.AppVersion}
	if diff := cmp.Diff([]string{"small", "1.2.0-rc.1", "v1.2.0-rc.1"}, got); diff != "" {
		t.Errorf("chart (-want +got):\n%s", diff)
	}
	if len(packed.Templates) != 1 || len(packed.Values) != 1 {
		t.Errorf("the chart has %d templates and %d values", len(packed.Templates), len(packed.Values))
	}
	c.write(t, chartDir+"/Chart.yaml", "name: small\n")
	if err := r.chart(); err == nil {
		t.Error("a chart without a version is packed")
	}
}
