package git

import (
	"io"
	"maps"
	"slices"
	"sort"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/memory"

	"github.com/c785c783/piped/piped/deploy"
)

// builder builds a commit on top of a commit of the mirror, in memory.
type builder struct {
	under *objects
	made  *memory.Storage
	order []plumbing.Hash
}

func newBuilder(under *objects) *builder { return &builder{under: under, made: memory.NewStorage()} }

// commit builds a commit with the changed files of c and returns its hash.
func (b *builder) commit(parent *object.Commit, c Change) (plumbing.Hash, error) {
	tree, err := b.tree(parent.TreeHash, "", c.Files)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	who := object.Signature{Name: c.Author, Email: c.Email, When: c.At.UTC()}
	return b.put(&object.Commit{
		Author: who, Committer: who, Message: strings.TrimSpace(c.Message) + "\n", TreeHash: tree, ParentHashes: []plumbing.Hash{parent.Hash},
	})
}

// tree builds the directory h, whose path is dir, with the contents of files replaced. The
// keys of files are paths relative to the directory.
func (b *builder) tree(h plumbing.Hash, dir string, files map[string][]byte) (plumbing.Hash, error) {
	old, err := b.under.tree(h)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	entries := slices.Clone(old)
	below := map[string]map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		first, rest, nested := strings.Cut(name, "/")
		if nested {
			if below[first] == nil {
				below[first] = map[string][]byte{}
			}
			below[first][rest] = files[name]
			continue
		}
		e, err := entry(entries, dir, first, func(m filemode.FileMode) bool { return m.IsFile() && m != filemode.Symlink })
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if e.Hash, err = b.blob(files[name]); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	for _, first := range slices.Sorted(maps.Keys(below)) {
		e, err := entry(entries, dir, first, func(m filemode.FileMode) bool { return m == filemode.Dir })
		if err != nil {
			return plumbing.ZeroHash, err
		}
		if e.Hash, err = b.tree(e.Hash, dir+first+"/", below[first]); err != nil {
			return plumbing.ZeroHash, err
		}
	}
	sort.Sort(object.TreeEntrySorter(entries))
	return b.put(&object.Tree{Entries: entries})
}

// entry returns the entry with the name. It returns an error if there is none, or if wanted
// rejects its mode.
func entry(entries []object.TreeEntry, dir, name string, wanted func(filemode.FileMode) bool) (*object.TreeEntry, error) {
	i := slices.IndexFunc(entries, func(e object.TreeEntry) bool { return e.Name == name })
	if i < 0 || !wanted(entries[i].Mode) {
		return nil, deploy.Errorf(deploy.NotFound, "there is no such file or directory: %s", dir+name)
	}
	return &entries[i], nil
}

// blob adds a file and returns its hash.
func (b *builder) blob(data []byte) (plumbing.Hash, error) {
	o := b.made.NewEncodedObject()
	o.SetType(plumbing.BlobObject)
	w, err := o.Writer()
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if _, err := w.Write(data); err != nil {
		return plumbing.ZeroHash, err
	}
	return b.store(o)
}

// put adds a tree or a commit and returns its hash.
func (b *builder) put(v interface {
	Encode(plumbing.EncodedObject) error
}) (plumbing.Hash, error) {
	o := b.made.NewEncodedObject()
	if err := v.Encode(o); err != nil {
		return plumbing.ZeroHash, err
	}
	return b.store(o)
}

func (b *builder) store(o plumbing.EncodedObject) (plumbing.Hash, error) {
	h, err := b.made.SetEncodedObject(o)
	if err == nil && !slices.Contains(b.order, h) {
		b.order = append(b.order, h)
	}
	return h, err
}

// encode writes a pack of all built objects.
func (b *builder) encode(w io.Writer) error {
	_, err := packfile.NewEncoder(w, b.made, false).Encode(b.order, 0)
	return err
}
