package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The bounds of supervision.
const (
	stopGrace    = 2 * time.Second // from SIGTERM to SIGKILL, which all of them are made to survive
	minBackoff   = 250 * time.Millisecond
	maxBackoff   = 10 * time.Second
	steadyAfter  = 30 * time.Second // a child that lived this long starts its back-off anew
	startTimeout = 60 * time.Second
)

// The states of a component.
const (
	stateStopped    = "stopped"
	stateStarting   = "starting"
	stateRunning    = "running"
	stateStopping   = "stopping"
	stateRestarting = "restarting" // died by itself, waiting for its next start
)

// supervised is one component and the child that runs it. Its methods are
// safe for concurrent use; start and stop take turns.
type supervised struct {
	component
	dir     dir
	spawner *spawner
	stderr  io.Writer

	turn sync.Mutex // held by start and stop from begin to end

	mu    sync.Mutex // guards what follows
	state string
	proc  *process
	keep  context.CancelFunc // ends the present keeper; nil when stopped
	kept  chan struct{}      // closed when the keeper has returned
}

// status is what the outside may know of a component.
type status struct {
	Name  string `json:"name"`
	State string `json:"state"`
	PID   int    `json:"pid"`
	Port  int    `json:"port"`
}

func (s *supervised) status() status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := status{Name: s.name, State: s.state, Port: s.port}
	if s.proc != nil {
		st.PID = s.proc.pid
	}
	return st
}

func (s *supervised) set(state string, p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.proc = state, p
}

// start runs the component and returns when it is ready. If the first child
// ends before that, the error holds the last lines of its log and the
// component stays stopped. A component that runs already is left alone.
func (s *supervised) start(ctx context.Context) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.keep != nil {
		return s.awaitReady(ctx, nil)
	}
	p, err := s.spawner.start(s.dir, s.component)
	if err != nil {
		return err
	}
	s.set(stateStarting, p)
	if err := s.awaitReady(ctx, p); err != nil {
		s.end(p)
		return err
	}
	s.set(stateRunning, p)
	keepCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.keep, s.kept = cancel, make(chan struct{})
	go s.run(keepCtx, p, s.kept)
	return nil
}

// stop ends the component and returns when its child is gone.
func (s *supervised) stop() {
	s.turn.Lock()
	defer s.turn.Unlock()
	if s.keep == nil {
		return
	}
	s.keep()
	<-s.kept
	s.keep = nil
}

// run keeps the component alive until ctx ends, then ends the child.
func (s *supervised) run(ctx context.Context, p *process, kept chan struct{}) {
	defer close(kept)
	backoff, born := minBackoff, time.Now()
	for {
		select {
		case <-ctx.Done():
			s.end(p)
			return
		case <-p.ended:
		}
		if time.Since(born) > steadyAfter {
			backoff = minBackoff
		}
		fmt.Fprintf(s.stderr, "devcluster: %s ended by itself (%s), starting it again in %s; its log is %s\n",
			s.name, p.result, backoff, s.dir.log(s.name))
		if p = s.revive(ctx, &backoff); p == nil {
			s.set(stateStopped, nil)
			return
		}
		born = time.Now()
	}
}

// revive starts a new child after the back-off, trying until ctx ends; it
// returns nil then. It does not wait for readiness: the next loss would.
func (s *supervised) revive(ctx context.Context, backoff *time.Duration) *process {
	for {
		s.set(stateRestarting, nil)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(*backoff):
		}
		*backoff = min(*backoff*2, maxBackoff)
		p, err := s.spawner.start(s.dir, s.component)
		if err == nil {
			s.set(stateRunning, p)
			return p
		}
		fmt.Fprintf(s.stderr, "devcluster: %v; trying again in %s\n", err, *backoff)
	}
}

// end stops a child, by force if it takes too long.
func (s *supervised) end(p *process) {
	s.set(stateStopping, p)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(stopGrace):
		p.signal(os.Kill)
		<-p.ended
	}
	s.set(stateStopped, nil)
}

// awaitReady polls until the component is ready, its child p has ended, or
// too much time has passed. Without a child it waits for readiness alone.
func (s *supervised) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var ended chan struct{}
	if p != nil {
		ended = p.ended
	}
	for {
		err := s.check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("%s ended while starting (%s); the last lines of %s:\n%s",
				s.name, p.result, s.dir.log(s.name), lastLines(s.dir.log(s.name), p.logged, 15))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("starting %s: %w", s.name, ctx.Err())
			}
			return fmt.Errorf("%s did not get ready in %s: %w; look into %s", s.name, startTimeout, err, s.dir.log(s.name))
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// lastLines returns the end of what a file holds after begin, for an error
// message.
func lastLines(file string, begin int64, n int) string {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Sprintf("(it cannot be read: %v)", err)
	}
	raw = raw[min(begin, int64(len(raw))):]
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
