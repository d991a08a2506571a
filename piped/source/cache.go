package source

import (
	"container/list"
	"sync"

	"github.com/c785c783/piped/piped/config"
)

// The memory of an outcome is estimated as memoryFactor times its text plus memoryOverhead.
const (
	memoryFactor   = 8
	memoryOverhead = 4 << 10
)

// key identifies a source.
type key struct {
	repoID, commit, config, secrets, renderers string
	pullRequest                                int
}

// outcome is the result of loading a source.
type outcome struct {
	source *Source // nil with an error
	err    error
	size   int64 // of the text of the source, or of the error
	// config is set if the result depends on the context of its renderer, which is outside
	// of the commit. context is the one for which the source was rendered.
	config  *config.Application
	context string
	// fixed reports that loading again returns the same result.
	fixed bool
}

// cache is an LRU cache of outcomes, bounded by their bytes. Its sources are never changed.
// The zero value is an empty cache.
type cache struct {
	mu      sync.Mutex
	entries map[key]*list.Element
	recent  list.List // of *entry, the latest in front
	bytes   int64
}

type entry struct {
	key     key
	outcome outcome
	bytes   int64
}

func (c *cache) get(k key) (outcome, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[k]
	if !ok {
		return outcome{}, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*entry).outcome, true
}

// put replaces the outcome of k, and evicts the least recently used ones beyond limit bytes.
func (c *cache) put(k key, o outcome, limit int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[k]; ok {
		c.remove(e)
	}
	bytes := o.size*memoryFactor + memoryOverhead
	if bytes > limit {
		return
	}
	if c.entries == nil {
		c.entries = map[key]*list.Element{}
	}
	c.entries[k] = c.recent.PushFront(&entry{key: k, outcome: o, bytes: bytes})
	c.bytes += bytes
	for c.bytes > limit {
		c.remove(c.recent.Back())
	}
}

func (c *cache) remove(element *list.Element) {
	e := c.recent.Remove(element).(*entry)
	delete(c.entries, e.key)
	c.bytes -= e.bytes
}
