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
	items map[string]mark // by application and key
}

// mark is an inventory item with its new mark.
type mark struct {
	item deploy.InventoryItem
	term deploy.Term // of the right that it was found with; zero if no replica shares the work
}

func (m *marks) add(item deploy.InventoryItem, terms []deploy.Term) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.items == nil {
		m.items = map[string]mark{}
	}
	found := mark{item: item}
	if len(terms) > 0 {
		found.term = terms[0]
	}
	m.items[item.ApplicationID+"\x00"+key(item.Cluster, item.Object)] = found
}

// take returns the marks by the term that they were found with.
func (m *marks) take() map[deploy.Term][]deploy.InventoryItem {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := map[deploy.Term][]deploy.InventoryItem{}
	for _, m := range m.items {
		found[m.term] = append(found[m.term], m.item)
	}
	m.items = nil
	return found
}

// saveMarks stores new marks, so that objects are not read again after a restart.
// Errors cost only these reads.
func (d *Detector) saveMarks(ctx context.Context) {
	for term, items := range d.marks.take() {
		if term != (deploy.Term{}) {
			ctx = deploy.WithTerms(ctx, []deploy.Term{term})
		}
		if err := d.Store.LearnMarks(ctx, items...); err != nil && !deploy.IsKind(err, deploy.Fenced) {
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
			e.learn(item)
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
		e.learn(item)
	}
	s.ownedHash, s.mark, s.doubted = c.OwnedHash, c.Mark, false
}

// learn has the new mark of an item stored, unless another replica does.
func (e *evaluation) learn(item deploy.InventoryItem) {
	if !e.unstored {
		e.marks.add(item, e.terms)
	}
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
