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

// trafficState contains the traffic shares of a deployment, and the progress of the stage
// that sets them. The stage records it under deploy.MetaTraffic before it writes the
// routes, so that later stages of the deployment, and the same stage after a restart, keep
// the shares.
type trafficState struct {
	Routing traffic.Routing `json:"routing"`
	Shares  traffic.Shares  `json:"shares"`
	// Before are the shares that were in force last. They are restored if Shares are
	// refused.
	Before traffic.Shares `json:"before"`
	// Step is the index of the stage's step. Since is when its shares came into force, zero
	// before that.
	Step  int       `json:"step"`
	Since time.Time `json:"since,omitzero"`
	// Refused is why the shares of the step were refused; "" if they were not. The previous
	// shares are restored, and the stage fails.
	Refused string `json:"refused,omitempty"`
	// Analyzed is set when the analysis after the step has passed.
	Analyzed bool `json:"analyzed,omitempty"`
	// Ready is how many pods of the primary were ready when the primary last had all traffic.
	Ready int `json:"ready,omitempty"`
}

// trafficStateOf returns the traffic state that a stage recorded, and whether it recorded
// one.
func trafficStateOf(stage deploy.Stage) (s trafficState, found bool, err error) {
	found, err = readMetadata(stage, deploy.MetaTraffic, &s)
	return s, found, err
}

// lastTrafficState returns the record of the deployment's last stage that shared traffic,
// and whether there is one.
func lastTrafficState(d deploy.Deployment) (last trafficState, found bool, err error) {
	for _, stage := range d.ForwardStages() {
		s, ok, err := trafficStateOf(stage)
		if err != nil {
			return last, false, err
		}
		if ok {
			last, found = s, true
		}
	}
	return last, found, nil
}

// save stores the state in the stage's metadata, and the shares also under PipeCD's keys.
func (s trafficState) save(ctx context.Context, run deploy.StageRun) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode how the traffic is shared: %w", err)
	}
	return run.SaveMetadata(ctx, map[string]string{
		deploy.MetaTraffic: string(text),
		metaPrimaryShare:   strconv.Itoa(s.Shares.Primary),
		metaCanaryShare:    strconv.Itoa(s.Shares.Canary),
		metaBaselineShare:  strconv.Itoa(s.Shares.Baseline),
	})
}

// applyShares puts the shares that are in force into the set, so that applying the set does
// not undo the stage that shared the traffic. The stored set has the shares of Git.
func applyShares(_ context.Context, w *work) error {
	shared, found, err := lastTrafficState(w.run.Deployment)
	if err != nil || !found {
		return err
	}
	w.set.Objects, err = shared.Routing.Apply(w.set.Objects, shared.Shares)
	return err
}

// drain waits for the end of requests in progress to variants without traffic: until the
// drain time has passed since the shares changed. If the routes were only just restored, by
// a rollback or after an earlier deployment left traffic shared, it first waits for the
// gateways. Call it before the objects of the variants are deleted.
func (w *work) drain(ctx context.Context) error {
	shared, found, own, err := w.currentTraffic(ctx)
	if err != nil {
		return err
	}
	since := shared.Since
	switch {
	case !found:
		if shared.Routing, found = w.wroteRoutes(ctx); !found {
			return nil
		}
		since = w.Now()
	case !own, w.run.Stage.Rollback && (!shared.Shares.Whole() || shared.Since.IsZero()):
		if err := w.awaitRestoredRoutes(ctx, shared.Routing); err != nil {
			return err
		}
		since = w.Now()
	}
	left := drainTime(shared.Routing)
	if !since.IsZero() {
		left -= min(max(0, w.Now().Sub(since)), left)
	}
	if left == 0 {
		return nil
	}
	w.log.Infof("Waiting %s for requests in progress to end", left.Round(100*time.Millisecond))
	return pause(ctx, left)
}

// wroteRoutes returns the routing of the configuration, and whether this stage has written
// the routes, as a quick sync does after a deployment that left variants behind.
func (w *work) wroteRoutes(ctx context.Context) (traffic.Routing, bool) {
	if w.config == nil {
		return traffic.Routing{}, false
	}
	r, err := w.routingOf(ctx, w.spec())
	if err != nil {
		return r, false // there are no routes
	}
	routes, err := r.Routes(w.set.Objects)
	return r, err == nil && slices.ContainsFunc(routes, func(o manifest.Object) bool { return w.written(manifest.Ref(o.Unstructured)) })
}

// awaitRestoredRoutes waits until the gateways have accepted routes that were restored. If
// a gateway has not, it logs that and returns nil: the variants are removed anyway.
func (w *work) awaitRestoredRoutes(ctx context.Context, r traffic.Routing) error {
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

// defaultDrainTime is how long a variant without traffic stays, for methods without the
// setting verify.settle.
const defaultDrainTime = 2 * time.Second

// drainTime returns how long a variant without traffic stays, so that requests in progress
// end.
func drainTime(r traffic.Routing) time.Duration {
	if r.Gateway() && r.Route != nil {
		return r.Route.Verify.Settle
	}
	return defaultDrainTime
}

// pause waits for d, or until ctx ends, and then returns the cause.
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
