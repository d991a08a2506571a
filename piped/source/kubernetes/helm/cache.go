package helm

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// cache stores downloaded charts and indexes on disk. Each content is stored once, named by
// its SHA-256; a reference file for each key holds the digest. Corrupt files count as missing,
// and write errors are ignored. If the cache is full, the oldest files are evicted.
type cache struct {
	dir   string     // "" disables the cache
	limit int64      // in bytes
	mu    sync.Mutex // held while files are written and removed
}

func newCache(dir string, limit int64) (*cache, error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory of downloaded Helm charts: %w", err)
		}
	}
	return &cache{dir: dir, limit: limit}, nil
}

// get returns the content stored for a key, false if there is none.
func (c *cache) get(key ...string) ([]byte, bool) {
	if c.dir == "" {
		return nil, false
	}
	digest, err := os.ReadFile(c.reference(key))
	if err != nil || len(digest) != hex.EncodedLen(sha256.Size) {
		return nil, false
	}
	data, err := os.ReadFile(c.content(string(digest)))
	if err != nil || hexSum(data) != string(digest) {
		return nil, false
	}
	return data, true
}

// put stores the content for a key and removes the key's previous content. It ignores errors.
func (c *cache) put(data []byte, key ...string) {
	if c.dir == "" || int64(len(data)) > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	digest := hexSum(data)
	content, reference := c.content(digest), c.reference(key)
	if was, err := os.ReadFile(reference); err == nil && len(was) == len(digest) && string(was) != digest {
		_ = os.Remove(c.content(string(was))) // other keys with this content miss and download it again
	}
	if c.write(content, data) == nil && c.write(reference, []byte(digest)) == nil {
		_ = c.shrink(content, reference) // the next put tries again
	}
}

// write creates or replaces a file atomically.
func (c *cache) write(name string, data []byte) error {
	f, err := os.CreateTemp(c.dir, "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// shrink removes the oldest files, except those in keep, until the rest is within the limit.
func (c *cache) shrink(keep ...string) error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	var files []fs.FileInfo
	var size int64
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			continue
		}
		size += info.Size()
		if !slices.Contains(keep, filepath.Join(c.dir, info.Name())) {
			files = append(files, info)
		}
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int {
		return cmp.Or(a.ModTime().Compare(b.ModTime()), strings.Compare(a.Name(), b.Name()))
	})
	for _, oldest := range files {
		if size <= c.limit {
			return nil
		}
		if err := os.Remove(filepath.Join(c.dir, oldest.Name())); err != nil {
			return err
		}
		size -= oldest.Size()
	}
	return nil
}

func (c *cache) content(digest string) string { return filepath.Join(c.dir, digest+".tgz") }

func (c *cache) reference(key []string) string {
	return filepath.Join(c.dir, hexSum(fmt.Appendf(nil, "%q", key))+".ref")
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
