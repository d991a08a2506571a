package signin

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func saved() Saved {
	return Saved{Token: someToken, Subject: "ana", Issuer: "corp", ExpiresAt: time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC), WebAddress: "https://piped.example.com"}
}

// TestTokens: a sign-in is stored for one address, in a file for its owner only.
func TestTokens(t *testing.T) {
	tokens := Tokens{filepath.Join(t.TempDir(), "a", "b")}
	addresses := []string{"127.0.0.1:9083", "dns:///piped.example.com:9083", "unix:/run/../piped.sock", "[::1]:9083"}
	for i, address := range addresses {
		if _, err := tokens.Load(address); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that there is none", address, err)
		}
		v := saved()
		v.Subject = strings.Repeat("a", i)
		if err := tokens.Save(address, v); err != nil {
			t.Fatal(err)
		}
	}
	for i, address := range addresses {
		want := saved()
		want.Subject = strings.Repeat("a", i)
		if got, err := tokens.Load(address); err != nil || got != want {
			t.Errorf("%s: %+v, %v", address, got, err)
		}
		info, err := os.Stat(tokens.Path(address))
		if err != nil || info.Mode() != 0o600 || filepath.Dir(tokens.Path(address)) != tokens.Dir {
			t.Errorf("%s: mode %v, %v", tokens.Path(address), info.Mode(), err)
		}
	}
	if err := errors.Join(tokens.Remove(addresses[0]), tokens.Remove(addresses[0])); err != nil {
		t.Error(err)
	}
	if _, err := tokens.Load(addresses[0]); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after removal: %v", err)
	}
	left, err := os.ReadDir(tokens.Dir)
	if err != nil || len(left) != len(addresses)-1 {
		t.Errorf("files left: %v, %v", left, err)
	}
	if err := tokens.Save(strings.Repeat("a", 300), saved()); err == nil {
		t.Error("an address that is too long was stored")
	}
}

// TestRefusedFiles: a token that others could read or have written is not used.
func TestRefusedFiles(t *testing.T) {
	const address = "127.0.0.1:1"
	tests := map[string]struct {
		change func(path string) error
		want   string
	}{
		"readable by the group":  {func(path string) error { return os.Chmod(path, 0o640) }, "its mode is 0640, not 0600"},
		"readable by all":        {func(path string) error { return os.Chmod(path, 0o604) }, "its mode is 0604"},
		"writable by the group":  {func(path string) error { return os.Chmod(path, 0o620) }, "its mode is 0620"},
		"no JSON":                {func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }, "holds no token"},
		"a token with line ends": {func(path string) error { return os.WriteFile(path, []byte(`{"token":"a.b\r\nc: d"}`), 0o600) }, "holds no token"},
		"a directory":            {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, "not a regular file"},
	}
	if os.Getuid() == 0 { // only root can give a file away
		tests["of another user"] = struct {
			change func(path string) error
			want   string
		}{func(path string) error { return os.Chown(path, 4242, -1) }, "belongs to another user"}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tokens := Tokens{t.TempDir()}
			if err := errors.Join(tokens.Save(address, saved()), tc.change(tokens.Path(address))); err != nil {
				t.Fatal(err)
			}
			if _, err := tokens.Load(address); err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), someToken) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// TestReplacement: whoever reads while others write finds a whole token.
func TestReplacement(t *testing.T) {
	const address = "127.0.0.1:1"
	tokens := Tokens{t.TempDir()}
	if err := tokens.Save(address, saved()); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 20 {
				if err := tokens.Save(address, saved()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 200 {
		if got, err := tokens.Load(address); err != nil || got != saved() {
			t.Errorf("%+v, %v", got, err)
		}
	}
	writers.Wait()
	if left, err := os.ReadDir(tokens.Dir); err != nil || len(left) != 1 {
		t.Errorf("files left: %v, %v", left, err)
	}
}
