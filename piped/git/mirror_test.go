package git

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

func TestAReopenedMirrorKnowsItsHead(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	dir := t.TempDir()
	mustSync(t, open(t, up.Dir, func(c *Config) { c.Dir = dir }), hash, true)

	// The remote is gone for now.
	if err := os.Rename(up.Dir, up.Dir+".away"); err != nil {
		t.Fatal(err)
	}
	r := open(t, up.Dir, func(c *Config) { c.Dir = dir })
	if head, ok := r.Head(); !ok || head.Hash != hash || read(t, r, hash, "a") != "1" {
		t.Errorf("Head = %v, %v", head, ok)
	}
	if _, _, err := r.Sync(t.Context()); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("Sync = %v", err)
	}
	if err := os.Rename(up.Dir+".away", up.Dir); err != nil {
		t.Fatal(err)
	}
	mustSync(t, r, hash, false)
	if got := r.Stats(); got.Fetches != 0 || got.LastContact.IsZero() {
		t.Errorf("Stats = %+v", got)
	}
}

func TestAMirrorThatCannotBeReadIsMovedAsideAndFetchedAgain(t *testing.T) {
	truncate := func(pattern string) func(*testing.T, string) {
		return func(t *testing.T, mirror string) {
			files, err := filepath.Glob(filepath.Join(mirror, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("nothing matches %s: %v", pattern, err)
			}
			for _, f := range files {
				if err := os.Chmod(f, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(f, 40); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	rm := func(name string) func(*testing.T, string) {
		return func(t *testing.T, mirror string) {
			if err := os.RemoveAll(filepath.Join(mirror, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, damage := range map[string]func(*testing.T, string){
		"pack cut":        truncate("objects/pack/*.pack"),
		"index cut":       truncate("objects/pack/*.idx"),
		"objects gone":    rm("objects"),
		"HEAD gone":       rm("HEAD"),
		"everything gone": rm("*"),
		"config not one": func(t *testing.T, mirror string) {
			if err := os.WriteFile(filepath.Join(mirror, "config"), []byte("[[["), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"a file": func(t *testing.T, mirror string) {
			if err := os.RemoveAll(mirror); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(mirror, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			up := gittest.New(t)
			hash := up.Push(t, "first", map[string]string{"a": noise(1000)})
			dir := t.TempDir()
			mustSync(t, open(t, up.Dir, func(c *Config) { c.Dir = dir }), hash, true)
			mirror := mirrorDir(dir, "repo-1")
			if name == "everything gone" {
				for _, f := range []string{"HEAD", "config", "objects", "refs"} {
					rm(f)(t, mirror)
				}
			} else {
				damage(t, mirror)
			}
			var log bytes.Buffer
			r := open(t, up.Dir, logTo(&log), func(c *Config) { c.Dir = dir })
			if _, ok := r.Head(); ok {
				t.Error("a new mirror has a head")
			}
			mustSync(t, r, hash, true)
			if got := read(t, r, hash, "a"); got != noise(1000) {
				t.Errorf("a differs")
			}
			if !strings.Contains(log.String(), "level=WARN msg=\"git mirror cannot be used: moved aside") {
				t.Errorf("log: %s", log.String())
			}
			if _, err := os.Lstat(mirror + ".corrupt"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAHalfWrittenHeadIsAskedForAgainWithoutAFetch(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	dir := t.TempDir()
	r := open(t, up.Dir, func(c *Config) { c.Dir = dir })
	mustSync(t, r, hash, true)
	if err := r.Pin("app-1", hash); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"heads/main", "pins/app-1"} {
		if err := os.Truncate(filepath.Join(mirrorDir(dir, "repo-1"), "refs/piped", ref), 0); err != nil {
			t.Fatal(err)
		}
	}
	r = open(t, up.Dir, func(c *Config) { c.Dir = dir })
	if _, ok := r.Head(); ok {
		t.Error("an empty reference is a head")
	}
	mustSync(t, r, hash, true)
	if got := r.Stats().Fetches; got != 0 {
		t.Errorf("%d fetches", got)
	}
	if haves := r.objects.haves(); len(haves) != 1 {
		t.Errorf("the next fetch would begin from %v", haves)
	}
}

func TestALaterConfigurationFindsTheRightMirror(t *testing.T) {
	one, two := gittest.New(t), gittest.New(t)
	first := one.Push(t, "one", map[string]string{"a": "1"})
	other := two.Push(t, "two", map[string]string{"a": "2"})
	dir := t.TempDir()
	in := func(c *Config) { c.Dir = dir }
	mustSync(t, open(t, one.Dir, in), first, true)

	// Another branch of the same remote.
	r := open(t, one.Dir, in, func(c *Config) { c.Branch = "later" })
	if _, ok := r.Head(); ok {
		t.Error("another branch has the head of the first")
	}
	if _, err := r.Commit(t.Context(), first); err != nil {
		t.Errorf("the mirror was thrown away: %v", err)
	}
	// The first branch again: nothing moved.
	mustSync(t, open(t, one.Dir, in), first, false)
	// Credentials written into the URL make no other remote.
	mustSync(t, open(t, "file://"+one.Dir, in), first, false)
	// Another remote under the same ID.
	r = open(t, two.Dir, in)
	if _, ok := r.Head(); ok {
		t.Error("another remote has the head of the first")
	}
	mustSync(t, r, other, true)
	if _, err := r.Commit(t.Context(), first); err != nil {
		t.Errorf("the first remote's commit was thrown away: %v", err)
	}
	mustSync(t, open(t, two.Dir, in), other, false)
	// IDs that would be paths.
	for _, id := range []string{"..", "a/b", "../x", "größe"} {
		mustSync(t, open(t, one.Dir, in, func(c *Config) { c.ID = id }), first, true)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if diff := cmp.Diff([]string{"..%2Fx.git", "...git", "a%2Fb.git", "gr%C3%B6%C3%9Fe.git", "repo-1.git"}, names); diff != "" {
		t.Errorf("directories (-want +got):\n%s", diff)
	}
}

func TestCredentialsAreNotKeptInTheMirror(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	s := up.HTTP(t, gittest.HTTPOptions{Username: "bot", Password: "s3cret"})
	var log bytes.Buffer
	r := open(t, strings.Replace(s.URL, "://", "://bot:s3cret@", 1), logTo(&log))
	mustSync(t, r, hash, true)
	config, err := os.ReadFile(filepath.Join(mirrorDir(r.cfg.Dir, "repo-1"), "config"))
	if err != nil || !strings.Contains(string(config), s.URL) {
		t.Errorf("config: %v\n%s", err, config)
	}
	if strings.Contains(string(config)+log.String()+r.Remote(), "s3cret") {
		t.Error("a password is shown")
	}
}

func TestPins(t *testing.T) {
	up := gittest.New(t)
	first := up.Push(t, "first", map[string]string{"a": "1"})
	r := open(t, up.Dir)
	mustSync(t, r, first, true)
	second := up.Push(t, "second", map[string]string{"a": "2"})
	mustSync(t, r, second, true)
	mirror := mirrorDir(r.cfg.Dir, "repo-1")
	refs := func() string {
		return shell(t, mirror, "git for-each-ref --format='%(refname:lstrip=2) %(objectname)' refs/piped/pins")
	}
	for _, hash := range []string{first, second} {
		if err := r.Pin("app-1", hash); err != nil {
			t.Fatal(err)
		}
		if got := refs(); got != "pins/app-1 "+hash+"\n" {
			t.Errorf("pins: %q", got)
		}
	}
	if err := r.Pin("app-2", strings.Repeat("a", 40)); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("Pin of an unknown commit: %v", err)
	}
	if err := r.Pin("../x", first); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("Pin with a bad name: %v", err)
	}
	for range 2 {
		if err := r.Unpin("app-1"); err != nil {
			t.Error(err)
		}
	}
	if got := refs(); got != "" {
		t.Errorf("pins left: %q", got)
	}
}
