package backup

import (
	"archive/tar"
	"slices"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// FuzzMember: only expected members are read, and every row that is passed on has values of
// its columns' types.
func FuzzMember(f *testing.F) {
	tables, err := store.Tables(f.Context(), 1)
	if err != nil {
		f.Fatal(err)
	}
	for name, data := range map[string]string{
		"files/store.key": "key", "files/..": "", "/etc/passwd": "root", "tables//0001.jsonl": "[]", "tables/counters/0001.jsonl": `["outbox",7]`,
		"tables/api_keys/0001.jsonl": `["k1","ci","ci","READ_ONLY","aGFzaA==",false,1]` + "\n" + `["k2","","","","%",null,1e400]`,
	} {
		f.Add(name, data)
	}
	f.Fuzz(func(t *testing.T, name, data string) {
		r := &reader{
			tables: tables, chunks: map[string]int{}, contents: Contents{Files: map[string][]byte{}},
			seen: manifest{Rows: map[string]int64{}, Members: []member{{Name: headerName}}},
			put: func(table store.Table, row []any) error {
				for i, c := range table.Columns {
					if !fits(c.Type, row[i]) {
						t.Errorf("%s.%s is %T", table.Name, c.Name, row[i])
					}
				}
				return nil
			},
		}
		err := r.readMember(t.Context(), &tar.Header{Name: name, Typeflag: tar.TypeReg}, strings.NewReader(data))
		if err != nil && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("kind %s: %v", deploy.KindOf(err), err)
		}
		known := strings.HasPrefix(name, "files/") && strings.Count(name, "/") == 1 || slices.ContainsFunc(tables, func(table store.Table) bool {
			return name == "tables/"+table.Name+"/0001.jsonl"
		})
		if err == nil && !known {
			t.Errorf("%q was read", name)
		}
	})
}

func fits(kind store.ColumnType, v any) bool {
	switch v.(type) {
	case nil:
		return true
	case string:
		return kind == store.Text
	case int64:
		return kind == store.Number
	case bool:
		return kind == store.Boolean
	case []byte:
		return kind == store.Bytes
	}
	return false
}
