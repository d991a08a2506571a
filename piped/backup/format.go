package backup

import (
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/store"
)

// format is the version of what doc.go describes.
const format = 1

// The members' names.
const (
	headerName   = "header.json"
	manifestName = "manifest.json"
	filesDir     = "files/"
	tablesDir    = "tables/"
)

// Header says what a backup is.
type Header struct {
	Format  int       `json:"format"`
	Schema  int64     `json:"schema"`
	Version string    `json:"version"` // of the piped that wrote it
	At      time.Time `json:"at"`
	Tables  []table   `json:"tables"`
}

type table struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
}

// manifest tells what the members before it are. Two of the same members are equal.
type manifest struct {
	Rows    map[string]int64 `json:"rows"` // by table; those without any are there, too
	Members []member         `json:"members"`
}

type member struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Contents are what a backup holds.
type Contents struct {
	Header
	Files map[string][]byte // of the data directory, by name
	Rows  map[string]int64  // how many, by table
}

// Total returns how many rows there are.
func (c Contents) Total() (n int64) {
	for _, rows := range c.Rows {
		n += rows
	}
	return n
}

// chunkName returns the name of a member with rows of a table; the first is 1.
func chunkName(table string, chunk int) string {
	return fmt.Sprintf("%s%s/%04d.jsonl", tablesDir, table, chunk)
}

// described returns tables as a header lists them.
func described(tables []store.Table) (out []table) {
	for _, t := range tables {
		d := table{Name: t.Name}
		for _, c := range t.Columns {
			d.Columns = append(d.Columns, c.Name)
		}
		out = append(out, d)
	}
	return out
}

func (t table) equal(other table) bool {
	return t.Name == other.Name && slices.Equal(t.Columns, other.Columns)
}
