package control

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// document serves a constant JSON document. It is compressed once, when it is first asked for.
type document struct {
	content    []byte
	etag       string
	compressed func() []byte
}

func newDocument(content []byte) *document {
	sum := sha256.Sum256(content)
	return &document{content, fmt.Sprintf(`"%x"`, sum[:8]), sync.OnceValue(func() []byte { return compress(content) })}
}

func compress(content []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(content) // a buffer takes everything
	_ = w.Close()
	return b.Bytes()
}

// ServeHTTP implements http.Handler. Clients keep the document and ask whether it has changed.
func (d *document) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	content, etag := d.content, d.etag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content, etag = d.compressed(), strings.TrimSuffix(d.etag, `"`)+`-gzip"`
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Vary", "Accept-Encoding")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", etag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}
