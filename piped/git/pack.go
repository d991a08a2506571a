package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

func (o *objects) packDir() string { return filepath.Join(o.dir, "objects", "pack") }

// addPack stores the pack that write produces, completely or not at all. It leaves files that
// are too large to be read out of the index. It does not block readers. The error is ErrBeyond
// for a pack that exceeds the limits.
func (o *objects) addPack(ctx context.Context, write func(io.Writer) error) (err error) {
	if err := os.MkdirAll(o.packDir(), 0o700); err != nil {
		return fmt.Errorf("open a new pack: %w", err)
	}
	f, err := os.CreateTemp(o.packDir(), "tmp_pack_")
	if err != nil {
		return fmt.Errorf("open a new pack: %w", err)
	}
	index := strings.Replace(f.Name(), "tmp_pack_", "tmp_idx_", 1)
	defer func() {
		for _, name := range []string{f.Name(), index} {
			_ = os.Remove(name) // fails harmlessly after the rename by take
		}
	}()
	if err := errors.Join(write(f), f.Close()); err != nil {
		return err
	}
	sum, whole, err := indexPack(ctx, f.Name(), index, o.limits)
	if err != nil {
		return fmt.Errorf("index the received pack: %w", err)
	}
	o.partial = o.partial || !whole
	return o.take(filepath.Join(o.packDir(), "pack-"+sum.String()), f.Name(), index)
}

// take renames a pack and its index to their final names, the index first: removeLeftovers
// removes an index without a pack.
func (o *objects) take(name, pack, index string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.sto.Reindex()
	if err := os.Rename(index, name+".idx"); err != nil {
		return fmt.Errorf("store the received pack: %w", err)
	}
	if err := os.Rename(pack, name+".pack"); err != nil {
		return fmt.Errorf("store the received pack: %w", err)
	}
	return nil
}

// adoptLoose moves all objects that another database has outside of packs into this one. last is
// moved last: it refers to the others, which then are stored before it.
func (o *objects) adoptLoose(from *objects, last plumbing.Hash) error {
	files, err := filepath.Glob(filepath.Join(from.dir, "objects", "[0-9a-f][0-9a-f]", "*"))
	if err != nil {
		return err
	}
	slices.SortStableFunc(files, func(a, b string) int {
		isLast := func(file string) int {
			if filepath.Base(filepath.Dir(file))+filepath.Base(file) == last.String() {
				return 1
			}
			return 0
		}
		return isLast(a) - isLast(b)
	})
	for _, file := range files {
		dir := filepath.Join(o.dir, "objects", filepath.Base(filepath.Dir(file)))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		if err := os.Rename(file, filepath.Join(dir, filepath.Base(file))); err != nil {
			return err
		}
	}
	return nil
}

// adopt moves all packs of another database into this one.
func (o *objects) adopt(from *objects) error {
	packs, err := filepath.Glob(filepath.Join(from.packDir(), "pack-*.pack"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.packDir(), 0o700); err != nil {
		return err
	}
	for _, pack := range packs {
		base := strings.TrimSuffix(pack, ".pack")
		if err := o.take(filepath.Join(o.packDir(), filepath.Base(base)), pack, base+".idx"); err != nil {
			return err
		}
	}
	return nil
}
