package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubemetadata "k8s.io/client-go/metadata"

	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/manifest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// moments remembers when things were first seen, and lets others wait for that.
type moments struct {
	mu   sync.Mutex
	at   map[string]time.Time
	more chan struct{} // closed when there is another one
	err  error         // why there will be no more
}

func newMoments() *moments { return &moments{at: map[string]time.Time{}, more: make(chan struct{})} }

func (m *moments) saw(what string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.at[what]; !known {
		m.at[what] = at
		close(m.more)
		m.more = make(chan struct{})
	}
}

func (m *moments) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
	close(m.more)
	m.more = make(chan struct{})
}

// of returns when something was seen, once it is.
func (m *moments) of(ctx context.Context, what string) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		m.mu.Lock()
		at, seen := m.at[what]
		more, err := m.more, m.err
		m.mu.Unlock()
		if seen || err != nil {
			return at, err
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%s was not seen within %s: %w", what, patience, ctx.Err())
		case <-more:
		}
	}
}

// driftWatch follows what the agent reports of drift. What it sees is named by
// differs and agrees.
type driftWatch struct {
	*moments
	open    map[string]map[string]bool // by application: the objects reported last
	stop    context.CancelFunc
	running sync.WaitGroup
}

func differs(app, object string) string { return app + ": " + object + " differs" }
func agrees(app, object string) string  { return app + ": " + object + " is as in Git again" }

// watchDrift begins to watch the drift of all applications and returns once
// everything that is known has been reported.
func watchDrift(ctx context.Context, agent *agenttest.Agent) (*driftWatch, error) {
	key, err := os.ReadFile(agent.KeyFile)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+strings.TrimSpace(string(key))))
	stream, err := agent.Control.WatchDrift(ctx, &controlv1.WatchDriftRequest{})
	if err != nil {
		stop()
		return nil, err
	}
	w := &driftWatch{moments: newMoments(), open: map[string]map[string]bool{}, stop: stop}
	const known = "all that is known"
	w.running.Go(func() {
		for {
			resp, err := stream.Recv()
			if err != nil {
				w.fail(fmt.Errorf("watch the drift: %w", err))
				return
			}
			if resp.GetCaughtUp() {
				w.saw(known, time.Now())
			} else {
				w.record(resp.GetReport(), time.Now())
			}
		}
	})
	if _, err := w.of(ctx, known); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *driftWatch) record(r *modelv1.DriftReport, now time.Time) {
	app, objects := r.GetApplicationId(), map[string]bool{}
	for _, o := range r.GetObjects() {
		if r.GetEndedAtMs() > 0 {
			break // they are what the period that has ended was about
		}
		name := o.GetObject().GetKind() + " " + o.GetObject().GetName()
		objects[name] = true
		w.saw(differs(app, name), now)
	}
	for name := range w.open[app] {
		if !objects[name] {
			w.saw(agrees(app, name), now)
		}
	}
	w.open[app] = objects
}

func (w *driftWatch) close() {
	w.stop()
	w.running.Wait()
}

// metadataWatch is the floor: it sees the writes to the agent's objects as early
// as a client can that watches nothing but their metadata. What it sees is named
// by version, and the second write of an object by next.
type metadataWatch struct {
	*moments
	client  kubemetadata.Interface
	stop    context.CancelFunc
	running sync.WaitGroup
}

func version(resource schema.GroupVersionResource, name, version string) string {
	return resource.Resource + " " + name + " at version " + version
}

func next(resource schema.GroupVersionResource, name, version string) string {
	return resource.Resource + " " + name + " after version " + version
}

// watchMetadata begins to watch the agent's objects of the edits' kinds in a namespace.
func watchMetadata(ctx context.Context, client kubemetadata.Interface, namespace string) (*metadataWatch, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &metadataWatch{moments: newMoments(), client: client, stop: stop}
	for _, e := range edits() {
		of := client.Resource(e.GroupVersionResource).Namespace(namespace)
		now, err := of.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			w.close()
			return nil, err
		}
		events, err := of.Watch(ctx, metav1.ListOptions{LabelSelector: manifest.LabelApplication, ResourceVersion: now.ResourceVersion})
		if err != nil {
			w.close()
			return nil, err
		}
		w.running.Go(func() {
			last := map[string]string{}
			for event := range events.ResultChan() {
				o, ok := event.Object.(metav1.Object)
				if !ok {
					continue
				}
				at := time.Now()
				w.saw(version(e.GroupVersionResource, o.GetName(), o.GetResourceVersion()), at)
				w.saw(next(e.GroupVersionResource, o.GetName(), last[o.GetName()]), at)
				last[o.GetName()] = o.GetResourceVersion()
			}
			if ctx.Err() == nil {
				w.fail(fmt.Errorf("the watch of %s has ended", e.Resource))
			}
		})
	}
	return w, nil
}

func (w *metadataWatch) close() {
	w.stop()
	w.running.Wait()
}
