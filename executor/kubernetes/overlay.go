package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// PipeCD's stage metadata keys of the shares, which clients show.
const (
	metaPrimaryShare  = "primary-percentage"
	metaCanaryShare   = "canary-percentage"
	metaBaselineShare = "baseline-percentage"
)

// overlay is how the traffic of a deployment is shared, and how far the stage that
// shares it has come. The stage notes it under deploy.MetaTraffic before it writes the
// objects, so that every later stage of the deployment, and the same one after a
// restart, keeps the shares that are in force.
type overlay struct {
	Routing traffic.Routing `json:"routing"`
	Shares  traffic.Shares  `json:"shares"`
	// Before are the shares that were in force last: what is gone back to when Shares
	// are refused.
	Before traffic.Shares `json:"before"`
	// Step is which of the stage's steps it is, from 0. Since is when its shares came
	// into force, zero while they have not.
	Step  int       `json:"step"`
	Since time.Time `json:"since,omitzero"`
	// Refused is why the shares of the step are not in force, once those before are
	// back: the stage has failed.
	Refused string `json:"refused,omitempty"`
	// Analyzed: the analysis after the step was passed.
	Analyzed bool `json:"analyzed,omitempty"`
	// Ready is how many pods of the primary were ready when it last had all traffic.
	Ready int `json:"ready,omitempty"`
}

// overlayOf returns what a stage recorded, false when it has recorded nothing.
func overlayOf(stage deploy.Stage) (o overlay, found bool, err error) {
	text := stage.Metadata[deploy.MetaTraffic]
	if text == "" {
		return o, false, nil
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return o, false, fmt.Errorf("read how stage %s shares the traffic: %w", stage.ID, err)
	}
	return o, true, nil
}

// lastOverlay returns what the last stage of the deployment that shared traffic
// recorded, false when none did.
func lastOverlay(d deploy.Deployment) (last overlay, found bool, err error) {
	for _, stage := range d.ForwardStages() {
		o, ok, err := overlayOf(stage)
		if err != nil {
			return last, false, err
		}
		if ok {
			last, found = o, true
		}
	}
	return last, found, nil
}

// save stores the overlay in the stage's metadata, and its shares as PipeCD does.
func (o overlay) save(ctx context.Context, run deploy.StageRun) error {
	text, err := json.Marshal(o)
	if err != nil {
		return fmt.Errorf("encode how the traffic is shared: %w", err)
	}
	return run.SaveMetadata(ctx, map[string]string{
		deploy.MetaTraffic: string(text),
		metaPrimaryShare:   strconv.Itoa(o.Shares.Primary),
		metaCanaryShare:    strconv.Itoa(o.Shares.Canary),
		metaBaselineShare:  strconv.Itoa(o.Shares.Baseline),
	})
}

// overlay returns objects with the shares that are in force in this deployment: what
// is applied between two stages that share traffic must not undo the first one.
func (w *work) overlay(_ context.Context, objects []manifest.Object) ([]manifest.Object, error) {
	o, found, err := lastOverlay(w.run.Deployment)
	if err != nil || !found {
		return objects, err
	}
	return o.Routing.Apply(objects, o.Shares)
}

// drain lets requests end that go to a variant which gets no more traffic: it
// returns when settle has passed since the shares changed. In a rollback, and where an
// earlier deployment had left traffic, that is now, because what routes the traffic has
// just been put back, and its gateways are waited for first. Call it before the
// variant's objects are deleted.
func (w *work) drain(ctx context.Context) error {
	o, found, own, err := w.sharing(ctx)
	if err != nil {
		return err
	}
	since := o.Since
	switch {
	case !found:
		if o.Routing, found = w.justRouted(ctx); !found {
			return nil
		}
		since = w.Now()
	case !own, w.run.Stage.Rollback && (!o.Shares.Whole() || o.Since.IsZero()):
		if err := w.awaitPutBack(ctx, o.Routing); err != nil {
			return err
		}
		since = w.Now()
	}
	left := settleOf(o.Routing)
	if !since.IsZero() {
		left -= min(max(0, w.Now().Sub(since)), left)
	}
	if left == 0 {
		return nil
	}
	w.log.Infof("Waiting %s for requests that are under way to end", left.Round(100*time.Millisecond))
	return pause(ctx, left)
}

// justRouted reports whether this stage itself has written what routes the traffic, as
// a quick sync does after a deployment that left variants behind.
func (w *work) justRouted(ctx context.Context) (traffic.Routing, bool) {
	if w.config == nil {
		return traffic.Routing{}, false
	}
	r, err := w.routingOf(ctx, w.spec())
	if err != nil {
		return r, false // there is nothing that routes
	}
	routes, err := r.Routes(w.set.Objects)
	return r, err == nil && slices.ContainsFunc(routes, func(o manifest.Object) bool { return w.written(manifest.Ref(o.Unstructured)) })
}

// awaitPutBack waits until the gateways have taken over routes that were put back.
// They may never do so, which must not keep a rollback from ending.
func (w *work) awaitPutBack(ctx context.Context, r traffic.Routing) error {
	routes, err := r.Routes(w.set.Objects)
	if err != nil || !r.Gateway() {
		return nil // there were none
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if whole := w.run.Deployment.RollbackTimeout; whole > 0 && w.run.Stage.Rollback {
		limited, cancel = context.WithTimeout(ctx, whole/2) // the rest is for removing the variants
	}
	defer cancel()
	err = w.verifyRoutes(limited, r, routes)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	w.log.Infof("All traffic goes to the primary again, but not every gateway has accepted that: %v", err)
	return nil
}

// settleDefault is between no traffic and the removal of a variant, for the methods
// that have no setting of it.
const settleDefault = 2 * time.Second

func settleOf(r traffic.Routing) time.Duration {
	if r.Gateway() && r.Route != nil {
		return r.Route.Verify.Settle
	}
	return settleDefault
}

// pause returns after d, or with the cause when ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
