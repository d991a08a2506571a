package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// kinds are the kinds that the cases are read with.
var kinds = Kinds{Kubernetes(), OpenTofu(), Terraform()}

// report is what the golden files hold: the error or the warnings.
func report(warnings []string, err error) string {
	if err != nil {
		return fmt.Sprintf("%s:\n%s\n", deploy.KindOf(err), err)
	}
	return strings.Join(append([]string{"valid"}, warnings...), "\n") + "\n"
}

func TestGoldenApplications(t *testing.T) {
	golden(t, "application", func(data []byte) string {
		app, err := kinds.ParseApplication("app.pipecd.yaml", data)
		if err != nil {
			return report(nil, err)
		}
		return report(slices.Concat(app.Warnings, app.Unread), nil)
	})
}

// TestGoldenHabitsOfPipeCD reads what PipeCD takes and is not how it should be written.
func TestGoldenHabitsOfPipeCD(t *testing.T) {
	golden(t, "pipecd", func(data []byte) string {
		app, err := kinds.ParseApplication("app.pipecd.yaml", data)
		if err != nil {
			return report(nil, err)
		}
		return report(slices.Concat(app.Warnings, app.Unread), nil)
	})
	t.Setenv("HOME", "/home/someone")
	golden(t, "pipecd-agent", func(data []byte) string {
		_, warnings, err := kinds.ParsePiped("/etc/piped/piped.yaml", data)
		return report(warnings, err)
	})
}

// TestGoldenWholeLanguage reads what the language has and this version refuses.
func TestGoldenWholeLanguage(t *testing.T) {
	golden(t, "whole", func(data []byte) string {
		app, err := readWhole(data)
		if err != nil {
			return report(nil, &deploy.Error{Kind: deploy.Invalid, Err: err})
		}
		return report(slices.Concat(app.Warnings, app.Unread), nil)
	})
}

// readWhole reads an application as if this version could honour everything.
func readWhole(data []byte) (*Application, error) {
	app, d, err := kinds.readApplication("app.pipecd.yaml", data)
	if err != nil {
		return nil, err
	}
	return app, d.Err()
}

// TestWhatCannotRunYetIsRefusedByTheListAlone: without the lines of the list,
// every case is reported as if this version could honour everything.
func TestWhatCannotRunYetIsRefusedByTheListAlone(t *testing.T) {
	refused := 0
	for _, folder := range []string{"application", "whole"} {
		for _, file := range cases(t, folder) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = kinds.ParseApplication("app.pipecd.yaml", data)
			_, whole := readWhole(data)
			rest := slices.DeleteFunc(lines(err), func(line string) bool {
				return strings.HasSuffix(line, " is not supported by this version of piped; remove it")
			})
			if diff := cmp.Diff(lines(whole), rest, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -whole +this version:\n%s", file, diff)
			}
			if err != nil && whole == nil {
				refused++
			}
		}
	}
	if want := len(kinds[0].Refused); want > 0 && refused == 0 {
		t.Errorf("no case is refused by the list of %d alone", want)
	}
}

func lines(err error) []string {
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func TestGoldenPiped(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	golden(t, "piped", func(data []byte) string {
		_, warnings, err := kinds.ParsePiped("/etc/piped/piped.yaml", data)
		return report(warnings, err)
	})
}

// golden compares parse's report of each case with the file next to it. A case
// is valid exactly when its name says so.
func golden(t *testing.T, folder string, parse func([]byte) string) {
	for _, file := range cases(t, folder) {
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

func cases(tb testing.TB, folder string) []string {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("no cases in %s: %v", folder, err)
	}
	return files
}

func TestOversizedFilesAreRefused(t *testing.T) {
	data := []byte("# " + strings.Repeat("x", 1<<20))
	_, err := kinds.ParseApplication("app.pipecd.yaml", data)
	if want := "app.pipecd.yaml: the file has 1048578 bytes; expected at most 1048576"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, _, err := kinds.ParsePiped("piped.yaml", data); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("got %v, want an error of kind invalid", err)
	}
}

func TestUnsupportedKindsAreTypedErrors(t *testing.T) {
	for _, name := range []string{"unsupported-kind-ecs", "unsupported-plugin-ecs"} {
		data, err := os.ReadFile("testdata/application/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		_, err = kinds.ParseApplication("app.pipecd.yaml", data)
		var unsupported *UnsupportedKind
		if !errors.As(err, &unsupported) {
			t.Errorf("%s: got %v, want an UnsupportedKind", name, err)
		}
	}
}
