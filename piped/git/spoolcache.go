package git

import "slices"

// Bounds of a spoolCache. The latest content is cached even if it exceeds them.
const (
	spoolCacheCount = 512
	spoolCacheBytes = 48 << 20
	spoolCacheFiles = 8
)

// spoolCache is an LRU cache of contents while deltas are resolved. The zero value is ready to
// use.
type spoolCache struct {
	order []int32 // by last use, the latest at the end
	held  map[int32]*spool
	bytes int64
	files int
}

// get returns a cached content and marks it as used; nil if it is not cached.
func (c *spoolCache) get(i int32) *spool {
	s := c.held[i]
	if s == nil {
		return nil
	}
	at := slices.Index(c.order, i)
	c.order = append(slices.Delete(c.order, at, at+1), i)
	return s
}

// put adds a content. The cache closes it on eviction.
func (c *spoolCache) put(i int32, s *spool) {
	if c.held == nil {
		c.held = map[int32]*spool{}
	}
	c.held[i], c.order = s, append(c.order, i)
	c.count(s, 1)
	for len(c.order) > 1 && (c.bytes > spoolCacheBytes || c.files > spoolCacheFiles || len(c.order) > spoolCacheCount) {
		old := c.held[c.order[0]]
		delete(c.held, c.order[0])
		c.order = slices.Delete(c.order, 0, 1)
		c.count(old, -1)
		old.close()
	}
}

// count adds the size of s to the totals, or subtracts it if sign is -1.
func (c *spoolCache) count(s *spool, sign int) {
	c.bytes += int64(sign) * s.held()
	if s.file != nil {
		c.files += sign
	}
}

func (c *spoolCache) clear() {
	for _, s := range c.held {
		s.close()
	}
	*c = spoolCache{}
}
