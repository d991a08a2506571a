package git

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mirrorDirectory is a mirror on disk.
type mirrorDirectory struct {
	name  string // key in Remotes.mirrors
	bytes int64
	used  time.Time
}

// sweep removes the least recently used mirrors until the rest is within the bounds. It
// retains mirrors in use, including the caller's.
func (r *Remotes) sweep(caller *remoteMirror) {
	dirs := r.directories()
	var total int64
	for _, d := range dirs {
		total += d.bytes
	}
	count := len(dirs)
	for _, d := range dirs {
		if total <= r.cfg.MaxBytes && count <= r.cfg.MaxMirrors {
			return
		}
		if d.name == strings.TrimSuffix(filepath.Base(caller.dir), ".git") || !r.remove(d.name, d.used) {
			continue
		}
		total, count = total-d.bytes, count-1
		r.cfg.Logger.Info("the mirror of a remote repository was removed to make room", "dir", d.name, "bytes", d.bytes)
	}
}

// directories returns the mirrors on disk, the least recently used first.
func (r *Remotes) directories() []mirrorDirectory {
	entries, _ := os.ReadDir(r.cfg.Dir) // unreadable ones cannot be removed
	var out []mirrorDirectory
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() {
			continue
		}
		out = append(out, mirrorDirectory{strings.TrimSuffix(e.Name(), ".git"), size(filepath.Join(r.cfg.Dir, e.Name())), info.ModTime()})
	}
	slices.SortFunc(out, func(a, b mirrorDirectory) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.name, b.name)) })
	return out
}

// size returns the bytes of all files below a directory.
func size(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil // counted next time
		}
		if info, err := e.Info(); err == nil && !e.IsDir() {
			total += info.Size()
		}
		return nil
	})
	return total
}

// remove removes a mirror and reports whether it did. It retains a mirror that is in use.
func (r *Remotes) remove(name string, used time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.mirrors[name]; m != nil {
		used = m.used
		select {
		case m.turn <- struct{}{}:
			defer m.leave()
		default:
			return false
		}
		if r.cfg.Now().Sub(used) < usedFor {
			return false
		}
		m.removed = true
		if m.objects != nil {
			_ = m.objects.close() // its content is deleted
		}
		delete(r.mirrors, name)
	}
	if r.cfg.Now().Sub(used) < usedFor {
		return false
	}
	return os.RemoveAll(filepath.Join(r.cfg.Dir, name+".git")) == nil
}
