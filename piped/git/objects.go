package git

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// Bounds of the memory of an open mirror.
const (
	objectCacheSize   = 16 * cache.MiByte // decoded objects
	treeCacheEntries  = 32 << 10          // parsed directory entries
	openPacks         = 16                // file descriptors
	copyBatchSize     = 16 << 20          // bytes of objects copied at once from a local remote
	listTries         = 10                // to find a commit of a local remote that is being written to
	localCacheSize    = 8 * cache.MiByte  // decoded objects of a local remote
	maxSymlinkLength  = 4 << 10
	largeObjectToDisk = 16 << 20 // larger objects are streamed
)

// objects is the mirror's object database. go-git's storage is not safe for concurrent use
// (its maps of indexes and open packs have no lock), so one lock guards all access. It is held
// briefly, since objects are small.
//
// Invariant: every object that a stored object refers to is stored. A pack is added as a whole
// and contains, with the stored objects, everything that it refers to.
type objects struct {
	dir string

	// under, if not nil, is the database from which missing objects are read.
	under  *objects
	limits bounds
	// partial reports that files too large to be read were omitted from a received pack.
	partial bool

	mu       sync.Mutex
	sto      *filesystem.Storage
	trees    map[plumbing.Hash][]object.TreeEntry
	entries  int                          // held in trees
	measures map[plumbing.Hash]treeExtent // of directories within the limits
}

// openObjects returns the database at dir with the default bounds. It accesses no files.
func openObjects(dir string) *objects {
	return &objects{
		dir: dir, limits: defaultBounds(),
		sto: filesystem.NewStorageWithOptions(osfs.New(dir), cache.NewObjectLRU(objectCacheSize), filesystem.Options{
			MaxOpenDescriptors: openPacks, LargeObjectThreshold: largeObjectToDisk,
		}),
		trees: map[plumbing.Hash][]object.TreeEntry{},
	}
}

func (o *objects) close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sto.Close()
}

// has reports whether an object is stored.
func (o *objects) has(h plumbing.Hash) bool {
	if o.under != nil && o.under.has(h) {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sto.HasEncodedObject(h) == nil
}

// holder returns the database that contains an object: o or the one under it.
func (o *objects) holder(h plumbing.Hash) *objects {
	if o.under != nil && o.under.has(h) {
		return o.under
	}
	return o
}

func (o *objects) commit(h plumbing.Hash) (*object.Commit, error) {
	o = o.holder(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	return object.GetCommit(o.sto, h)
}

// commitsWith returns the hashes of all commits that begin with these digits, in
// lower case, sorted.
func (o *objects) commitsWith(ctx context.Context, digits string) ([]string, error) {
	// The storage searches by whole bytes.
	prefix, err := hex.DecodeString(digits[:len(digits)/2*2])
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	hashes, err := o.sto.HashesWithPrefix(prefix)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, h := range hashes {
		if !strings.HasPrefix(h.String(), digits) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if _, err := object.GetCommit(o.sto, h); err == nil {
			out = append(out, h.String())
		} else if !errors.Is(err, plumbing.ErrObjectNotFound) {
			return nil, err
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

var errName = errors.New("forbidden name")

// tree returns the entries of a directory sorted by name; the caller must not change them.
// Names that are unsafe in a file system are rejected.
func (o *objects) tree(h plumbing.Hash) ([]object.TreeEntry, error) {
	o = o.holder(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	if entries, ok := o.trees[h]; ok {
		return entries, nil
	}
	if n, err := o.sto.EncodedObjectSize(h); err == nil && n > o.limits.meta {
		return nil, beyond("read tree %s: a directory of %d bytes; expected at most %d", h, n, o.limits.meta)
	}
	t, err := object.GetTree(o.sto, h)
	if err != nil {
		return nil, fmt.Errorf("read tree %s: %w", h, err)
	}
	entries := t.Entries
	slices.SortFunc(entries, func(a, b object.TreeEntry) int { return cmp.Compare(a.Name, b.Name) })
	for i, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || strings.Contains(e.Name, "/") || strings.EqualFold(e.Name, ".git") {
			return nil, fmt.Errorf("read tree %s: entry %q has a %w", h, e.Name, errName)
		}
		if i > 0 && entries[i-1].Name == e.Name {
			return nil, fmt.Errorf("read tree %s: entry %q occurs twice", h, e.Name)
		}
	}
	if o.entries += len(entries) + 1; o.entries > treeCacheEntries {
		clear(o.trees)
		o.entries = len(entries) + 1
	}
	o.trees[h] = entries
	return entries, nil
}

// size returns the size of an object's content.
func (o *objects) size(h plumbing.Hash) (int64, error) {
	o = o.holder(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	n, err := o.sto.EncodedObjectSize(h)
	if err != nil {
		return 0, fmt.Errorf("read size of object %s: %w", h, err)
	}
	return n, nil
}

// blob returns a new slice with the content of a file. A file larger than limit is an error
// and is never loaded into memory.
func (o *objects) blob(h plumbing.Hash, limit int64) ([]byte, error) {
	return o.content(plumbing.BlobObject, "the file", h, limit)
}

// content returns the content of an object of the given type. An object of more than limit
// bytes is an error, and is not read. Errors begin with what.
func (o *objects) content(of plumbing.ObjectType, what string, h plumbing.Hash, limit int64) ([]byte, error) {
	o = o.holder(h)
	o.mu.Lock()
	defer o.mu.Unlock()
	size, err := o.sto.EncodedObjectSize(h) // reading the object itself would load it into memory
	if errors.Is(err, plumbing.ErrObjectNotFound) && of == plumbing.BlobObject {
		return nil, beyond("%s is not in the mirror, which holds none of more than %d bytes", what, o.limits.blob)
	}
	if err == nil && size > limit {
		return nil, fmt.Errorf("%s has %d bytes, more than the limit of %d", what, size, limit)
	}
	obj, err := o.sto.EncodedObject(of, h)
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	r, err := obj.Reader()
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	defer r.Close()
	data := make([]byte, obj.Size())
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, fmt.Errorf("read object %s: %w", h, err)
	}
	return data, nil
}

// removeLeftovers removes the files of interrupted fetches: unfinished packs, indexes without
// a pack, which go-git would use for a later one, and unfinished references. A failure is
// harmless, because the next call retries.
func (o *objects) removeLeftovers() {
	packs := filepath.Join(o.dir, "objects", "pack")
	leftovers, _ := filepath.Glob(filepath.Join(packs, "tmp_*"))
	indexes, _ := filepath.Glob(filepath.Join(packs, "*.idx"))
	for _, f := range indexes {
		if !exists(strings.TrimSuffix(f, ".idx") + ".pack") {
			leftovers = append(leftovers, f)
		}
	}
	_ = filepath.WalkDir(filepath.Join(o.dir, "refs"), func(f string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if info, err := d.Info(); err == nil && info.Size() == 0 {
			leftovers = append(leftovers, f)
		}
		return nil
	})
	for _, f := range leftovers {
		_ = os.Remove(f)
	}
}

func (o *objects) ref(name plumbing.ReferenceName) (plumbing.Hash, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	ref, err := o.sto.Reference(name)
	if err != nil {
		return plumbing.ZeroHash, err
	}
	return ref.Hash(), nil
}

func (o *objects) setRef(name plumbing.ReferenceName, h plumbing.Hash) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sto.SetReference(plumbing.NewHashReference(name, h))
}

func (o *objects) removeRef(name plumbing.ReferenceName) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sto.RemoveReference(name)
}

// maxHaves bounds how many of the mirror's commits are sent to a server. If the common
// ancestor is older, the pack is only larger.
const maxHaves = 128

// haves returns recent commits of the mirror, the newest of each reference
// first.
func (o *objects) haves() []plumbing.Hash {
	if o.under != nil {
		return o.under.haves()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var queue []plumbing.Hash
	refs, err := o.sto.IterReferences()
	if err != nil {
		return nil // then everything is fetched and the unreadable reference replaced
	}
	_ = refs.ForEach(func(ref *plumbing.Reference) error {
		if ref.Type() == plumbing.HashReference {
			queue = append(queue, ref.Hash())
		}
		return nil
	})
	var haves []plumbing.Hash
	seen := map[plumbing.Hash]bool{}
	for i := 0; i < len(queue) && len(haves) < maxHaves; i++ {
		if seen[queue[i]] {
			continue
		}
		seen[queue[i]] = true
		c, err := object.GetCommit(o.sto, queue[i])
		if err != nil {
			continue
		}
		haves = append(haves, c.Hash)
		queue = append(queue, c.ParentHashes...)
	}
	return haves
}
