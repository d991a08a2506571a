package git

import (
	"bufio"
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"

	"github.com/go-git/go-git/v5/plumbing"
)

// writePackIndex writes the index of a pack in version 2 of Git's format.
func writePackIndex(name string, objects []packed, pack plumbing.Hash) (err error) {
	sorted := make([]int32, 0, len(objects))
	for i := range objects {
		if !objects[i].left {
			sorted = append(sorted, int32(i))
		}
	}
	slices.SortFunc(sorted, func(a, b int32) int { return slices.Compare(objects[a].hash[:], objects[b].hash[:]) })
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o444)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	sum := sha1.New()
	buffered := bufio.NewWriter(f)
	w := &indexWriter{to: io.MultiWriter(buffered, sum)}
	w.write([]byte{0xff, 't', 'O', 'c', 0, 0, 0, 2})
	w.fanout(objects, sorted)
	for _, i := range sorted {
		w.write(objects[i].hash[:])
	}
	for _, i := range sorted {
		w.number(objects[i].crc)
	}
	w.offsets(objects, sorted)
	w.write(pack[:])
	w.write(sum.Sum(nil))
	return errors.Join(w.err, buffered.Flush())
}

// indexWriter writes until the first error and stores it.
type indexWriter struct {
	to  io.Writer
	err error
}

func (w *indexWriter) write(p []byte) {
	if w.err == nil {
		_, w.err = w.to.Write(p)
	}
}

func (w *indexWriter) number(n uint32) { w.write(binary.BigEndian.AppendUint32(nil, n)) }

// fanout writes, for each byte value, the number of hashes whose first byte is at most that
// value.
func (w *indexWriter) fanout(objects []packed, sorted []int32) {
	n := 0
	for first := range 256 {
		for n < len(sorted) && int(objects[sorted[n]].hash[0]) <= first {
			n++
		}
		w.number(uint32(n))
	}
}

// offsets writes the offsets of the objects. Offsets of more than 31 bits are written to a
// separate table after the others.
func (w *indexWriter) offsets(objects []packed, sorted []int32) {
	var far []int64
	for _, i := range sorted {
		offset := objects[i].offset
		if offset < 1<<31 {
			w.number(uint32(offset))
			continue
		}
		w.number(1<<31 | uint32(len(far)))
		far = append(far, offset)
	}
	for _, offset := range far {
		w.write(binary.BigEndian.AppendUint64(nil, uint64(offset)))
	}
}
