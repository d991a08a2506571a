package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"math"
	"time"

	otlp "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Config is what New needs. Headers, Version, Logger and Now may be left out.
type Config struct {
	Endpoint    string            // host:port of the collector
	Insecure    bool              // no TLS
	Headers     map[string]string // go with each request; never logged
	SampleRatio float64           // share of the deployments that are traced, 0 to 1
	// File remembers what was sent; its folder exists.
	File string

	Store            *store.Store
	Version, PipedID string // name the agent in its traces
	Logger           *slog.Logger
	Now              func() time.Time
}

// Tracer is the component that sends the traces.
type Tracer struct {
	Config
	exporter *exporter
	sent     sent
	failing  bool // said in the log
}

// New prepares to send traces; the collector is not asked for anything yet. Whoever does
// not come to call Run calls Close.
func New(c Config) (*Tracer, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	done, err := readSent(c.File, c.Now())
	if err != nil {
		return nil, deploy.Errorf(deploy.Internal, "%w", err)
	}
	e, err := newExporter(c)
	if err != nil {
		return nil, err
	}
	return &Tracer{Config: c, exporter: e, sent: done}, nil
}

// Close ends the connection to the collector. It may be called after Run.
func (t *Tracer) Close() error { return t.exporter.close() }

// Times of the component.
const (
	lookEvery  = 30 * time.Second // although nothing was heard
	firstRetry = time.Second
	lastRetry  = time.Minute
	perLook    = 50 // deployments that are read at once
)

// Run sends the trace of each deployment that ends, until ctx ends. What could not be
// sent by then is sent after the next start.
func (t *Tracer) Run(ctx context.Context) error {
	changes := t.Store.Watch(deploy.TopicDeployment)
	defer changes.Close()
	retry := firstRetry
	for {
		heard, wait := changes.C(), lookEvery
		if err := t.catchUp(ctx); err != nil {
			t.say(ctx, err)
			heard, wait, retry = nil, retry, min(2*retry, lastRetry)
		} else {
			retry = firstRetry
		}
		if !await(ctx, changes, heard, wait) {
			return nil
		}
	}
}

// await waits until a deployment has ended, if that is to be heard of, or for a time. It
// reports whether ctx goes on.
func await(ctx context.Context, changes *store.Watch, heard <-chan struct{}, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-heard:
			for _, c := range changes.Take() {
				if c.Status.Completed() { // or not known
					return true
				}
			}
		}
	}
}

// say tells of a failure once, until it is over.
func (t *Tracer) say(ctx context.Context, err error) {
	if ctx.Err() != nil || t.failing {
		return
	}
	t.failing = true
	t.Logger.Warn("traces cannot be sent; trying again, deployments are not held up", "error", err)
}

// catchUp sends the traces of all deployments that have ended and were not sent.
func (t *Tracer) catchUp(ctx context.Context) error {
	for {
		ended, err := t.Store.EndedDeployments(ctx, t.sent.since(t.Now()), len(t.sent.Deployments)+perLook)
		if err != nil {
			return err
		}
		var todo []deploy.Deployment
		for _, d := range ended {
			if _, done := t.sent.Deployments[d.ID]; !done {
				todo = append(todo, d)
			}
		}
		if len(todo) == 0 {
			return nil
		}
		if err := t.tell(ctx, todo); err != nil {
			return err
		}
	}
}

// tell sends the traces of some deployments, those that are to be traced, and notes that
// all of them are done with.
func (t *Tracer) tell(ctx context.Context, ended []deploy.Deployment) error {
	var spans []*otlp.Span
	for _, d := range ended {
		if !t.sampled(d.ID) {
			continue
		}
		found, err := t.read(ctx, d)
		if err != nil {
			return err
		}
		spans = append(spans, found.spans()...)
	}
	for _, request := range requests(spans) {
		rejected, err := t.exporter.send(ctx, request)
		switch {
		case deploy.IsKind(err, deploy.Invalid) || rejected > 0:
			t.Logger.Error("the collector refuses traces, which are lost", "spans", len(request), "rejected", rejected, "error", err)
		case err != nil:
			return err
		}
		if t.failing {
			t.failing = false
			t.Logger.Info("traces are sent again")
		}
	}
	for _, d := range ended {
		t.sent.add(d.ID, d.CompletedAt)
	}
	return t.sent.write(t.File)
}

// read reads all that is kept of a deployment.
func (t *Tracer) read(ctx context.Context, d deploy.Deployment) (r record, err error) {
	r.deployment = d
	if r.transitions, err = t.Store.Transitions(ctx, d.ID); err == nil {
		r.rollouts, err = t.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: d.ID})
	}
	return r, err
}

// sampled decides by the deployment's ID: again and elsewhere alike.
func (t *Tracer) sampled(id string) bool {
	sum := sha256.Sum256([]byte("sample " + id))
	return float64(binary.BigEndian.Uint64(sum[:8])) < t.SampleRatio*math.MaxUint64
}
