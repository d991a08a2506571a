package kubernetes

import (
	"maps"
	"sync"
)

// woken counts who was woken.
type woken struct {
	mu    sync.Mutex
	times map[string]int
}

func newWoken() *woken { return &woken{times: map[string]int{}} }

func (w *woken) wake(applicationID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.times[applicationID]++
}

// take returns how often applications were woken since the last call.
func (w *woken) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	times := maps.Clone(w.times)
	clear(w.times)
	return times
}
