package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"
)

// packed is one object of a pack.
type packed struct {
	hash    plumbing.Hash // zero until known
	offset  int64
	size    int64 // of the content; of an unresolved delta, the size of its instructions
	largest int64 // size of the largest direct or indirect base
	base    int32 // index of the base of a delta; otherwise -1
	child   int32 // its first delta, -1 if there is none
	next    int32 // the next delta of the same base
	crc     uint32
	kind    plumbing.ObjectType // of a resolved delta, the type of its root
	left    bool                // omitted from the index: too large to be read
}

func (p *packed) isDelta() bool { return p.kind.IsDelta() }

// packIndexer lists the objects of a pack. go-git's indexer inflates each object in memory,
// whatever its size. This one loads no object larger than spoolInMemory into memory, leaves
// files that are too large to be read out of the index, and stops at the bounds.
type packIndexer struct {
	ctx      context.Context
	dir      string // for temporary files
	scanner  *packfile.Scanner
	limits   bounds
	inflated int64 // bytes that may still be inflated

	objects []packed
	byRef   map[plumbing.Hash][]int32 // deltas that name their base by hash
	cache   spoolCache
}

// indexPack writes the index of a pack next to it, and returns the pack's checksum. whole is
// false if objects were omitted. The cause of the error is ErrBeyond for a pack that exceeds
// the bounds.
func indexPack(ctx context.Context, pack, index string, limits bounds) (sum plumbing.Hash, whole bool, err error) {
	f, err := os.Open(pack)
	if err != nil {
		return sum, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return sum, false, err
	}
	x := &packIndexer{
		ctx: ctx, dir: filepath.Dir(pack), scanner: packfile.NewScanner(f), limits: limits,
		inflated: limits.inflated + limits.ratio*info.Size(), byRef: map[plumbing.Hash][]int32{},
	}
	defer x.cache.clear()
	if sum, err = x.scan(); err != nil {
		return sum, false, err
	}
	if err := x.resolve(); err != nil {
		return sum, false, err
	}
	whole = !slices.ContainsFunc(x.objects, func(o packed) bool { return o.left })
	return sum, whole, writePackIndex(index, x.objects, sum)
}

// scan reads the pack once. It records the offsets of all objects and the hashes of those that
// are not deltas.
func (x *packIndexer) scan() (sum plumbing.Hash, err error) {
	_, count, err := x.scanner.Header()
	if err != nil {
		return sum, err
	}
	if int64(count) > int64(x.limits.objects) {
		return sum, beyond("a pack of %d objects; expected at most %d", count, x.limits.objects)
	}
	at := map[int64]int32{} // indexes of objects by offset, to find the bases of deltas
	x.objects = make([]packed, 0, min(count, 1<<16))
	for i := range int32(count) {
		if err := x.ctx.Err(); err != nil {
			return sum, context.Cause(x.ctx)
		}
		header, err := x.scanner.NextObjectHeader()
		if err != nil {
			return sum, fmt.Errorf("object %d of the pack: %w", i, err)
		}
		if err := x.add(i, header, at); err != nil {
			return sum, fmt.Errorf("object %d of the pack: %w", i, err)
		}
		at[header.Offset] = i
	}
	return x.scanner.Checksum()
}

// add reads the data of object i after its header.
func (x *packIndexer) add(i int32, header *packfile.ObjectHeader, at map[int64]int32) (err error) {
	o := packed{offset: header.Offset, size: header.Length, kind: header.Type, base: -1, child: -1, next: -1}
	var hasher plumbing.Hasher
	content := io.Discard
	switch {
	case header.Type == plumbing.OFSDeltaObject:
		base, ok := at[header.OffsetReference]
		if !ok {
			return errors.New("it is a delta of nothing")
		}
		o.base, o.left = base, o.size > x.limits.delta
	case header.Type == plumbing.REFDeltaObject:
		o.left = o.size > x.limits.delta
		x.byRef[header.Reference] = append(x.byRef[header.Reference], i)
	case header.Type == plumbing.BlobObject && o.size > x.limits.blob:
		o.left = true
	case header.Type != plumbing.BlobObject && o.size > x.limits.meta:
		return beyond("a %s of %d bytes; expected at most %d", header.Type, o.size, x.limits.meta)
	default:
		hasher = plumbing.NewHasher(header.Type, header.Length)
		content = hasher
	}
	n, crc, err := x.scanner.NextObject(&meter{ctx: x.ctx, to: content, left: &x.inflated})
	if err != nil {
		return err
	}
	if n != o.size {
		return fmt.Errorf("it has %d bytes and announces %d", n, o.size)
	}
	if o.crc = crc; content != io.Discard {
		o.hash = hasher.Sum()
	}
	x.objects = append(x.objects, o)
	if o.base >= 0 {
		x.adopt(o.base, i)
	}
	return nil
}

// adopt adds object i to the deltas of base.
func (x *packIndexer) adopt(base, i int32) {
	x.objects[i].base = base
	x.objects[i].next, x.objects[base].child = x.objects[base].child, i
}

// meter forwards bytes and fails after *left of them, or when ctx ends.
type meter struct {
	ctx  context.Context
	to   io.Writer
	left *int64
}

func (m *meter) Write(p []byte) (int, error) {
	if m.ctx.Err() != nil {
		return 0, context.Cause(m.ctx)
	}
	if *m.left -= int64(len(p)); *m.left < 0 {
		return 0, beyond("a pack that inflates to far more than its size")
	}
	return m.to.Write(p)
}
