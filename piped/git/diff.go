package git

import (
	"context"
	"path"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

// Changed returns the paths that differ between the trees of two commits: files that
// were added, deleted, or have another content or mode, and both names of renamed ones.
// Paths are sorted and unquoted. The error is of kind NotFound if the mirror lacks one
// of the commits, as after a force-push; its cause is ErrBeyond if one of them exceeds
// the bounds.
func (r *Repo) Changed(ctx context.Context, from, to string) ([]string, error) {
	a, err := r.commit(from)
	if err != nil {
		return nil, err
	}
	b, err := r.commit(to)
	if err != nil {
		return nil, err
	}
	paths, err := r.objects.changed(ctx, a.TreeHash, b.TreeHash)
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "compare commits %s and %s of %s: %w", from, to, r.Remote(), err)
	}
	return paths, nil
}

// changed returns the paths that differ between two root directories, sorted. The cause of the
// error is ErrBeyond if one of them exceeds the bounds.
func (o *objects) changed(ctx context.Context, from, to plumbing.Hash) ([]string, error) {
	for _, root := range []plumbing.Hash{from, to} {
		if err := o.checkTree(ctx, root); err != nil {
			return nil, err
		}
	}
	d := differ{ctx: ctx, objects: o}
	if err := d.trees("", from, to); err != nil {
		return nil, err
	}
	slices.Sort(d.paths)
	return d.paths, nil
}

// TreeHash returns the hash of the file or directory at dir in a commit, "" if there is
// none: a key for everything derived from that directory. "." is the root. Symbolic
// links are not followed.
func (r *Repo) TreeHash(commit, dir string) (string, error) {
	c, err := r.commit(commit)
	if err != nil {
		return "", err
	}
	h := c.TreeHash
	names := components(dir)
	for i, name := range names {
		entries, err := r.objects.tree(h)
		if err != nil {
			return "", deploy.Errorf(deploy.Internal, "look up %s in commit %s of %s: %w", dir, commit, r.Remote(), err)
		}
		e, ok := find(entries, name)
		if !ok || i < len(names)-1 && e.Mode != filemode.Dir {
			return "", nil
		}
		h = e.Hash
	}
	return h.String(), nil
}

// differ collects the differing paths of two trees in one parallel walk. It skips equal
// subtrees without reading them.
type differ struct {
	ctx     context.Context
	objects *objects
	paths   []string
}

// trees compares two directories. The zero hash stands for an empty directory.
func (d *differ) trees(dir string, a, b plumbing.Hash) error {
	if a == b {
		return nil
	}
	if err := d.ctx.Err(); err != nil {
		return err
	}
	as, err := d.entries(a)
	if err != nil {
		return err
	}
	bs, err := d.entries(b)
	if err != nil {
		return err
	}
	for len(as) > 0 || len(bs) > 0 {
		var ea, eb object.TreeEntry
		if len(bs) == 0 || len(as) > 0 && as[0].Name <= bs[0].Name {
			ea = as[0]
		}
		if len(as) == 0 || len(bs) > 0 && bs[0].Name <= as[0].Name {
			eb = bs[0]
		}
		if ea.Name != "" {
			as = as[1:]
		}
		if eb.Name != "" {
			bs = bs[1:]
		}
		if err := d.entry(dir, ea, eb); err != nil {
			return err
		}
	}
	return nil
}

// entry compares the two entries of one name. The zero entry stands for a missing one.
func (d *differ) entry(dir string, a, b object.TreeEntry) error {
	if a == b {
		return nil
	}
	name := path.Join(dir, a.Name)
	if a.Name == "" {
		name = path.Join(dir, b.Name)
	}
	var ta, tb plumbing.Hash
	isFile := func(e object.TreeEntry) bool { return e.Name != "" && e.Mode != filemode.Dir }
	if isFile(a) || isFile(b) {
		d.paths = append(d.paths, name)
	}
	if a.Mode == filemode.Dir {
		ta = a.Hash
	}
	if b.Mode == filemode.Dir {
		tb = b.Hash
	}
	return d.trees(name, ta, tb)
}

func (d *differ) entries(h plumbing.Hash) ([]object.TreeEntry, error) {
	if h.IsZero() {
		return nil, nil
	}
	return d.objects.tree(h)
}
