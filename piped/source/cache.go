package source

import (
	"container/list"
	"sync"
)

// Parsed objects take about this many times the memory of their text.
const (
	memoryFactor   = 8
	memoryOverhead = 4 << 10
)

// cache keeps the sources that were used last, up to a number of bytes. Sources
// in it are never changed. The zero value is empty and ready.
type cache struct {
	mu      sync.Mutex
	entries map[key]*list.Element
	recent  list.List // of *entry, the latest in front
	bytes   int64
}

type entry struct {
	key    key
	source *Source
	bytes  int64
}

func (c *cache) get(k key) (*Source, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[k]
	if !ok {
		return nil, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*entry).source, true
}

// put keeps s, whose text has the given size, and drops what was used longest
// ago until no more than limit bytes are kept.
func (c *cache) put(k key, s *Source, size, limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	bytes := size*memoryFactor + memoryOverhead
	if _, ok := c.entries[k]; ok || bytes > limit {
		return
	}
	if c.entries == nil {
		c.entries = map[key]*list.Element{}
	}
	c.entries[k] = c.recent.PushFront(&entry{key: k, source: s, bytes: bytes})
	c.bytes += bytes
	for c.bytes > limit {
		oldest := c.recent.Back()
		e := c.recent.Remove(oldest).(*entry)
		delete(c.entries, e.key)
		c.bytes -= e.bytes
	}
}
