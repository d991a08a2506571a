package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	// maxMergePack bounds the bytes that are fetched of a branch to merge.
	maxMergePack = 256 << 20
	// maxMergeDepth bounds the recursion of merges of common ancestors.
	maxMergeDepth = 16
	// maxConflicts bounds the conflicts in an error.
	maxConflicts = 10

	mergeDir = ".merge-" // between the name of a mirror and the random suffix of a merge
)

// Merge is the result of a merge of another branch into the tracked one. Its objects are
// stored next to the mirror, and deleted by Close. It is safe for concurrent use.
type Merge struct {
	Base deploy.Commit // the head of the tracked branch
	Head deploy.Commit // the commit that is merged into it

	objects *objects
	tree    plumbing.Hash
	maxSize int64
}

// Merge reads the head of the tracked branch from the remote, which becomes Head as in Sync.
// It merges a commit of another branch into that head like git merge, but without detection of
// renames: trees by path, and files that both sides changed by line. Several best common
// ancestors are first merged into one base. The caller closes the Merge.
//
// The error is of kind Invalid if the branch does not exist, if the commit is not on it, or if
// there are conflicts; then it names the files. Other errors are as those of Sync.
func (r *Repo) Merge(ctx context.Context, branch, commit string) (*Merge, error) {
	return r.mergeRef(ctx, plumbing.NewBranchReferenceName(branch), branch, commit)
}

// MergeRef is Merge for a commit of a reference that is no branch, such as refs/pull/7/head, under
// which hosts have the heads of pull requests from forks.
func (r *Repo) MergeRef(ctx context.Context, ref, commit string) (*Merge, error) {
	if !strings.HasPrefix(ref, "refs/") {
		return nil, deploy.Errorf(deploy.Invalid, "merge commit %q of %s: expected a reference that begins with refs/, found %q", commit, r.Remote(), ref)
	}
	return r.mergeRef(ctx, plumbing.ReferenceName(ref), ref, commit)
}

// shortRef describes a reference: "branch NAME", or its whole name.
func shortRef(ref plumbing.ReferenceName) string {
	if ref.IsBranch() {
		return "branch " + ref.Short()
	}
	return ref.String()
}

// mergeRef merges a commit of a reference, whose name in messages is branch.
func (r *Repo) mergeRef(ctx context.Context, ref plumbing.ReferenceName, branch, commit string) (_ *Merge, err error) {
	if !plumbing.IsHash(commit) || headRef(branch).Validate() != nil {
		return nil, deploy.Errorf(deploy.Invalid, "merge commit %q of branch %q of %s: expected the name of a branch and the full hash of a commit on it", commit, branch, r.Remote())
	}
	base, _, err := r.Sync(ctx)
	if err != nil {
		return nil, err
	}
	o, err := r.separate()
	if err == nil {
		o.limits.pack = min(o.limits.pack, maxMergePack)
	}
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "merge branch %s of %s: create a database for it: %w", branch, r.Remote(), err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, o.discard())
		}
	}()
	if err := r.fetchRef(ctx, o, ref, branch, plumbing.NewHash(commit)); err != nil {
		return nil, err
	}
	m := &Merge{Base: base, objects: o, maxSize: r.cfg.MaxFileSize}
	theirs, err := o.commit(plumbing.NewHash(commit))
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "read commit %s of %s: %w", commit, r.Remote(), err)
	}
	m.Head = r.describe(theirs)
	m.Head.Branch = branch
	if m.tree, err = r.merge(ctx, o, base.Hash, theirs); err != nil {
		return nil, err
	}
	return m, nil
}

// merge returns the tree of the merge of a commit into the head.
func (r *Repo) merge(ctx context.Context, o *objects, base string, theirs *object.Commit) (plumbing.Hash, error) {
	ours, err := o.commit(plumbing.NewHash(base))
	if err != nil {
		return plumbing.ZeroHash, deploy.Errorf(deploy.Internal, "read commit %s of %s: %w", base, r.Remote(), err)
	}
	tree, err := o.mergeCommits(ctx, ours, theirs, 0)
	if err != nil {
		err = &deploy.Error{Kind: deploy.KindOf(err), Op: fmt.Sprintf("merge commit %s into commit %s of branch %s of %s",
			deploy.ShortHash(theirs.Hash.String()), deploy.ShortHash(base), r.follows().branch, r.Remote()), Err: err}
	}
	return tree, err
}

// fetchRef checks that a commit is in the history of a reference of the remote, and fetches it
// into o.
func (r *Repo) fetchRef(ctx context.Context, o *objects, ref plumbing.ReferenceName, branch string, commit plumbing.Hash) error {
	w := watch(ctx, r.cfg.Timeout)
	defer w.stop()
	s, err := r.follows().dial.dial(w)
	if err != nil {
		return r.unavailable(w, "list branches", err)
	}
	defer s.Close()
	head, err := s.head(w, ref)
	if err != nil {
		return r.unavailable(w, "list branches", err)
	}
	if head.IsZero() {
		return deploy.Errorf(deploy.Invalid, "remote %s has no branch %q: push it, or correct the name", r.Remote(), branch)
	}
	if !o.has(head) {
		w.touch()
		err = s.fetch(w, head, o)
	}
	if err == nil {
		w.rest() // the rest is our own work
		if err = checkCommit(o, head); err != nil {
			err = fmt.Errorf("the remote sent an incomplete history: %w", err)
		}
	}
	if errors.Is(err, ErrBeyond) {
		return deploy.Errorf(deploy.Invalid, "fetch branch %s of %s: %w; correct that in a new commit", branch, r.Remote(), err)
	}
	if err != nil {
		return r.unavailable(w, "fetch branch "+branch, err)
	}
	return r.contains(ctx, o, branch, head, commit)
}

// contains returns an error unless a commit is in the history of the head of a branch.
func (r *Repo) contains(ctx context.Context, o *objects, branch string, head, commit plumbing.Hash) error {
	if head == commit {
		return nil
	}
	if o.has(commit) {
		reached := map[plumbing.Hash]bool{}
		if err := o.reach(ctx, head, reached); err != nil {
			return deploy.Errorf(deploy.Internal, "read the history of branch %s of %s: %w", branch, r.Remote(), err)
		}
		if reached[commit] {
			return nil
		}
	}
	return deploy.Errorf(deploy.Invalid, "commit %s is not on branch %s of %s: name a commit of the branch, which may have been rewritten", commit, branch, r.Remote())
}

// mergeCommits returns the merged tree of two commits.
func (o *objects) mergeCommits(ctx context.Context, ours, theirs *object.Commit, depth int) (plumbing.Hash, error) {
	base, err := o.baseTree(ctx, ours, theirs, depth)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	for _, c := range []*object.Commit{ours, theirs} {
		if err := o.checkCommitTree(ctx, c.Hash); err != nil {
			return plumbing.ZeroHash, refusedMerge(c, err)
		}
	}
	if err := o.checkTree(ctx, base); err != nil {
		return plumbing.ZeroHash, refusedMerge(ours, err)
	}
	m := &merger{ctx: ctx, objects: o}
	tree, err := m.trees("", base, ours.TreeHash, theirs.TreeHash)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	if conflicts := m.sortedConflicts(); len(conflicts) > 0 {
		return plumbing.ZeroHash, deploy.Errorf(deploy.Invalid, "there are conflicts: %s; merge the base branch into the head branch, resolve them and push", few(conflicts))
	}
	if tree.IsZero() {
		return o.put(&object.Tree{}) // as in a Git commit without files
	}
	return tree, refusedMerge(theirs, o.checkTree(ctx, tree))
}

// refusedMerge sets the kind of the error about a commit that exceeds the bounds.
func refusedMerge(c *object.Commit, err error) error {
	if errors.Is(err, ErrBeyond) {
		return deploy.Errorf(deploy.Invalid, "commit %s: %w; correct that in a new commit", deploy.ShortHash(c.Hash.String()), err)
	}
	return err
}

// few joins at most maxConflicts conflicts into one text.
func few(conflicts []string) string {
	if more := len(conflicts) - maxConflicts; more > 0 {
		return fmt.Sprintf("%s; and %d more", strings.Join(conflicts[:maxConflicts], "; "), more)
	}
	return strings.Join(conflicts, "; ")
}

// baseTree returns the tree of the best common ancestor of two commits. Several best ones are
// merged.
func (o *objects) baseTree(ctx context.Context, ours, theirs *object.Commit, depth int) (plumbing.Hash, error) {
	bases, err := o.mergeBases(ctx, ours, theirs)
	switch {
	case err != nil:
		return plumbing.ZeroHash, fmt.Errorf("find the common ancestor: %w", err)
	case len(bases) == 0:
		return plumbing.ZeroHash, deploy.Errorf(deploy.Invalid, "their histories have nothing in common; rebase the head branch on the base branch")
	case len(bases) > 1 && depth >= maxMergeDepth:
		return plumbing.ZeroHash, crossed(errors.New("they cross too often"))
	}
	base := bases[0]
	for _, next := range bases[1:] {
		tree, err := o.mergeCommits(ctx, base, next, depth+1)
		if deploy.IsKind(err, deploy.Invalid) {
			return plumbing.ZeroHash, crossed(err)
		}
		if err == nil {
			base, err = o.putMerge(tree, base, next)
		}
		if err != nil {
			return plumbing.ZeroHash, err
		}
	}
	return base.TreeHash, nil
}

// crossed returns the error for histories whose best common ancestors conflict.
func crossed(cause error) error {
	return deploy.Errorf(deploy.Invalid, "the histories cross each other, and their common ancestors cannot be merged: %w; merge the base branch into the head branch and push", cause)
}

// putMerge stores the merge of common ancestors as a commit, to merge it with further ones.
func (o *objects) putMerge(tree plumbing.Hash, a, b *object.Commit) (*object.Commit, error) {
	when := a.Committer.When
	if b.Committer.When.After(when) {
		when = b.Committer.When
	}
	who := object.Signature{When: when.Add(time.Second)}
	h, err := o.put(&object.Commit{Author: who, Committer: who, TreeHash: tree, ParentHashes: []plumbing.Hash{a.Hash, b.Hash}})
	if err != nil {
		return nil, err
	}
	return o.commit(h)
}

// FS returns the merged files like Repo.At. They must not be read after Close.
func (m *Merge) FS() fs.FS {
	return &treeFS{objects: m.objects, root: m.tree, maxSize: m.maxSize, at: m.Base.At}
}

// Changed returns the paths that differ between a commit of the mirror and the
// merged files, as Repo.Changed does.
func (m *Merge) Changed(ctx context.Context, from string) ([]string, error) {
	if !plumbing.IsHash(from) || !m.objects.under.has(plumbing.NewHash(from)) {
		return nil, deploy.Errorf(deploy.NotFound, "commit %q is not in the mirror", from)
	}
	c, err := m.objects.commit(plumbing.NewHash(from))
	if err == nil {
		var paths []string
		if paths, err = m.objects.changed(ctx, c.TreeHash, m.tree); err == nil {
			return paths, nil
		}
	}
	return nil, deploy.Errorf(deploy.Internal, "compare commit %s with the merge of %s: %w", from, m.Head.Hash, err)
}

// Hash returns the hash of the merged tree.
func (m *Merge) Hash() string { return m.tree.String() }

// Keep stores the merge in the mirror as a commit with both heads as parents, and returns that
// commit with the author and message of the merged head. The commit is the same for the same
// heads. It is on no branch and stays until the mirror is lost; then the merge is repeated.
func (r *Repo) Keep(m *Merge) (deploy.Commit, error) {
	out, err := r.keep(m)
	if err != nil {
		return out, deploy.Errorf(deploy.Internal, "store the merge of commit %s into commit %s of %s: %w", m.Head.Short(), m.Base.Short(), r.Remote(), err)
	}
	return out, nil
}

func (r *Repo) keep(m *Merge) (out deploy.Commit, err error) {
	base, err := m.objects.commit(plumbing.NewHash(m.Base.Hash))
	if err != nil {
		return out, err
	}
	head, err := m.objects.commit(plumbing.NewHash(m.Head.Hash))
	if err != nil {
		return out, err
	}
	c, err := m.objects.putMerge(m.tree, base, head)
	if err != nil {
		return out, err
	}
	if err := r.objects.adopt(m.objects); err != nil {
		return out, err
	}
	if err := r.objects.adoptLoose(m.objects, c.Hash); err != nil {
		return out, err
	}
	out = m.Head
	out.Hash, out.Merged = c.Hash.String(), m.Head.Hash
	return out, nil
}

// Base returns the commit that a commit of Keep merges into. The error is of kind NotFound if the mirror
// has no such commit, and Invalid if it is not of Keep.
func (r *Repo) Base(hash string) (string, error) {
	c, err := r.commit(hash)
	if err != nil {
		return "", err
	}
	if len(c.ParentHashes) != 2 {
		return "", deploy.Errorf(deploy.Invalid, "commit %s of %s is not the merge of two commits", hash, r.Remote())
	}
	return c.ParentHashes[0].String(), nil
}

// Close removes the objects of the merge.
func (m *Merge) Close() error { return m.objects.discard() }

// separate opens a new object database that also reads the objects of the mirror, but does not
// write there.
func (r *Repo) separate() (*objects, error) {
	dir, err := os.MkdirTemp(r.cfg.Dir, filepath.Base(mirrorDir("", r.cfg.ID))+mergeDir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "objects", "pack"), 0o700); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	o := openObjects(dir)
	o.under, o.limits = r.objects, r.objects.limits
	return o, nil
}

// discard closes the database and removes it.
func (o *objects) discard() error { return errors.Join(o.close(), os.RemoveAll(o.dir)) }

// removeMerges removes the files of merges that an earlier process left behind.
func removeMerges(mirror string) error {
	leftovers, err := os.ReadDir(filepath.Dir(mirror))
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range leftovers {
		if strings.HasPrefix(e.Name(), filepath.Base(mirror)+mergeDir) {
			errs = append(errs, os.RemoveAll(filepath.Join(filepath.Dir(mirror), e.Name())))
		}
	}
	return errors.Join(errs...)
}
