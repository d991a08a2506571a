package git

import (
	"fmt"
	"io/fs"
	"runtime"
	"testing"

	"github.com/c785c783/piped/piped/git/gittest"
)

// largeRepo has 8,200 files in 200 application directories and 40 commits.
func largeRepo(b *testing.B) *gittest.Repo {
	b.Helper()
	up := gittest.New(b)
	files := map[string]string{}
	for app := range 200 {
		for f := range 41 {
			files[fmt.Sprintf("apps/team-%d/app-%d/file-%d.yaml", app%10, app, f)] = fmt.Sprintf("app: %d\nfile: %d\n", app, f) + noise(300)
		}
	}
	up.Push(b, "all", files)
	for i := range 40 {
		up.Push(b, "next", map[string]string{fmt.Sprintf("apps/team-%d/app-%d/file-0.yaml", i%10, i): fmt.Sprint(i)})
	}
	return up
}

func benchOpen(b *testing.B, remote string) *Repo {
	b.Helper()
	r, err := Open(Config{ID: "repo", Remote: remote, Branch: gittest.Branch, Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.Close() })
	return r
}

func benchSync(b *testing.B, r *Repo) string {
	b.Helper()
	c, _, err := r.Sync(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return c.Hash
}

func BenchmarkLargeRepo(b *testing.B) {
	up := largeRepo(b)
	http, err := gittest.ServeHTTP(up.Dir, gittest.HTTPOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer http.Close()
	for name, remote := range map[string]string{"path": up.Dir, "http": http.URL} {
		b.Run("clone/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				benchSync(b, benchOpen(b, remote))
			}
		})
		b.Run("fetch-one-commit/"+name, func(b *testing.B) {
			r := benchOpen(b, remote)
			benchSync(b, r)
			i := 0
			for b.Loop() {
				b.StopTimer()
				i++
				up.Push(b, "bench", map[string]string{"apps/team-0/app-0/file-1.yaml": fmt.Sprint(b.N, i)})
				b.StartTimer()
				benchSync(b, r)
			}
		})
		b.Run("poll/"+name, func(b *testing.B) {
			r := benchOpen(b, remote)
			for b.Loop() {
				if _, err := r.RemoteHead(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	r := benchOpen(b, up.Dir)
	hash := benchSync(b, r)
	walk := func(b *testing.B, r *Repo) {
		fsys, err := r.At(hash)
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		err = fs.WalkDir(fsys, ".", func(_ string, d fs.DirEntry, err error) error { n++; return err })
		if err != nil || n < 8200 {
			b.Fatal(n, err)
		}
	}
	b.Run("walk-names/cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			cold, err := Open(r.cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			walk(b, cold)
			b.StopTimer()
			_ = cold.Close()
			b.StartTimer()
		}
	})
	b.Run("walk-names/warm", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			walk(b, r)
		}
	})
	b.Run("read-app-directory", func(b *testing.B) {
		b.ReportAllocs()
		fsys, err := r.At(hash)
		if err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			dir := fmt.Sprintf("apps/team-%d/app-%d", i%10, i%200)
			entries, err := fs.ReadDir(fsys, dir)
			if err != nil {
				b.Fatal(err)
			}
			for _, e := range entries {
				if _, err := fs.ReadFile(fsys, dir+"/"+e.Name()); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("changed/one-commit", func(b *testing.B) {
		c, err := r.commit(hash)
		if err != nil {
			b.Fatal(err)
		}
		from := c.ParentHashes[0].String()
		for b.Loop() {
			if _, err := r.Changed(b.Context(), from, hash); err != nil {
				b.Fatal(err)
			}
		}
	})
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.Logf("heap in use with the mirror open: %.1f MiB", float64(m.HeapInuse)/(1<<20))
}
