package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// maxFile limits the files of a data directory, which are keys.
const maxFile = 64 << 10

// Read reads and verifies a backup and returns its contents; put gets each row, in an order
// in which they can be stored. The rows are valid only if Read succeeds, since the manifest
// is at the end. The error is of kind Invalid, with what to do, if the input is no backup,
// is incomplete or modified, or has an unknown format or schema version.
func Read(ctx context.Context, in io.Reader, put store.Put) (Contents, error) {
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return Contents{}, deploy.Errorf(deploy.Invalid, "the file is not a backup made by piped: %w", err)
	}
	r := &reader{tar: tar.NewReader(zipped), put: put, chunks: map[string]int{}, seen: manifest{Rows: map[string]int64{}}}
	r.contents = Contents{Files: map[string][]byte{}, Rows: r.seen.Rows}
	err = r.readAll(ctx)
	if err == nil {
		_, err = io.Copy(io.Discard, zipped) // verifies the gzip checksum
	}
	var refused *deploy.Error
	switch {
	case err == nil:
		return r.contents, nil
	case errors.As(err, &refused):
		return Contents{}, err
	case ctx.Err() != nil:
		return Contents{}, fmt.Errorf("read the backup: %w", ctx.Err())
	}
	return Contents{}, damaged("%w", err)
}

// damaged returns the error of an unusable backup.
func damaged(format string, args ...any) error {
	return deploy.Errorf(deploy.Invalid, "the backup is damaged or incomplete: %w: copy it again from its origin, or use another one", fmt.Errorf(format, args...))
}

type reader struct {
	tar      *tar.Reader
	put      store.Put
	contents Contents
	tables   []store.Table
	chunks   map[string]int // number of chunks read, by table
	seen     manifest       // of the members read so far
}

// readAll reads all members.
func (r *reader) readAll(ctx context.Context) error {
	for {
		h, err := r.tar.Next()
		switch {
		case errors.Is(err, io.EOF):
			return damaged("its end is missing")
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if h.Name == manifestName && len(r.seen.Members) > 0 {
			return r.readManifest()
		}
		sum := sha256.New()
		if err := r.readMember(ctx, h, io.TeeReader(r.tar, sum)); err != nil {
			return err
		}
		if err := r.note(h.Name, sum); err != nil {
			return err
		}
	}
}

// note reads the rest of a member and records it.
func (r *reader) note(name string, sum hash.Hash) error {
	if _, err := io.Copy(sum, r.tar); err != nil {
		return err
	}
	r.seen.Members = append(r.seen.Members, member{name, hex.EncodeToString(sum.Sum(nil))})
	return nil
}

// readMember reads one member. It accepts only names that Write uses and never writes to a
// path from the archive.
func (r *reader) readMember(ctx context.Context, h *tar.Header, in io.Reader) error {
	switch {
	case h.Typeflag != tar.TypeReg:
	case len(r.seen.Members) == 0:
		if h.Name == headerName {
			return r.readHeader(ctx, in)
		}
		return deploy.Errorf(deploy.Invalid, "the file is not a backup made by piped: it starts with %q", h.Name)
	case strings.HasPrefix(h.Name, filesDir):
		if name := strings.TrimPrefix(h.Name, filesDir); name != "" && name != "." && name != ".." && !strings.ContainsAny(name, `/\`) {
			return r.readFile(name, in)
		}
	default:
		for _, t := range r.tables {
			if h.Name == chunkName(t.Name, r.chunks[t.Name]+1) {
				r.chunks[t.Name]++
				return r.readRows(t, in)
			}
		}
	}
	return damaged("unexpected member %q", h.Name)
}

// readHeader reads the header and rejects unknown versions.
func (r *reader) readHeader(ctx context.Context, in io.Reader) error {
	h := &r.contents.Header
	if err := json.NewDecoder(in).Decode(h); err != nil {
		return damaged("%s: %w", headerName, err)
	}
	if h.Format != format {
		return deploy.Errorf(deploy.Invalid, "the backup is of format %d, written by piped %s, and this version reads format %d: use that version of piped", h.Format, h.Version, format)
	}
	tables, err := store.Tables(ctx, h.Schema)
	if deploy.IsKind(err, deploy.Invalid) {
		err = fmt.Errorf("the backup was written by piped %s: use that version or a later one: %w", h.Version, err)
	}
	if err != nil {
		return err
	}
	if !slices.EqualFunc(h.Tables, described(tables), table.equal) {
		return damaged("its tables are not those of schema %d", h.Schema)
	}
	r.tables = tables
	for _, t := range tables {
		r.seen.Rows[t.Name] = 0
	}
	return nil
}

func (r *reader) readFile(name string, in io.Reader) error {
	data, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return err
	}
	if len(data) > maxFile {
		return damaged("the file %s exceeds the size limit", name)
	}
	r.contents.Files[name] = data
	return nil
}

func (r *reader) readRows(t store.Table, in io.Reader) error {
	lines := json.NewDecoder(in)
	lines.UseNumber()
	for {
		var line []any
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = decode(t, line)
		}
		if err != nil {
			return damaged("a row of %s: %w", t.Name, err)
		}
		r.seen.Rows[t.Name]++
		if err := r.put(t, line); err != nil {
			return err
		}
	}
}

// readManifest compares the members and rows with the manifest.
func (r *reader) readManifest() error {
	var written manifest
	if err := json.NewDecoder(r.tar).Decode(&written); err != nil {
		return damaged("%s: %w", manifestName, err)
	}
	for i, m := range r.seen.Members {
		if i >= len(written.Members) || written.Members[i].Name != m.Name {
			return damaged("unexpected member %s", m.Name)
		}
		if written.Members[i].SHA256 != m.SHA256 {
			return damaged("%s was modified", m.Name)
		}
	}
	if n := len(r.seen.Members); n < len(written.Members) {
		return damaged("%s is missing", written.Members[n].Name)
	}
	if !maps.Equal(written.Rows, r.seen.Rows) {
		return damaged("the number of rows differs from the manifest")
	}
	if _, err := r.tar.Next(); !errors.Is(err, io.EOF) {
		return damaged("there is data after its end")
	}
	return nil
}
