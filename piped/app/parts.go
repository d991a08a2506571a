package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// parts are the components of an agent and the resources to release after them.
type parts struct {
	components []part[func(context.Context) error]
	cleanups   []part[func() error] // in the order of construction; run in reverse
	grace      time.Duration        // for components to stop

	mu       sync.Mutex
	stopping map[string]bool // running components and releases, by name
}

type part[F any] struct {
	name string
	run  F
}

// add adds a component: run ends with its context.
func (p *parts) add(name string, run func(context.Context) error) {
	p.components = append(p.components, part[func(context.Context) error]{name, run})
}

// onClose adds a function that releases a resource.
func (p *parts) onClose(name string, run func() error) {
	p.cleanups = append(p.cleanups, part[func() error]{name, run})
}

// run runs every component until ctx ends or one fails, and then stops and releases
// everything. The error names what has not stopped within the grace and is abandoned: the
// process is about to end.
func (p *parts) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range p.components {
		group.Go(func() error {
			defer p.mark("component " + c.name)()
			if err := c.run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			return nil
		})
	}
	stopped := make(chan error, 1)
	go func() {
		err := group.Wait()
		stopped <- errors.Join(err, p.close())
	}()
	select {
	case err := <-stopped: // every component has ended
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-stopped:
		return err
	case <-time.After(p.grace):
		return fmt.Errorf("not stopped within %s: %s", p.grace, p.stuck())
	}
}

// close releases the resources in reverse order, once.
func (p *parts) close() error {
	var errs []error
	for _, c := range slices.Backward(p.cleanups) {
		done := p.mark("release of " + c.name)
		if err := c.run(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", c.name, err))
		}
		done()
	}
	p.cleanups = nil
	return errors.Join(errs...)
}

// mark records that something runs until done is called.
func (p *parts) mark(name string) (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopping == nil {
		p.stopping = map[string]bool{}
	}
	p.stopping[name] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.stopping, name)
	}
}

// stuck names what runs.
func (p *parts) stuck() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(p.stopping)), ", ")
}
