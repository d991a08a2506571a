package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"gopkg.in/yaml.v3"
)

// sample is a file of the importer's testdata: what another tool deploys from a checkout, and
// what a person expects of the import.
type sample struct {
	dir      string // files to import; the checkout is in its directory repo
	inputs   []string
	args     []string
	want     map[string]string // files by path in the checkout
	findings []string
}

// readSample writes a sample's files into a new directory.
func readSample(t *testing.T, path string) sample {
	t.Helper()
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sample{dir: t.TempDir(), want: map[string]string{}}
	for _, f := range archive.Files {
		text := string(f.Data)
		name, wanted := strings.CutPrefix(f.Name, "want/")
		switch {
		case wanted:
			s.want[name] = text
			continue
		case strings.HasPrefix(f.Name, "live/"), strings.HasPrefix(f.Name, "charts/"):
			continue // for the takeover in package app
		case f.Name == "findings":
			s.findings = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
			continue
		case f.Name == "args":
			s.args = strings.Fields(text)
			continue
		case !strings.HasPrefix(f.Name, "repo/"):
			s.inputs = append(s.inputs, filepath.Join(s.dir, f.Name))
		}
		to := filepath.Join(s.dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, f.Data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.inputs) == 0 || len(s.findings) == 0 {
		t.Fatalf("%s has no documents or no findings", path)
	}
	return s
}

// repo returns the checkout.
func (s sample) repo() string { return filepath.Join(s.dir, "repo") }

// files returns the files of a directory by their path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		out[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestImportSamples imports each sample: the written files and the findings are those that a
// person wrote down, and what is written has no problem for piped check.
func TestImportSamples(t *testing.T) {
	for tool, least := range map[string]int{"argocd": 20, "flux": 20} {
		paths, err := filepath.Glob("../../importer/testdata/" + tool + "/*.txtar")
		if err != nil || len(paths) < least {
			t.Fatalf("%d samples of %s, %v; want %d", len(paths), tool, err, least)
		}
		for _, path := range paths {
			t.Run(tool+"/"+strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
				s := readSample(t, path)
				s.compare(t)
			})
		}
	}
}

// compare imports a sample and compares the results.
func (s sample) compare(t *testing.T) {
	before := files(t, s.repo())
	var stdout, stderr bytes.Buffer
	args := append([]string{"import", "--repo-dir", s.repo()}, append(s.args, s.inputs...)...)
	code := run(t.Context(), args, &stdout, &stderr)
	if wantCode := map[bool]int{false: 0, true: 1}[len(s.want) == 0]; code != wantCode {
		t.Errorf("exit code %d, want %d\n%s%s", code, wantCode, stdout.String(), stderr.String())
	}
	after := files(t, s.repo())
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s is changed", name)
		}
		delete(after, name)
	}
	if diff := cmp.Diff(values(t, s.want), values(t, after)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	s.compareFindings(t, stdout.String())
	if len(after) > 0 && !strings.Contains(stdout.String(), "\n  takeover\n") {
		t.Errorf("there is no plan:\n%s", stdout.String())
	}
	if len(after) > 0 {
		var checked bytes.Buffer
		if code := run(t.Context(), []string{"check", "--strict", s.repo()}, &checked, &stderr); code != 0 {
			t.Errorf("piped check: %d\n%s", code, checked.String())
		}
	}
}

// values returns files as what their YAML says, and others as texts.
func values(t *testing.T, files map[string]string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for name, text := range files {
		out[name] = text
		if filepath.Ext(name) == ".yaml" {
			var v any
			if err := yaml.Unmarshal([]byte(text), &v); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			out[name] = v
		}
	}
	return out
}

// compareFindings compares the findings that are printed with the expected ones: each has its
// severity and path, and contains its text.
func (s sample) compareFindings(t *testing.T, printed string) {
	t.Helper()
	titles := map[string]string{"  why it is not written": "block", "  cannot be expressed": "lost", "  belongs into the configuration of the agent": "agent"}
	var got []string
	severity := ""
	for line := range strings.Lines(printed) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "    ") {
			severity = titles[line]
		} else if severity != "" {
			got = append(got, severity+" "+strings.TrimSpace(line))
		}
	}
	for _, want := range s.findings {
		kind, rest, _ := strings.Cut(want, " ")
		path, text, _ := strings.Cut(rest, ": ")
		if path != "" {
			path = ": " + path + ": "
		}
		i := slices.IndexFunc(got, func(g string) bool {
			return strings.HasPrefix(g, kind+" ") && strings.Contains(g, path) && strings.Contains(g, text)
		})
		if i < 0 {
			t.Errorf("%q is not among the findings:\n%s", want, strings.Join(got, "\n"))
			continue
		}
		got = slices.Delete(got, i, i+1)
	}
	if len(got) > 0 {
		t.Errorf("unexpected findings:\n%s\nin\n%s", strings.Join(got, "\n"), fmt.Sprint(printed))
	}
}
