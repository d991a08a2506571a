package drift

import (
	"context"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
)

// saveInterval is how often what was learned is stored.
const saveInterval = time.Minute

// marks are what was learned of objects that were written and are as they were
// applied, and is not stored yet.
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

// saveMarks stores what was learned, so that a restart need not learn it again. What
// cannot be stored is learned again then.
func (d *Detector) saveMarks(ctx context.Context) {
	if items := d.marks.take(); len(items) > 0 {
		if err := d.Store.LearnMarks(ctx, items...); err != nil {
			d.Logger.Warn("what was learned of live objects could not be stored; it costs some reads after a restart", "objects", len(items), "error", err)
		}
	}
}

// learnMarks learns the marks of objects that are as applied by all that is recorded
// of them, by an earlier version of the agent without a mark.
func (j *judgement) learnMarks() {
	for _, s := range j.unmarked {
		if item, ok := j.item(s.tracked); ok {
			item.Mark = s.live
			j.marks.add(item)
		}
		s.mark = s.live
	}
}

// learn notes how an object is known to be right from now on: written, but as an apply
// would leave it.
func (j *judgement) learn(s suspect, c kubernetes.Compared) {
	item, ok := j.item(s.tracked)
	if !ok || item.UID != c.UID {
		return
	}
	if item.OwnedHash == c.OwnedHash && (item.Mark != c.Mark || item.ValuesDigest != c.ValuesDigest) {
		item.Mark, item.ValuesDigest = c.Mark, c.ValuesDigest
		j.marks.add(item)
	}
	s.ownedHash, s.mark, s.doubted = c.OwnedHash, c.Mark, false
}

// item returns what the inventory holds of an object.
func (j *judgement) item(t *tracked) (deploy.InventoryItem, bool) {
	for _, item := range j.material.inventory {
		if item.Cluster == t.cluster && item.Object.Key() == t.ref.Key() {
			return item, true
		}
	}
	return deploy.InventoryItem{}, false
}
