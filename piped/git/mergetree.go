package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"sort"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// merger merges trees by path and writes the results to objects.
type merger struct {
	ctx       context.Context
	objects   *objects
	conflicts []string // each a path and the reason
}

// three holds the entries of a name in the base, in ours and in theirs. The zero entry stands
// for a missing one.
type three struct{ base, ours, theirs object.TreeEntry }

func (m *merger) conflict(name, why string) {
	m.conflicts = append(m.conflicts, name+" "+why)
}

// trees merges directories. The zero hash stands for an empty directory, also as result. A
// change of only one side is taken over.
func (m *merger) trees(dir string, base, ours, theirs plumbing.Hash) (plumbing.Hash, error) {
	switch {
	case ours == theirs, theirs == base:
		return ours, nil
	case ours == base:
		return theirs, nil
	case m.ctx.Err() != nil:
		return plumbing.ZeroHash, context.Cause(m.ctx)
	}
	names := map[string]three{}
	for i, h := range []plumbing.Hash{base, ours, theirs} {
		entries, err := m.entries(h)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		for _, e := range entries {
			at := names[e.Name]
			*[]*object.TreeEntry{&at.base, &at.ours, &at.theirs}[i] = e
			names[e.Name] = at
		}
	}
	var merged []object.TreeEntry
	for _, name := range slices.Sorted(maps.Keys(names)) {
		e, err := m.entry(path.Join(dir, name), names[name])
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if e.Mode != 0 {
			e.Name = name
			merged = append(merged, e)
		}
	}
	return m.objects.putTree(merged)
}

func (m *merger) entries(h plumbing.Hash) ([]object.TreeEntry, error) {
	if h.IsZero() {
		return nil, nil
	}
	return m.objects.tree(h)
}

// entry merges the entries of a name. It merges files and directories separately; if both a
// file and a directory remain, that is a conflict.
func (m *merger) entry(name string, at three) (object.TreeEntry, error) {
	file, err := m.file(name, three{fileOf(at.base), fileOf(at.ours), fileOf(at.theirs)})
	if err != nil {
		return object.TreeEntry{}, err
	}
	dir, err := m.trees(name, dirOf(at.base), dirOf(at.ours), dirOf(at.theirs))
	switch {
	case err != nil || dir.IsZero():
		return file, err
	case file.Mode != 0:
		m.conflict(name, "is a file on one side and a directory on the other")
	}
	return object.TreeEntry{Mode: filemode.Dir, Hash: dir}, nil
}

// fileOf returns e, or the zero entry if e is a directory.
func fileOf(e object.TreeEntry) object.TreeEntry {
	if e.Mode == filemode.Dir {
		return object.TreeEntry{}
	}
	return object.TreeEntry{Mode: e.Mode, Hash: e.Hash}
}

// dirOf returns the hash of e, or the zero hash if e is not a directory.
func dirOf(e object.TreeEntry) plumbing.Hash {
	if e.Mode == filemode.Dir {
		return e.Hash
	}
	return plumbing.ZeroHash
}

// file merges entries that are not directories. After a conflict it returns our version.
func (m *merger) file(name string, at three) (object.TreeEntry, error) {
	b, o, t := at.base, at.ours, at.theirs
	switch {
	case o == t, t == b:
		return o, nil
	case o == b:
		return t, nil
	case o.Mode == 0 || t.Mode == 0:
		m.conflict(name, "is changed on one side and deleted on the other")
		return o, nil
	case !isText(o.Mode) || !isText(t.Mode):
		m.conflict(name, "is a link or a submodule that both sides changed")
		return o, nil
	}
	if !isText(b.Mode) {
		b = object.TreeEntry{} // merge with an empty base
	}
	mode, ok := mergeModes(b.Mode, o.Mode, t.Mode)
	if !ok {
		m.conflict(name, "is executable on one side only")
	}
	if o.Hash == t.Hash || t.Hash == b.Hash {
		return object.TreeEntry{Mode: mode, Hash: o.Hash}, nil
	}
	if o.Hash == b.Hash {
		return object.TreeEntry{Mode: mode, Hash: t.Hash}, nil
	}
	h, err := m.content(name, b.Hash, o.Hash, t.Hash)
	return object.TreeEntry{Mode: mode, Hash: h}, err
}

// isText reports whether the mode is that of a regular file, neither link nor submodule.
func isText(mode filemode.FileMode) bool {
	return mode == filemode.Regular || mode == filemode.Deprecated || mode == filemode.Executable
}

// mergeModes merges the executable bit; ok is false if both sides changed it differently.
func mergeModes(base, ours, theirs filemode.FileMode) (mode filemode.FileMode, ok bool) {
	if ours == theirs || theirs == base {
		return ours, true
	}
	return theirs, ours == base
}

// content merges both versions of a file. The zero hash stands for an empty file.
func (m *merger) content(name string, base, ours, theirs plumbing.Hash) (plumbing.Hash, error) {
	var texts [3][]byte
	for i, h := range []plumbing.Hash{base, ours, theirs} {
		if h.IsZero() {
			continue
		}
		size, err := m.objects.size(h)
		if err != nil {
			return ours, err
		}
		if size > maxMergedFile {
			m.conflict(name, "is too large to merge what both sides changed")
			return ours, nil
		}
		if texts[i], err = m.objects.blob(h, maxMergedFile); err != nil {
			return ours, err
		}
	}
	merged, why := mergeText(texts[0], texts[1], texts[2])
	if why != "" {
		m.conflict(name, why)
		return ours, nil
	}
	return m.objects.putBlob(merged)
}

// putBlob stores a file's content.
func (o *objects) putBlob(data []byte) (plumbing.Hash, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj := o.sto.NewEncodedObject()
	obj.SetType(plumbing.BlobObject)
	w, err := obj.Writer()
	if err == nil {
		_, err = w.Write(data)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("write a merged file: %w", err)
	}
	return o.sto.SetEncodedObject(obj)
}

// putTree stores a directory. It does not store an empty one and returns the zero hash for it.
func (o *objects) putTree(entries []object.TreeEntry) (plumbing.Hash, error) {
	if len(entries) == 0 {
		return plumbing.ZeroHash, nil
	}
	sort.Sort(object.TreeEntrySorter(entries))
	return o.put(&object.Tree{Entries: entries})
}

// put stores a tree or a commit.
func (o *objects) put(v interface {
	Encode(plumbing.EncodedObject) error
}) (plumbing.Hash, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	obj := o.sto.NewEncodedObject()
	if err := v.Encode(obj); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("write a merged directory: %w", err)
	}
	return o.sto.SetEncodedObject(obj)
}

// sortedConflicts returns the conflicts sorted by path, without duplicates.
func (m *merger) sortedConflicts() []string {
	slices.Sort(m.conflicts)
	return slices.Compact(m.conflicts)
}
