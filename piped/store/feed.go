package store

import (
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
)

// feed delivers committed changes to watches. Its zero value is ready to use.
type feed struct {
	mu      sync.Mutex
	watches map[*Watch]struct{}
}

// publish adds changes to the watches. It never blocks. Until Take a watch stores each changed
// row once, and a deployment once per status, so that its memory is bounded by the number of
// rows.
func (f *feed) publish(changes []deploy.Change) {
	if len(changes) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for w := range f.watches {
		w.add(changes)
	}
}

// Watch is a subscription to changes of its topics. A slow reader does not delay others and
// misses nothing.
type Watch struct {
	feed   *feed
	topics []deploy.Topic // empty: all
	signal chan struct{}

	// Guarded by the mutex of the feed.
	pending []deploy.Change
	seen    map[deploy.Change]struct{}
}

// Watch starts a watch of the given topics, of all topics if none is given. It delivers the
// changes committed after it returns: watch first, then read. The caller closes the watch.
//
// New evaluated commits are published as TopicEvaluated, once for all applications. Changes of
// candidates are not published.
func (s *Store) Watch(topics ...deploy.Topic) *Watch {
	w := &Watch{feed: &s.feed, topics: topics, signal: make(chan struct{}, 1), seen: map[deploy.Change]struct{}{}}
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	if s.feed.watches == nil {
		s.feed.watches = map[*Watch]struct{}{}
	}
	s.feed.watches[w] = struct{}{}
	return w
}

// C returns a channel that receives a signal when Take has changes to return. It is never
// closed.
func (w *Watch) C() <-chan struct{} { return w.signal }

// Take returns the changes since the last Take in the order of their first commit: each row
// once, a deployment once per status. All watches of their topics have them by then: a change that
// one watch returns is in the others, too.
func (w *Watch) Take() []deploy.Change {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	out := w.pending
	w.pending = nil
	clear(w.seen)
	return out
}

// Close ends the watch. It is idempotent.
func (w *Watch) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.watches, w)
}

func (w *Watch) add(changes []deploy.Change) {
	for _, c := range changes {
		if _, dup := w.seen[c]; dup || (len(w.topics) > 0 && !slices.Contains(w.topics, c.Topic)) {
			continue
		}
		w.seen[c] = struct{}{}
		w.pending = append(w.pending, c)
	}
	if len(w.pending) == 0 {
		return
	}
	select {
	case w.signal <- struct{}{}:
	default: // a signal is pending already
	}
}
