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

// Config holds the settings and dependencies of New. Headers, Version, Logger and Now are
// optional.
type Config struct {
	Endpoint    string            // host:port of the collector
	Insecure    bool              // no TLS
	Headers     map[string]string // of each request; never logged
	SampleRatio float64           // share of the deployments that are traced, 0 to 1
	// File records which traces were sent; its directory must exist.
	File string

	Store            *store.Store
	Version, PipedID string // identify the agent in its traces
	Logger           *slog.Logger
	Now              func() time.Time
}

// Tracer exports traces.
type Tracer struct {
	Config
	exporter *exporter
	sent     sent
	failing  bool // the last failure was logged
}

// New returns a tracer. It does not connect yet. A caller that does not call Run must call
// Close.
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

// Close closes the connection to the collector. It may be called after Run.
func (t *Tracer) Close() error { return t.exporter.close() }

// Timing and batch size.
const (
	pollInterval = 30 * time.Second // poll interval, in case the change feed misses an event
	firstRetry   = time.Second
	lastRetry    = time.Minute
	batchSize    = 50 // deployments per batch
)

// Run exports the trace of each deployment that ends, until ctx ends. Traces that are
// left are sent after the next start.
func (t *Tracer) Run(ctx context.Context) error {
	changes := t.Store.Watch(deploy.TopicDeployment)
	defer changes.Close()
	retry := firstRetry
	for {
		heard, wait := changes.C(), pollInterval
		if err := t.catchUp(ctx); err != nil {
			t.logFailure(ctx, err)
			heard, wait, retry = nil, retry, min(2*retry, lastRetry)
		} else {
			retry = firstRetry
		}
		if !await(ctx, changes, heard, wait) {
			return nil
		}
	}
}

// await waits for wait, or until heard signals that a deployment has ended. It returns
// false when ctx has ended.
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
				if c.Status.Completed() { // also true if the status is unknown
					return true
				}
			}
		}
	}
}

// logFailure logs the first of a series of failures.
func (t *Tracer) logFailure(ctx context.Context, err error) {
	if ctx.Err() != nil || t.failing {
		return
	}
	t.failing = true
	t.Logger.Warn("cannot send traces; retrying (deployments are not affected)", "error", err)
}

// catchUp sends the traces of all ended deployments that were not sent yet.
func (t *Tracer) catchUp(ctx context.Context) error {
	for {
		ended, err := t.Store.EndedDeployments(ctx, t.sent.since(t.Now()), len(t.sent.Deployments)+batchSize)
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
		if err := t.export(ctx, todo); err != nil {
			return err
		}
	}
}

// export sends the traces of those of the deployments that are sampled and records all
// of them as sent.
func (t *Tracer) export(ctx context.Context, ended []deploy.Deployment) error {
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
			t.Logger.Error("the collector rejected traces; they are lost", "spans", len(request), "rejected", rejected, "error", err)
		case err != nil:
			return err
		}
		if t.failing {
			t.failing = false
			t.Logger.Info("sending traces works again")
		}
	}
	for _, d := range ended {
		t.sent.add(d.ID, d.CompletedAt)
	}
	return t.sent.write(t.File)
}

// read returns the stored data of a deployment.
func (t *Tracer) read(ctx context.Context, d deploy.Deployment) (r record, err error) {
	r.deployment = d
	if r.transitions, err = t.Store.Transitions(ctx, d.ID); err == nil {
		r.rollouts, err = t.Store.Rollouts(ctx, store.RolloutQuery{DeploymentID: d.ID})
	}
	return r, err
}

// sampled decides by the deployment's ID, hence the same way every time.
func (t *Tracer) sampled(id string) bool {
	sum := sha256.Sum256([]byte("sample " + id))
	return float64(binary.BigEndian.Uint64(sum[:8])) < t.SampleRatio*math.MaxUint64
}
