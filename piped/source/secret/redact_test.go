package secret

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func TestRedactor(t *testing.T) {
	r := NewRedactor(map[string]string{
		"password": "hunter2", "longer": "hunter2-and-more", "quoted": `with "quotes"`, "key": "-----BEGIN\nabcdef\n-----END\n", "short": "abc", "empty": "",
	})
	tests := map[string]string{
		"nothing of it":                      "nothing of it",
		"found hunter2, expected x":          "found [redacted], expected x",
		"found hunter2-and-more":             "found [redacted]",
		"found aHVudGVyMg== here":            "found [redacted] here",
		`found "with \"quotes\""`:            `found "[redacted]"`,
		"line abcdef of it":                  "line [redacted] of it",
		"abc is too short to be a secret":    "abc is too short to be a secret",
		"-----BEGIN\nabcdef\n-----END\nrest": "[redacted]rest",
	}
	for message, want := range tests {
		if diff := cmp.Diff(want, r.Text(message)); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

func TestRedactedErrors(t *testing.T) {
	r := NewRedactor(map[string]string{"password": "hunter2"})
	plain := fmt.Errorf("read it: %w", fs.ErrNotExist)
	if got := r.Error(plain); got != plain {
		t.Errorf("got %v, want the very same error", got)
	}
	got := r.Error(deploy.Errorf(deploy.Unavailable, "a.yaml:3: %w", errors.New("found hunter2")))
	if got.Error() != "a.yaml:3: found [redacted]" || deploy.KindOf(got) != deploy.Unavailable || errors.Unwrap(errors.Unwrap(got)) != nil {
		t.Errorf("got %#v", got)
	}
	var none *Redactor
	if none.Error(plain) != plain || none.Error(nil) != nil || r.Error(nil) != nil || none.Text("hunter2") != "hunter2" {
		t.Error("without secrets something was changed")
	}
}

func TestRedactorOfATree(t *testing.T) {
	keys, _ := ageKeys(t)
	tree := files("apps/web/a.yaml", "{{ .encryptedSecrets.password }}")
	got, err := New(keys).Tree(t.Context(), tree, dir, encryption(t, keys, "a.yaml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := RedactorOf(got).Text("found " + secretValue); text != "found [redacted]" {
		t.Errorf("got %s", text)
	}
	if RedactorOf(tree) != nil {
		t.Error("there is a redactor without secrets")
	}
}

// lines is a stage's log.
type lines []string

func (l *lines) Infof(format string, args ...any) {
	*l = append(*l, "info "+fmt.Sprintf(format, args...))
}
func (l *lines) Successf(format string, args ...any) {
	*l = append(*l, "success "+fmt.Sprintf(format, args...))
}
func (l *lines) Errorf(format string, args ...any) {
	*l = append(*l, "error "+fmt.Sprintf(format, args...))
}

func TestRedactedLog(t *testing.T) {
	var got lines
	log := NewRedactor(map[string]string{"password": "hunter2"}).Log(&got)
	log.Infof("read %s %d%%", "hunter2", 5)
	log.Successf("wrote %q", "hunter2")
	log.Errorf("no %v", errors.New("hunter2"))
	if diff := cmp.Diff(lines{"info read [redacted] 5%", `success wrote "[redacted]"`, "error no [redacted]"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var none *Redactor
	if none.Log(&got) != deploy.StageLog(&got) {
		t.Error("without secrets the log was changed")
	}
}
