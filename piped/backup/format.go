package backup

import (
	"fmt"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/store"
)

// format is the version of the format that doc.go describes.
const format = 1

// Names of members.
const (
	headerName   = "header.json"
	manifestName = "manifest.json"
	filesDir     = "files/"
	tablesDir    = "tables/"
)

// Header is the first member of a backup.
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

// manifest describes the preceding members. Equal members have equal manifests.
type manifest struct {
	Rows    map[string]int64 `json:"rows"` // by table, including empty ones
	Members []member         `json:"members"`
}

type member struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Contents summarizes a backup.
type Contents struct {
	Header
	Files map[string][]byte // files of the data directory, by name
	Rows  map[string]int64  // number of rows, by table
}

// Total returns the number of rows of all tables.
func (c Contents) Total() (n int64) {
	for _, rows := range c.Rows {
		n += rows
	}
	return n
}

// chunkName returns the name of a member with rows of a table; chunks count from 1.
func chunkName(table string, chunk int) string {
	return fmt.Sprintf("%s%s/%04d.jsonl", tablesDir, table, chunk)
}

// described converts tables for a header.
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
