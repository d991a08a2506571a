package backup

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/store"
)

// Source provides the contents of a backup.
type Source struct {
	Store   *store.Store
	Files   map[string][]byte // files of the data directory, by name
	Version string            // of piped
	At      time.Time
}

// chunkSize is the size after which a member with rows is ended. Members are buffered, since
// a tar header contains the size of its member.
const chunkSize = 4 << 20

// Write writes a backup to w. After an error the output is unusable.
func Write(ctx context.Context, w io.Writer, src Source) (c Contents, err error) {
	err = src.Store.Snapshot(ctx, func(snapshot store.Snapshot) error {
		zipped, err := gzip.NewWriterLevel(w, gzip.BestSpeed) // fast: the open snapshot makes the database retain old rows
		if err != nil {
			return err
		}
		out := &writer{tar: tar.NewWriter(zipped), at: src.At.UTC(), manifest: manifest{Rows: map[string]int64{}}}
		c = Contents{
			Header: Header{Format: format, Schema: snapshot.Schema, Version: src.Version, At: out.at, Tables: described(snapshot.Tables)},
			Files:  src.Files, Rows: out.manifest.Rows,
		}
		if err := out.writeAll(ctx, c, snapshot); err != nil {
			return err
		}
		if err := errors.Join(out.tar.Close(), zipped.Close()); err != nil {
			return fmt.Errorf("write the backup: %w", err)
		}
		return nil
	})
	return c, err
}

type writer struct {
	tar      *tar.Writer
	at       time.Time
	manifest manifest
}

func (w *writer) writeAll(ctx context.Context, c Contents, snapshot store.Snapshot) error {
	if err := w.addJSON(headerName, c.Header); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		if err := w.add(filesDir+name, c.Files[name]); err != nil {
			return err
		}
	}
	for _, t := range snapshot.Tables {
		if err := w.addTable(ctx, t.Name, snapshot.Rows(ctx, t)); err != nil {
			return err
		}
	}
	return w.addJSON(manifestName, w.manifest)
}

// addTable writes the rows of a table, in one or more members.
func (w *writer) addTable(ctx context.Context, name string, rows iter.Seq2[[]any, error]) error {
	var buffer bytes.Buffer
	lines := json.NewEncoder(&buffer)
	lines.SetEscapeHTML(false)
	w.manifest.Rows[name] = 0
	chunks := 0
	flush := func() error {
		chunks++
		err := w.add(chunkName(name, chunks), buffer.Bytes())
		buffer.Reset()
		return err
	}
	for row, err := range rows {
		if err == nil {
			err = lines.Encode(row)
		}
		if err != nil {
			return err
		}
		w.manifest.Rows[name]++
		if buffer.Len() < chunkSize {
			continue
		}
		if err := errors.Join(flush(), ctx.Err()); err != nil {
			return err
		}
	}
	if buffer.Len() == 0 {
		return nil
	}
	return flush()
}

func (w *writer) addJSON(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return w.add(name, data)
}

func (w *writer) add(name string, data []byte) error {
	header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(data)), ModTime: w.at}
	if err := w.tar.WriteHeader(header); err != nil {
		return fmt.Errorf("write the backup: %s: %w", name, err)
	}
	if _, err := w.tar.Write(data); err != nil {
		return fmt.Errorf("write the backup: %s: %w", name, err)
	}
	sum := sha256.Sum256(data)
	w.manifest.Members = append(w.manifest.Members, member{name, hex.EncodeToString(sum[:])})
	return nil
}
