package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/importer"
)

// TestImportKeepsFiles: nothing is written if one of the files exists, unless that is forced.
func TestImportKeepsFiles(t *testing.T) {
	s := readSample(t, "../../importer/testdata/argocd/sources-directories.txtar")
	own := filepath.Join(s.repo(), "web", "app.pipecd.yaml")
	if err := os.WriteFile(own, []byte("own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flag     string
		code     int
		web, api bool // whether they are written
		problem  string
	}{
		{"", 1, false, false, "exists, and is not overwritten without --force"},
		{"--dry-run", 0, false, false, ""},
		{"--force", 0, true, true, ""},
	} {
		args := append([]string{"import", "--repo-dir", s.repo()}, s.inputs...)
		if c.flag != "" {
			args = append(args, c.flag)
		}
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.problem) {
			t.Errorf("%s: exit code %d, %q", c.flag, code, stderr.String())
		}
		after := files(t, s.repo())
		if (after["web/app.pipecd.yaml"] != "own\n") != c.web || (after["api/app.pipecd.yaml"] != "") != c.api {
			t.Errorf("%s: %q, %q", c.flag, after["web/app.pipecd.yaml"], after["api/app.pipecd.yaml"])
		}
		if c.flag == "--dry-run" && !strings.Contains(stdout.String(), "--- api/app.pipecd.yaml\n# From Application argocd/shop") {
			t.Errorf("a dry run prints %s", stdout.String())
		}
	}
}

// TestImportShowsNoCredentials: a remote may have a password.
func TestImportShowsNoCredentials(t *testing.T) {
	s := readSample(t, "../../importer/testdata/argocd/another-repository.txtar")
	config := filepath.Join(s.repo(), ".git", "config")
	if err := os.WriteFile(config, []byte("[remote \"origin\"]\n\turl = https://ana:hunter2@git.example.com/team/apps.git\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), append([]string{"import", "--repo-dir", s.repo()}, s.inputs...), &stdout, &stderr)
	printed := stdout.String() + stderr.String()
	if code != 1 || !strings.Contains(printed, "git.example.com/team/apps") || strings.Contains(printed, "hunter2") {
		t.Errorf("exit code %d, %s", code, printed)
	}
}

// TestImportUsage refuses command lines and files without anything to import.
func TestImportUsage(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	for file, text := range map[string]string{empty: "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", broken: "{a\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args    []string
		code    int
		problem string
	}{
		{nil, 2, "name files, or use --from-cluster"},
		{[]string{"--from-cluster", empty}, 2, "name files, or use --from-cluster"},
		{[]string{empty}, 2, "there is nothing to import"},
		{[]string{filepath.Join(t.TempDir(), "none.yaml")}, 2, "no such file"},
		{[]string{broken}, 1, "broken.yaml"},
		{[]string{"--provider", "eu", empty}, 2, "expected CLUSTER=NAME"},
		{[]string{"--apps-dir", "../x", empty}, 2, "--apps-dir"},
		{[]string{"--repo-dir", "/none", empty}, 2, "--repo-dir"},
	} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), append([]string{"import"}, c.args...), &stdout, &stderr); code != c.code || !strings.Contains(stderr.String(), c.problem) {
			t.Errorf("%q: exit code %d, %q", c.args, code, stderr.String())
		}
	}
}

// TestImportOfTheDocumentation imports the Application that docs/migrate.md shows, and gets the
// configuration that it shows next to it.
func TestImportOfTheDocumentation(t *testing.T) {
	text, err := os.ReadFile("../../../docs/migrate.md")
	if err != nil {
		t.Fatal(err)
	}
	block := func(begin string) string {
		_, rest, found := strings.Cut(string(text), "```yaml\n"+begin)
		block, _, ended := strings.Cut(rest, "```")
		if !found || !ended {
			t.Fatalf("there is no block that begins with %q", begin)
		}
		return begin + block
	}
	repo := t.TempDir()
	if err := os.MkdirAll(filepath.Join(repo, "shop/web"), 0o700); err != nil {
		t.Fatal(err)
	}
	application := filepath.Join(repo, "application.yml")
	for name, text := range map[string]string{
		application: block("apiVersion: argoproj.io/v1alpha1"), filepath.Join(repo, "shop/web/web.yaml"): "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var stdout, stderr bytes.Buffer
	args := []string{"import", "--repo-dir", repo, "--provider", "https://10.0.0.1:6443=production", application}
	if code := run(t.Context(), args, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
	const name = "shop/web/app.pipecd.yaml"
	want := map[string]string{name: block("# " + name + "\n")}
	got := map[string]string{name: files(t, repo)[name]}
	if diff := cmp.Diff(values(t, want), values(t, got)); diff != "" {
		t.Errorf("(-documented +imported):\n%s", diff)
	}
}

// TestImportRefusesTwoTexts: of two texts for one file, the last would win.
func TestImportRefusesTwoTexts(t *testing.T) {
	two := func(second string) []importer.File {
		return []importer.File{{Path: "web/a.yaml", Text: []byte("a: 1\n")}, {Path: "web/a.yaml", Text: []byte(second)}}
	}
	i := &importing{importFlags: importFlags{output: t.TempDir()}}
	if err := i.write(two("a: 2\n")); err == nil || !strings.Contains(err.Error(), "web/a.yaml") {
		t.Errorf("two texts: %v", err)
	}
	if written := files(t, i.output); len(written) > 0 {
		t.Errorf("%v is written", written)
	}
	if err := i.write(two("a: 1\n")); err != nil {
		t.Errorf("one text twice: %v", err)
	}
}
