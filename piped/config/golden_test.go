package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// report is what the golden files hold: the error or the warnings.
func report(warnings []string, err error) string {
	if err != nil {
		return fmt.Sprintf("%s:\n%s\n", deploy.KindOf(err), err)
	}
	return strings.Join(append([]string{"valid"}, warnings...), "\n") + "\n"
}

func TestGoldenApplications(t *testing.T) {
	golden(t, "application", func(data []byte) string {
		app, err := ParseApplication("app.pipecd.yaml", data)
		if err != nil {
			return report(nil, err)
		}
		return report(app.Warnings, nil)
	})
}

func TestGoldenPiped(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	golden(t, "piped", func(data []byte) string {
		_, warnings, err := ParsePiped("/etc/piped/piped.yaml", data)
		return report(warnings, err)
	})
}

// golden compares parse's report of each case with the file beside it. A case
// is valid exactly when its name says so.
func golden(t *testing.T, folder string, parse func([]byte) string) {
	cases, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases in %s: %v", folder, err)
	}
	for _, file := range cases {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := parse(data)
			if valid := strings.HasPrefix(got, "valid\n"); valid != strings.HasPrefix(name, "valid-") {
				t.Errorf("the name of the case and its outcome differ:\n%s", got)
			}
			if strings.Contains(got, "hunter2") || strings.Contains(got, "aHVudGVyMg") {
				t.Errorf("a secret is shown:\n%s", got)
			}
			want := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				if err := os.WriteFile(want, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			text, err := os.ReadFile(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(text), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOversizedFilesAreRefused(t *testing.T) {
	data := []byte("# " + strings.Repeat("x", 1<<20))
	_, err := ParseApplication("app.pipecd.yaml", data)
	if want := "app.pipecd.yaml: the file has 1048578 bytes; expected at most 1048576"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, _, err := ParsePiped("piped.yaml", data); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want an error of kind invalid", err)
	}
}

func TestUnsupportedKindsCanBeTold(t *testing.T) {
	for _, name := range []string{"unsupported-kind-terraform", "unsupported-plugin-terraform"} {
		data, err := os.ReadFile("testdata/application/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, err = ParseApplication("app.pipecd.yaml", data)
		var unsupported *UnsupportedKind
		if !errors.As(err, &unsupported) {
			t.Errorf("%s: got %v, want an UnsupportedKind", name, err)
		}
	}
}
