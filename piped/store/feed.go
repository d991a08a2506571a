package store

import (
	"slices"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
)

// feed hands committed changes to those who watch. Its zero value is ready.
type feed struct {
	mu      sync.Mutex
	watches map[*Watch]struct{}
}

// publish never blocks: a watch keeps what its reader has not taken yet, each
// row once, a deployment once in each status, so that it is no larger than the
// set of rows.
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

// Watch is one reader's view of the change feed: hints that rows of its topics
// were written. A slow reader delays nobody and loses nothing.
type Watch struct {
	feed   *feed
	topics []deploy.Topic // empty: all
	signal chan struct{}

	mu      sync.Mutex
	pending []deploy.Change
	seen    map[deploy.Change]struct{}
}

// Watch starts a watch of the given topics, of all when none is given. Changes
// committed after it returned are seen by it: watch first, then read. The
// caller closes the watch.
//
// Moving evaluated commits is announced as TopicEvaluated, once for all applications
// concerned. Candidates are not announced: nobody waits for them.
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

// C returns the channel that holds a signal whenever Take has something to
// return. It is never closed.
func (w *Watch) C() <-chan struct{} { return w.signal }

// Take returns the changes since the last Take in the order of their first
// commit, each row once, a deployment once in each status.
func (w *Watch) Take() []deploy.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.pending
	w.pending = nil
	clear(w.seen)
	return out
}

// Close ends the watch: it gets nothing more. It may be called twice.
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
	default: // a signal is waiting already
	}
}
