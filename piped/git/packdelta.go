package git

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
)

// resolve computes the hashes of all deltas. It starts from each complete object and resolves
// every delta after its base.
func (x *packIndexer) resolve() error {
	for i := range x.objects {
		if o := &x.objects[i]; o.base < 0 && !o.isDelta() {
			if err := x.resolveFrom(int32(i)); err != nil {
				return err
			}
		}
	}
	return x.unresolved()
}

// unresolved returns an error for a delta whose base is not in the pack. If objects were
// omitted, one of them may be the base; then the delta is omitted, too.
func (x *packIndexer) unresolved() error {
	someLeft := slices.ContainsFunc(x.objects, func(o packed) bool { return o.left })
	for i := range x.objects {
		o := &x.objects[i]
		if o.isDelta() && !o.left && !someLeft {
			return fmt.Errorf("object %d of the pack is a delta of an object that is not in it", i)
		}
		o.left = o.left || o.isDelta()
	}
	return nil
}

// resolveFrom resolves all direct and indirect deltas of one object.
func (x *packIndexer) resolveFrom(root int32) error {
	for todo := []int32{root}; len(todo) > 0; {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i != root {
			if err := x.resolveOne(i); err != nil {
				return fmt.Errorf("object %d of the pack: %w", i, err)
			}
		}
		if hash := x.objects[i].hash; !hash.IsZero() {
			for _, child := range x.byRef[hash] {
				if x.objects[child].base < 0 {
					x.adopt(i, child)
				}
			}
		}
		for child := x.objects[i].child; child >= 0; child = x.objects[child].next {
			todo = append(todo, child)
		}
	}
	return nil
}

// resolveOne computes the content and the hash of a delta whose base is resolved.
func (x *packIndexer) resolveOne(i int32) error {
	if x.ctx.Err() != nil {
		return context.Cause(x.ctx)
	}
	o := &x.objects[i]
	base := &x.objects[o.base]
	kind := base.kind
	if o.left = o.left || base.left; o.left {
		o.kind = kind
		return nil
	}
	content, err := x.apply(i, kind, true)
	if err != nil {
		return err
	}
	if o.kind = kind; content != nil {
		x.cache.put(i, content)
	}
	return nil
}

// content returns the content of an object. It is valid until the next call of content.
func (x *packIndexer) content(i int32) (*spool, error) {
	if c := x.cache.get(i); c != nil {
		return c, nil
	}
	way := []int32{i}
	for x.objects[way[len(way)-1]].base >= 0 && x.cache.get(way[len(way)-1]) == nil {
		way = append(way, x.objects[way[len(way)-1]].base)
	}
	for n := len(way) - 1; n >= 0; n-- {
		at := way[n]
		if x.cache.get(at) != nil {
			continue
		}
		var c *spool
		var err error
		if x.objects[at].base < 0 {
			c, err = x.inflate(at, x.objects[at].size)
		} else {
			c, err = x.apply(at, x.objects[at].kind, false)
		}
		if err != nil {
			return nil, err
		}
		x.cache.put(at, c)
	}
	return x.cache.get(i), nil
}

// inflate returns the inflated data of an object: its content, or the instructions of a delta.
func (x *packIndexer) inflate(i int32, size int64) (*spool, error) {
	if _, err := x.scanner.SeekObjectHeader(x.objects[i].offset); err != nil {
		return nil, err
	}
	s, err := newSpool(x.dir, size)
	if err != nil {
		return nil, err
	}
	if _, _, err := x.scanner.NextObject(&meter{ctx: x.ctx, to: s, left: &x.inflated}); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// apply computes the content of a delta. If first is set it also computes size and hash, and
// returns no content if no delta can depend on the result or the object is omitted.
func (x *packIndexer) apply(i int32, kind plumbing.ObjectType, first bool) (*spool, error) {
	o := &x.objects[i]
	base, err := x.content(o.base)
	if err != nil {
		return nil, err
	}
	instructions := o.size
	if !first {
		header, err := x.scanner.SeekObjectHeader(o.offset)
		if err != nil {
			return nil, err
		}
		instructions = header.Length
	}
	delta, err := x.inflate(i, instructions)
	if err != nil {
		return nil, err
	}
	defer delta.close()
	d, err := readDelta(delta, base)
	if err != nil {
		return nil, err
	}
	out, to := (*spool)(nil), io.Discard
	if first {
		if err := x.measure(i, kind, d.size); err != nil || o.left {
			return nil, err
		}
	}
	if !first || o.child >= 0 || len(x.byRef) > 0 {
		if out, err = newSpool(x.dir, d.size); err != nil {
			return nil, err
		}
		to = out
	}
	hasher := plumbing.NewHasher(kind, d.size)
	if err := d.write(&meter{ctx: x.ctx, to: io.MultiWriter(to, hasher), left: &x.inflated}); err != nil {
		if out != nil {
			out.close()
		}
		return nil, err
	}
	if first {
		o.hash = hasher.Sum()
	}
	return out, nil
}

// measure stores the size of a delta's content, and omits files that are too large to be read.
func (x *packIndexer) measure(i int32, kind plumbing.ObjectType, size int64) error {
	o := &x.objects[i]
	base := &x.objects[o.base]
	o.size, o.largest = size, max(base.largest, base.size)
	switch {
	case kind != plumbing.BlobObject && size > x.limits.meta:
		return beyond("a %s of %d bytes; expected at most %d", kind, size, x.limits.meta)
	case size > x.limits.blob, size <= defaultMaxFileSize && o.largest > x.limits.base:
		o.left = true
	}
	return nil
}

// delta is a list of instructions that build an object from a base.
type delta struct {
	in   *bufio.Reader
	base *spool
	size int64 // of the result
}

// readDelta parses the header of instructions and checks the size of base.
func readDelta(instructions, base *spool) (*delta, error) {
	d := &delta{in: bufio.NewReader(instructions.reader()), base: base}
	from, err := binary.ReadUvarint(d.in)
	if err != nil {
		return nil, fmt.Errorf("read a delta: %w", err)
	}
	if int64(from) != base.size {
		return nil, fmt.Errorf("a delta of an object of %d bytes, which has %d", from, base.size)
	}
	size, err := binary.ReadUvarint(d.in)
	if err != nil {
		return nil, fmt.Errorf("read a delta: %w", err)
	}
	if d.size = int64(size); d.size < 0 {
		return nil, fmt.Errorf("read a delta: its result has an impossible size of %d bytes", size)
	}
	return d, nil
}

// write writes the result of the instructions, which must have the announced size.
func (d *delta) write(to io.Writer) error {
	left := d.size
	for {
		op, err := d.in.ReadByte()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var n int64
		if op&0x80 != 0 {
			n, err = d.copy(op, to, left)
		} else {
			n, err = d.insert(op, to, left)
		}
		if err != nil {
			return err
		}
		left -= n
	}
	if left != 0 {
		return fmt.Errorf("a delta that makes %d bytes less than it announces", left)
	}
	return nil
}

// insert writes bytes that the delta itself contains.
func (d *delta) insert(op byte, to io.Writer, left int64) (int64, error) {
	if op == 0 || int64(op) > left {
		return 0, errors.New("a delta with an invalid instruction")
	}
	return io.CopyN(to, d.in, int64(op))
}

// copy writes a range of the base. Seven bits of op select the bytes of its offset and length
// that follow.
func (d *delta) copy(op byte, to io.Writer, left int64) (int64, error) {
	var at, n int64
	for bit := range 7 {
		if op&(1<<bit) == 0 {
			continue
		}
		b, err := d.in.ReadByte()
		if err != nil {
			return 0, fmt.Errorf("read a delta: %w", err)
		}
		if bit < 4 {
			at |= int64(b) << (8 * bit)
		} else {
			n |= int64(b) << (8 * (bit - 4))
		}
	}
	if n == 0 {
		n = 0x10000
	}
	if n > left || at+n > d.base.size {
		return 0, errors.New("a delta that copies what is not there")
	}
	return io.Copy(to, io.NewSectionReader(d.base, at, n))
}
