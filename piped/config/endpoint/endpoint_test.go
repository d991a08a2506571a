package endpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestFind: the first directory that has the file counts; a file that cannot be read
// is an error that names it.
func TestFind(t *testing.T) {
	none, first, second := t.TempDir(), t.TempDir(), t.TempDir()
	want := Endpoint{Address: "127.0.0.1:9083", OwnerKeyFile: "/data/owner.key"}
	if err := errors.Join(Write(first, want), Write(second, Endpoint{Address: "other:1"})); err != nil {
		t.Fatal(err)
	}
	if got, path, err := Find([]string{none, first, second}); err != nil || got != want || path != filepath.Join(first, "control.json") {
		t.Errorf("found %+v in %s, %v", got, path, err)
	}
	if _, _, err := Find([]string{none}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without any: %v", err)
	}
	if err := os.WriteFile(filepath.Join(none, FileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, path, err := Find([]string{none, first}); err == nil || path != filepath.Join(none, FileName) {
		t.Errorf("damaged: %v in %s", err, path)
	}
}

// TestLocal: what listens on every interface is dialed on loopback.
func TestLocal(t *testing.T) {
	for listening, want := range map[string]string{
		"0.0.0.0:9083": "127.0.0.1:9083", "[::]:9083": "[::1]:9083", ":9083": "127.0.0.1:9083", "10.1.2.3:9083": "10.1.2.3:9083", "piped.example.com:1": "piped.example.com:1",
	} {
		if got := Local(listening); got != want {
			t.Errorf("%s is dialed as %s, want %s", listening, got, want)
		}
	}
}
