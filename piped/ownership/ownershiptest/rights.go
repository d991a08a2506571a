// Package ownershiptest gives and takes away the rights of a replica in tests of components.
package ownershiptest

import (
	"context"
	"sync"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership"
)

// Rights are the rights of one replica. It has none at first.
type Rights struct {
	mu     sync.Mutex
	held   map[string]*grant
	gained chan struct{}
}

var _ ownership.Rights = (*Rights)(nil)

// grant is the right to a key.
type grant struct {
	term   deploy.Term
	moving chan struct{}
	lease  context.Context
	lose   context.CancelCauseFunc
	users  sync.WaitGroup
}

// New returns rights to keys.
func New(keys ...string) *Rights {
	r := &Rights{held: map[string]*grant{}, gained: make(chan struct{})}
	for _, key := range keys {
		r.Grant(key)
	}
	return r
}

// Grant gives the right to a key, with the term of a store in which no replica has worked.
func (r *Rights) Grant(key string) {
	r.GrantTerm(key, deploy.Term{Partition: deploy.PartitionOf(key)})
}

// GrantTerm gives the right to a key with a term.
func (r *Rights) GrantTerm(key string, term deploy.Term) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := &grant{term: term, moving: make(chan struct{})}
	g.lease, g.lose = context.WithCancelCause(context.Background())
	r.held[key] = g
	close(r.gained)
	r.gained = make(chan struct{})
}

// Lose takes the right to a key away, as from a replica that could not renew it.
func (r *Rights) Lose(key string) { r.remove(key).lose(ownership.ErrLost) }

// HandOver takes the right to a key away, and waits until the work with it has ended.
func (r *Rights) HandOver(key string) {
	g := r.remove(key)
	close(g.moving)
	g.users.Wait()
}

func (r *Rights) remove(key string) *grant {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.held[key]
	delete(r.held, key)
	return g
}

// Own implements ownership.Rights.
func (r *Rights) Own(ctx context.Context, key string) (ownership.Work, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g := r.held[key]
	if g == nil {
		return ownership.Work{}, false
	}
	g.users.Add(1)
	work, cancel := context.WithCancelCause(deploy.WithTerm(ctx, g.term))
	stop := context.AfterFunc(g.lease, func() { cancel(context.Cause(g.lease)) })
	return ownership.Work{Context: work, Moving: g.moving, Done: sync.OnceFunc(func() {
		stop()
		cancel(context.Canceled)
		g.users.Done()
	})}, true
}

// Gained implements ownership.Rights.
func (r *Rights) Gained() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gained
}
