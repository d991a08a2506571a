package git

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-git/go-git/v5/plumbing"

	"github.com/c785c783/piped/piped/git/gittest"
)

// A copy larger than a batch, cut after each batch in turn, never leaves a
// commit in the mirror whose files are not there too.
func TestInterruptedLocalCopyIsResumed(t *testing.T) {
	up := gittest.New(t)
	const batch = 30_000
	large := noise(batch * 2 / 3)
	first := up.Push(t, "first", map[string]string{"a": large, "dir/b": "b" + large, "dir/sub/c": "c" + large})
	second := up.Push(t, "second", map[string]string{"dir/sub/d": "d" + large})
	r := open(t, up.Dir)
	packs := func() int {
		files, _ := filepath.Glob(filepath.Join(mirrorDir(r.cfg.Dir, "repo-1"), "objects/pack/*.pack"))
		return len(files)
	}
	cuts := 0
	for done := false; !done; cuts++ {
		before := packs()
		w := watch(t.Context(), time.Hour)
		w.Context = cutContext{w.Context, func() bool { return packs() > before }}
		s, err := r.target.dial.dial(w)
		if err != nil {
			t.Fatal(err)
		}
		s.(*localSession).batch = batch
		err = s.fetch(w, plumbing.NewHash(second), r.objects)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		w.stop()
		if done = err == nil; !done && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		for _, h := range []string{first, second} {
			if !done && r.objects.has(plumbing.NewHash(h)) {
				t.Fatalf("cut %d: commit %s came before its files", cuts, h)
			}
		}
	}
	if cuts < 3 {
		t.Errorf("the copy was cut %d times only", cuts-1)
	}
	mustSync(t, r, second, true)
	if read(t, r, second, "dir/sub/d") != "d"+large || read(t, r, first, "a") != large {
		t.Error("contents differ")
	}
	shell(t, mirrorDir(r.cfg.Dir, "repo-1"), "git fsck --full --strict >&2")
}

// cutContext is cancelled when cut says so.
type cutContext struct {
	context.Context
	cut func() bool
}

func (c cutContext) Err() error {
	if c.cut() {
		return context.Canceled
	}
	return c.Context.Err()
}

func TestOpenRemovesWhatAKilledProcessLeft(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	r := open(t, up.Dir)
	mustSync(t, r, hash, true)
	dir := filepath.Join(mirrorDir(r.cfg.Dir, "repo-1"), "objects/pack")
	for _, name := range []string{"tmp_pack_1", "tmp_obj_2", "pack-0123456789012345678901234567890123456789.idx"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustSync(t, open(t, up.Dir, func(c *Config) { c.Dir = r.cfg.Dir }), hash, false)
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 2 {
		t.Errorf("want one pack with its index: %v, %v", files, err)
	}
}
