package backup_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/backup"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// entry is a member of an archive.
type entry struct{ name, data string }

func (e entry) header() *tar.Header {
	return &tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(e.data))}
}

// members unpacks an archive.
func members(t testing.TB, archive []byte) (out []entry) {
	t.Helper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(zipped); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Mode != 0o600 {
			t.Errorf("%s has mode %o", h.Name, h.Mode)
		}
		out = append(out, entry{h.Name, string(data)})
	}
}

// pack creates an archive.
func pack(t testing.TB, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	out := tar.NewWriter(zipped)
	for _, e := range entries {
		if err := out.WriteHeader(e.header()); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write([]byte(e.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(out.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// sealed appends the correct manifest.
func sealed(t testing.TB, entries []entry) []entry {
	t.Helper()
	var header struct{ Tables []struct{ Name string } }
	if err := json.Unmarshal([]byte(entries[0].data), &header); err != nil {
		t.Fatal(err)
	}
	rows, list := map[string]int{}, []any{}
	for _, table := range header.Tables {
		rows[table.Name] = 0
	}
	for _, e := range entries {
		sum := sha256.Sum256([]byte(e.data))
		list = append(list, map[string]string{"name": e.name, "sha256": hex.EncodeToString(sum[:])})
		if name, ok := strings.CutPrefix(e.name, "tables/"); ok {
			name, _, _ = strings.Cut(name, "/")
			rows[name] += strings.Count(strings.TrimSpace(e.data), "\n") + 1
		}
	}
	return append(slices.Clone(entries), entry{"manifest.json", asJSON(t, map[string]any{"rows": rows, "members": list})})
}

// headerOf returns the header of a backup with a schema version.
func headerOf(t testing.TB, schema int64) map[string]any {
	t.Helper()
	tables, err := store.Tables(t.Context(), schema)
	if err != nil {
		t.Fatal(err)
	}
	var described []any
	for _, table := range tables {
		var columns []string
		for _, c := range table.Columns {
			columns = append(columns, c.Name)
		}
		described = append(described, map[string]any{"name": table.Name, "columns": columns})
	}
	return map[string]any{"format": 1, "schema": schema, "version": "v0.1.0", "at": at, "tables": described}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestDamagedBackups: modified backups are rejected. Those that are sealed again have a
// correct manifest but wrong content.
func TestDamagedBackups(t *testing.T) {
	s := storetest.New(t, nil)
	storetest.Fill(t, s)
	archive := written(t, s)
	at := func(entries []entry, name string) int {
		i := slices.IndexFunc(entries, func(e entry) bool { return strings.HasPrefix(e.name, name) })
		if i < 0 {
			t.Fatalf("there is no %s", name)
		}
		return i
	}
	replace := func(name, old, by string) func([]entry) []entry {
		return func(es []entry) []entry {
			i := at(es, name)
			if !strings.Contains(es[i].data, old) {
				t.Fatalf("%s does not hold %s: %s", name, old, es[i].data)
			}
			es[i].data = strings.Replace(es[i].data, old, by, 1)
			return es
		}
	}
	add := func(name string) func([]entry) []entry {
		return func(es []entry) []entry { return slices.Insert(es, 1, entry{name, "x"}) }
	}
	for name, c := range map[string]struct {
		change func([]entry) []entry
		seal   bool // replace the manifest by a matching one
		want   string
	}{
		"nothing is wrong":           {func(es []entry) []entry { return es }, true, ""},
		"another value":              {replace("tables/applications/", `"web"`, `"wob"`), false, "tables/applications/0001.jsonl was modified"},
		"another key":                {replace("files/store.key", "\x01", "\x03"), false, "files/store.key was modified"},
		"another header":             {replace("header.json", "v1.2.3", "v1.2.4"), false, "header.json was modified"},
		"a member is gone":           {func(es []entry) []entry { return slices.Delete(es, 2, 3) }, false, "unexpected member "},
		"the last member is gone":    {func(es []entry) []entry { return slices.Delete(es, len(es)-2, len(es)-1) }, false, " is missing"},
		"no manifest":                {func(es []entry) []entry { return es[:len(es)-1] }, false, "its end is missing"},
		"members after the manifest": {func(es []entry) []entry { return append(es, entry{"files/x", ""}) }, false, "there is data after its end"},
		"a member twice":             {func(es []entry) []entry { return slices.Insert(es, 2, es[2]) }, false, "unexpected member "},
		"other numbers of rows":      {replace("manifest.json", `"counters":6`, `"counters":7`), false, "the number of rows differs from the manifest"},
		"an empty archive":           {func([]entry) []entry { return nil }, false, "its end is missing"},
		"nothing but a manifest":     {func([]entry) []entry { return []entry{{"manifest.json", `{"rows":{},"members":[]}`}} }, false, `it starts with "manifest.json"`},
		"another archive":            {func([]entry) []entry { return []entry{{"etc/passwd", "root"}} }, false, `the file is not a backup made by piped: it starts with "etc/passwd"`},
		"another format":             {replace("header.json", `"format":1`, `"format":2`), true, "of format 2, written by piped v1.2.3, and this version reads format 1: use that version"},
		"a newer schema":             {replace("header.json", `"schema":`, `"schema":9`), true, "was written by piped v1.2.3: use that version or a later one: schema 9"},
		"other tables":               {replace("header.json", `"role"`, `"rule"`), true, "its tables are not those of schema"},
		"a path out of it":           {add("../../etc/passwd"), true, `unexpected member "../../etc/passwd"`},
		"a file out of it":           {add("files/../store.key"), true, `unexpected member "files/../store.key"`},
		"the folder itself":          {add("files/.."), true, `unexpected member "files/.."`},
		"an absolute path":           {add("/etc/passwd"), true, `unexpected member "/etc/passwd"`},
		"an unknown table":           {add("tables/users/0001.jsonl"), true, `unexpected member "tables/users/0001.jsonl"`},
		"a path out of a table":      {add("tables/counters/../../x"), true, `unexpected member "tables/counters/../../x"`},
		"rows that are missing":      {add("tables/counters/0002.jsonl"), true, `unexpected member "tables/counters/0002.jsonl"`},
		"a large file": {func(es []entry) []entry {
			return slices.Insert(es, 1, entry{"files/large", strings.Repeat("x", 1<<20)})
		}, true, "the file large exceeds the size limit"},
		"a column too few":    {replace("tables/counters/", `["outbox",`, `[`), true, "a row of counters: 1 values for 2 columns"},
		"a text for a number": {replace("tables/agent/", `[1,`, `["1",`), true, "a row of agent: column id: string is no BIGINT"},
		"a number for a text": {replace("tables/counters/", `["outbox"`, `[7`), true, "a row of counters: column name: json.Number is no TEXT"},
		"a fraction":          {replace("tables/agent/", `[1,`, `[1.5,`), true, "a row of agent: column id: "},
		"bytes that are none": {replace("tables/api_keys/", `"AAH/Ig=="`, `"%"`), true, "a row of api_keys: column hash: illegal base64"},
		"a row cut short":     {replace("tables/agent/", `]`, ``), true, "a row of agent: unexpected EOF"},
		"no row":              {replace("tables/agent/", `[1`, `{}[1`), true, "a row of agent: json: cannot unmarshal object"},
	} {
		t.Run(name, func(t *testing.T) {
			entries := members(t, archive)
			if c.seal {
				entries = sealed(t, c.change(entries[:len(entries)-1]))
			} else {
				entries = c.change(entries)
			}
			refuses(t, pack(t, entries), c.want)
		})
	}
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"empty":                  {nil, "the file is not a backup made by piped: EOF"},
		"a text":                 {[]byte("once upon a time there was a file"), "the file is not a backup made by piped: gzip: invalid header"},
		"cut in the middle":      {archive[:len(archive)/2], "unexpected EOF"},
		"cut before the sum":     {archive[:len(archive)-8], "unexpected EOF"},
		"cut by a byte":          {archive[:len(archive)-1], "unexpected EOF"},
		"something after it":     {append(slices.Clone(archive), "more"...), "the backup is damaged"},
		"a byte in the middle":   {flipped(archive, len(archive)/2), "the backup is damaged"},
		"a byte of the checksum": {flipped(archive, len(archive)-6), "gzip: invalid checksum"},
	} {
		t.Run(name, func(t *testing.T) { refuses(t, c.archive, c.want) })
	}
}

func flipped(data []byte, at int) []byte {
	data = slices.Clone(data)
	data[at] ^= 0x10
	return data
}

// refuses reads an archive, which must fail with a text, or succeed if want is "".
func refuses(t *testing.T, archive []byte, want string) {
	t.Helper()
	_, err := backup.Read(t.Context(), bytes.NewReader(archive), nothing)
	switch {
	case want == "":
		if err != nil {
			t.Errorf("refused: %v", err)
		}
	case !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), want):
		t.Errorf("got %v (%s), want %q", err, deploy.KindOf(err), want)
	}
}

// TestDamageFoundWhileRestoring: a verified file can become unreadable later. Then nothing is
// stored.
func TestDamageFoundWhileRestoring(t *testing.T) {
	s := storetest.New(t, nil)
	storetest.Fill(t, s)
	archive := written(t, s)
	dsn := storetest.SQLite(t)
	err := store.Restore(t.Context(), dsn, s.State(t.Context()).SchemaVersion, func(put store.Put) error {
		_, err := backup.Read(t.Context(), bytes.NewReader(archive[:len(archive)-4]), put)
		return err
	})
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "damaged or incomplete") {
		t.Errorf("got %v", err)
	}
	for name, rows := range storetest.Rows(t, dsn) {
		if len(rows) > 0 && name != "counters" {
			t.Errorf("%d rows of %s were stored", len(rows), name)
		}
	}
	restored(t, archive, dsn)
}

// TestReadEnds: a cancelled read ends, and an error of put does not count as damage.
func TestReadEnds(t *testing.T) {
	s := storetest.New(t, nil)
	storetest.Fill(t, s)
	archive := written(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := backup.Read(ctx, bytes.NewReader(archive), nothing); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	full := deploy.Errorf(deploy.Unavailable, "the disk is full")
	_, err := backup.Read(t.Context(), bytes.NewReader(archive), func(store.Table, []any) error { return full })
	if !errors.Is(err, full) || strings.Contains(err.Error(), "damaged") {
		t.Errorf("a row that is not stored: %v", err)
	}
	var b bytes.Buffer
	if _, err := backup.Write(ctx, &b, backup.Source{Store: s}); !deploy.IsKind(err, deploy.Stopping) {
		t.Errorf("writing: %v", err)
	}
}
