package app

import "sync"

// liveChanges notifies subscribers of changes of the live objects of applications. The zero
// value is ready to use.
type liveChanges struct {
	mu          sync.Mutex
	subscribers map[string]map[*func()]bool // by application
}

// subscribe has changed called after objects of an application have changed. changed is called
// often and must return at once.
func (l *liveChanges) subscribe(applicationID string, changed func()) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.subscribers == nil {
		l.subscribers = map[string]map[*func()]bool{}
	}
	if l.subscribers[applicationID] == nil {
		l.subscribers[applicationID] = map[*func()]bool{}
	}
	l.subscribers[applicationID][&changed] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subscribers[applicationID], &changed)
		if len(l.subscribers[applicationID]) == 0 {
			delete(l.subscribers, applicationID)
		}
	}
}

// notify notifies the subscribers of an application; "" means all applications.
func (l *liveChanges) notify(applicationID string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, subscribers := range l.subscribers {
		if applicationID != "" && applicationID != id {
			continue
		}
		for changed := range subscribers {
			(*changed)()
		}
	}
}
