package gittest

import (
	"fmt"
	"sort"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// node is a directory to write.
type node struct {
	files map[string]object.TreeEntry
	dirs  map[string]*node
}

func newNode() *node { return &node{files: map[string]object.TreeEntry{}, dirs: map[string]*node{}} }

// tree writes the staged files as tree objects and returns the root's hash.
func (r *Repo) tree() (plumbing.Hash, error) {
	root := newNode()
	for name, e := range r.staged {
		n := root
		parts := strings.Split(name, "/")
		for _, dir := range parts[:len(parts)-1] {
			if n.dirs[dir] == nil {
				n.dirs[dir] = newNode()
			}
			n = n.dirs[dir]
		}
		n.files[parts[len(parts)-1]] = e
	}
	return r.saveTree(root)
}

func (r *Repo) saveTree(n *node) (plumbing.Hash, error) {
	t := &object.Tree{}
	for name, e := range n.files {
		if n.dirs[name] != nil {
			return plumbing.ZeroHash, fmt.Errorf("%s is both a file and a directory", name)
		}
		t.Entries = append(t.Entries, object.TreeEntry{Name: name, Mode: e.Mode, Hash: e.Hash})
	}
	for name, dir := range n.dirs {
		h, err := r.saveTree(dir)
		if err != nil {
			return plumbing.ZeroHash, err
		}
		t.Entries = append(t.Entries, object.TreeEntry{Name: name, Mode: filemode.Dir, Hash: h})
	}
	sort.Sort(object.TreeEntrySorter(t.Entries))
	return r.save(t)
}

// save stores a commit or a tree.
func (r *Repo) save(o interface {
	Encode(plumbing.EncodedObject) error
}) (plumbing.Hash, error) {
	encoded := r.sto.NewEncodedObject()
	if err := o.Encode(encoded); err != nil {
		return plumbing.ZeroHash, err
	}
	return r.store(encoded)
}

func (r *Repo) store(o plumbing.EncodedObject) (plumbing.Hash, error) {
	if r.sto.HasEncodedObject(o.Hash()) == nil {
		return o.Hash(), nil
	}
	return r.sto.SetEncodedObject(o)
}
