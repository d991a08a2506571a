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

// publish never blocks. A watch stores each changed row once until it is taken, a
// deployment once per status, so that its memory is bounded by the number of rows.
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

// Watch is a subscription to changes of its topics. A slow reader delays no other and
// misses nothing.
type Watch struct {
	feed   *feed
	topics []deploy.Topic // empty: all
	signal chan struct{}

	mu      sync.Mutex
	pending []deploy.Change
	seen    map[deploy.Change]struct{}
}

// Watch starts a watch of the given topics, of all if none is given. It sees the changes
// that are committed after it returns: watch first, then read. The caller closes the
// watch.
//
// Changed evaluated commits are published as TopicEvaluated, once for all applications
// concerned. Candidates are not published.
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

// C returns a channel that holds a signal whenever Take has something to return. It is
// never closed.
func (w *Watch) C() <-chan struct{} { return w.signal }

// Take returns the changes since the last Take in the order of their first commit, each
// row once, a deployment once per status.
func (w *Watch) Take() []deploy.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.pending
	w.pending = nil
	clear(w.seen)
	return out
}

// Close ends the watch. It may be called twice.
func (w *Watch) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.watches, w)
}

func (w *Watch) add(changes []deploy.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
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
