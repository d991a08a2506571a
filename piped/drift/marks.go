package drift

import (
	"context"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
)

// saveInterval is the interval in which marks are stored.
const saveInterval = time.Minute

// marks are new marks of objects that were written and are still in sync, not stored
// yet.
type marks struct {
	mu    sync.Mutex
	items map[string]deploy.InventoryItem // by application and key
}

func (m *marks) add(item deploy.InventoryItem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.items == nil {
		m.items = map[string]deploy.InventoryItem{}
	}
	m.items[item.ApplicationID+"\x00"+key(item.Cluster, item.Object)] = item
}

func (m *marks) take() (items []deploy.InventoryItem) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, item := range m.items {
		items = append(items, item)
	}
	m.items = nil
	return items
}

// saveMarks stores new marks, so that objects are not read again after a restart.
// Errors cost only these reads.
func (d *Detector) saveMarks(ctx context.Context) {
	if items := d.marks.take(); len(items) > 0 {
		if err := d.Store.LearnMarks(ctx, items...); err != nil {
			d.Logger.Warn("cannot store the marks of live objects; they are read again after a restart", "objects", len(items), "error", err)
		}
	}
}

// addMissingMarks adds marks to inventory items of earlier agent versions, for objects
// that are in sync.
func (e *evaluation) addMissingMarks() {
	for _, s := range e.unmarked {
		if item, ok := e.item(s.tracked); ok {
			item.Mark = s.live
			e.marks.add(item)
		}
		s.mark = s.live
	}
}

// updateMark records the new mark of an object that was written and is still in sync.
func (e *evaluation) updateMark(s suspect, c apply.Compared) {
	item, ok := e.item(s.tracked)
	if !ok || item.UID != c.UID {
		return
	}
	if item.OwnedHash == c.OwnedHash && (item.Mark != c.Mark || item.ValuesDigest != c.ValuesDigest) {
		item.Mark, item.ValuesDigest = c.Mark, c.ValuesDigest
		e.marks.add(item)
	}
	s.ownedHash, s.mark, s.doubted = c.OwnedHash, c.Mark, false
}

// item returns the inventory item of an object.
func (e *evaluation) item(t *tracked) (deploy.InventoryItem, bool) {
	for _, item := range e.material.inventory {
		if item.Cluster == t.cluster && item.Object.Key() == t.ref.Key() {
			return item, true
		}
	}
	return deploy.InventoryItem{}, false
}
