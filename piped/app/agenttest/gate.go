package agenttest

import "sync"

// gate holds back bytes while it is silent, as a network that drops packets. New gates are open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed unless the gate is silent; nil if it never was
}

// Silence holds back every byte on all current and new connections until Speak: connections
// are neither refused nor answered.
func (g *gate) Silence() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open == nil || isClosed(g.open) {
		g.open = make(chan struct{})
	}
}

// Speak ends a Silence and delivers the held bytes.
func (g *gate) Speak() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil && !isClosed(g.open) {
		close(g.open)
	}
}

// wait returns when the gate is not silent.
func (g *gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		<-open
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
