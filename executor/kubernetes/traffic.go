package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TrafficRouting runs K8S_TRAFFIC_ROUTING: it puts the shares of the variants into the
// routes, step by step, and ends when the last shares are in force. No variant gets traffic
// before it is ready.
func (e *Executor) TrafficRouting() Stage {
	return e.stage(admit, openCluster, render, permitSet, shiftTraffic)
}

// shift is one run of the K8S_TRAFFIC_ROUTING stage.
type shift struct {
	*work
	options config.TrafficRoutingOptions
	routing traffic.Routing
	steps   []traffic.Shares
	state   trafficState // as stored
	begun   bool         // the step in state was begun before a restart
}

// shiftTraffic runs the steps. It resumes a step that was begun before a restart, and does
// not repeat completed ones.
func shiftTraffic(ctx context.Context, w *work) error {
	s, err := w.loadShift(ctx)
	if err != nil {
		return err
	}
	for i := s.state.Step; i < len(s.steps); i++ {
		if err := s.enter(ctx, i); err != nil {
			return err
		}
		if err := s.hold(ctx); err != nil {
			return err
		}
	}
	return nil
}

// loadShift reads the options and the state of the stage.
func (w *work) loadShift(ctx context.Context) (*shift, error) {
	s := &shift{work: w}
	if err := readOptions(w.run.Stage, &s.options); err != nil {
		return nil, err
	}
	var err error
	if s.routing, err = w.routingOf(ctx, w.spec()); err != nil {
		return nil, w.refuse(err)
	}
	s.steps = stepsOf(s.options)
	s.warnSharedService()
	if err := s.loadState(); err != nil {
		return nil, err
	}
	if s.state.Refused != "" { // the agent stopped before it stored the end of the stage
		return nil, &stageError{reason: s.state.Refused}
	}
	return s, nil
}

// routingOf returns spec.trafficRouting, completed from the rest of the configuration, from
// the pipeline and from the cluster.
func (w *work) routingOf(ctx context.Context, k kubernetes.Spec) (traffic.Routing, error) {
	r := traffic.Routing{
		Method: k.TrafficRouting.Method, Label: k.VariantLabel, Service: k.Service.Name,
		Istio: k.TrafficRouting.Istio, Route: k.TrafficRouting.HTTPRoute,
	}
	if !r.Gateway() || r.Route == nil {
		return r, nil
	}
	r.Service = r.Route.StableService
	for variant, name := range map[kubernetes.Variant]*string{kubernetes.Canary: &r.Canary, kubernetes.Baseline: &r.Baseline} {
		rollout, options, err := w.rolloutOf(variant)
		if err != nil {
			return r, err
		}
		if rollout != nil {
			*name = r.Service + "-" + options.Suffix
		}
	}
	routes, err := r.Routes(w.set.Objects)
	if err == nil && len(r.Route.ABMatches) > 0 {
		r.NameRules = w.namesRules(ctx, r, routes)
	}
	return r, err
}

// rolloutOptions are the common options of the stages that roll out a variant.
type rolloutOptions struct {
	Suffix         string         `json:"suffix"`
	ReadyThreshold strict.Percent `json:"readyThreshold"`
}

// rolloutOf returns the last stage before this one that rolled out a variant, with its
// options. It returns nil if there is none, or if a stage has removed the variant since.
func (w *work) rolloutOf(v kubernetes.Variant) (found *deploy.Stage, o rolloutOptions, err error) {
	rollout, clean := kubernetes.StageCanaryRollout, kubernetes.StageCanaryClean
	if v == kubernetes.Baseline {
		rollout, clean = kubernetes.StageBaselineRollout, kubernetes.StageBaselineClean
	}
	for _, stage := range w.run.Deployment.ForwardStages() {
		switch {
		case stage.ID == w.run.Stage.ID:
			return found, o, nil
		case stage.Name == clean:
			found = nil
		case stage.Name == rollout:
			found = &stage
			if err := readOptions(stage, &o); err != nil {
				return nil, o, err
			}
		}
	}
	return found, o, nil
}

// stepsOf returns the shares of each step. Options without steps are one step.
func stepsOf(o config.TrafficRoutingOptions) (steps []traffic.Shares) {
	for _, canary := range o.Steps {
		steps = append(steps, traffic.Shares{Primary: 100 - int(canary), Canary: int(canary)})
	}
	if len(steps) == 0 {
		steps = []traffic.Shares{{Primary: int(o.Primary), Canary: int(o.Canary), Baseline: int(o.Baseline)}}
	}
	return steps
}

// loadState sets the state and whether a step was begun. Before the first step the shares
// are those of the last stage that shared traffic.
func (s *shift) loadState() (err error) {
	if s.state, s.begun, err = trafficStateOf(s.run.Stage); err != nil {
		return err
	}
	if s.begun {
		s.state.Step = min(s.state.Step, len(s.steps)-1)
		s.state.Routing = s.routing
		return nil
	}
	last, found, err := lastTrafficState(s.run.Deployment)
	s.state = trafficState{Routing: s.routing, Shares: traffic.Stable(), Before: traffic.Stable()}
	if found {
		s.state.Shares, s.state.Before, s.state.Ready = last.Shares, last.Shares, last.Ready
	}
	return err
}

// enter brings the shares of a step into force, or resumes the step that a restart of the
// agent interrupted.
func (s *shift) enter(ctx context.Context, step int) error {
	if s.begun {
		s.begun = false
		return s.resume(ctx)
	}
	if s.state.Shares.Whole() {
		s.countPrimary(ctx)
	}
	s.state.Before = s.state.Shares
	next := s.state
	next.Step, next.Shares, next.Since, next.Analyzed = step, s.steps[step], time.Time{}, false
	if err := s.awaitVariants(ctx, next.Shares); err != nil {
		return err
	}
	if err := next.save(ctx, s.run); err != nil {
		return err
	}
	s.state = next
	return s.enforce(ctx)
}

// resume continues the present step.
func (s *shift) resume(ctx context.Context) error {
	if s.state.Since.IsZero() {
		if err := s.awaitVariants(ctx, s.state.Shares); err != nil {
			return err
		}
	}
	return s.enforce(ctx)
}

// enforce applies the shares of the present step, waits until they are in force and logs
// them. If a gateway refuses them it restores the previous ones.
func (s *shift) enforce(ctx context.Context) error {
	if err := s.place(ctx, s.state.Shares); err != nil {
		return s.restore(ctx, err)
	}
	resumed := !s.state.Since.IsZero()
	if !resumed {
		s.state.Since = s.Now()
		if err := s.state.save(ctx, s.run); err != nil {
			return err
		}
	}
	line, left := s.describe(), time.Duration(s.options.Interval)
	if resumed {
		line, left = "Resumed after a restart of the agent: "+line, s.left().Round(100*time.Millisecond)
	}
	if s.state.Step+1 < len(s.steps) {
		line += fmt.Sprintf("; next step in %s", left)
	}
	s.log.Successf("%s", line)
	return nil
}

// describe returns the present step and its shares as text.
func (s *shift) describe() string {
	if len(s.steps) == 1 {
		return "Traffic: " + s.state.Shares.String()
	}
	return fmt.Sprintf("Step %d/%d: %s", s.state.Step+1, len(s.steps), s.state.Shares)
}

// place writes the shares and waits until they are in force.
func (s *shift) place(ctx context.Context, shares traffic.Shares) error {
	routes, err := s.write(ctx, shares)
	if err != nil || !s.routing.Gateway() {
		return err
	}
	return s.verifyRoutes(ctx, s.routing, routes)
}

// write applies the routes with the shares in them, and returns them.
func (s *shift) write(ctx context.Context, shares traffic.Shares) ([]manifest.Object, error) {
	objects, err := s.routing.Apply(s.set.Objects, shares)
	if err != nil {
		return nil, err
	}
	routes, err := s.routing.Routes(objects)
	if err != nil {
		return nil, err
	}
	req, err := s.request(ctx, routes)
	if err != nil {
		return nil, err
	}
	req.Journal = routeJournal{journal{s.work}}
	_, err = s.cluster.Apply(ctx, req)
	return routes, err
}

// restore writes the previous shares after the present ones were refused, and returns the
// error of the stage. A stage that was stopped leaves the shares as they are.
func (s *shift) restore(ctx context.Context, why error) error {
	var refused *stageError
	if ctx.Err() != nil || !errors.As(why, &refused) {
		return why
	}
	reason := fmt.Sprintf("%s: %s", s.state.Shares, refused.reason)
	s.state.Shares, s.state.Since = s.state.Before, time.Time{}
	s.state.Refused = fmt.Sprintf("%s; the traffic is shared as before: %s", reason, s.state.Before)
	if err := s.rewrite(ctx); err != nil {
		return &stageError{reason: fmt.Sprintf("%s; the previous shares (%s) could not be restored: %v", reason, s.state.Before, err)}
	}
	return &stageError{reason: s.state.Refused}
}

// rewrite writes the shares of the state. It does not wait until they are in force, because
// the gateway may refuse these as well.
func (s *shift) rewrite(ctx context.Context) error {
	if _, err := s.write(ctx, s.state.Shares); err != nil {
		return err
	}
	s.state.Since = s.Now()
	return s.state.save(ctx, s.run)
}

// hold runs the analysis after the present step and waits for the next one.
func (s *shift) hold(ctx context.Context) error {
	if s.options.Analysis != nil && !s.state.Analyzed {
		if err := s.analyze(ctx); err != nil {
			return err
		}
		s.state.Analyzed = true
		if err := s.state.save(ctx, s.run); err != nil {
			return err
		}
	}
	if s.state.Step+1 == len(s.steps) {
		return nil
	}
	if err := pause(ctx, s.left()); err != nil {
		return fmt.Errorf("%w at %s", err, s.describe())
	}
	return nil
}

// analyze runs the analysis after the present step, which may fail the stage.
func (s *shift) analyze(ctx context.Context) error {
	run := s.run
	run.Log = s.log
	err := s.Analyzer.Analyze(ctx, run, fmt.Sprintf("step-%d", s.state.Step+1), *s.options.Analysis, s.state.Since)
	if err != nil && ctx.Err() == nil && !deploy.StoreUnavailable(err) {
		return &stageError{reason: fmt.Sprintf("%s: the analysis failed: %v", s.describe(), err)}
	}
	return err
}

// left returns the remaining time until the next step. It is between zero and the interval,
// even after a clock jump.
func (s *shift) left() time.Duration {
	interval := time.Duration(s.options.Interval)
	return interval - min(max(0, s.Now().Sub(s.state.Since)), interval)
}

// warnSharedService logs if the stable Service also selects pods of the variants: these
// then get part of the primary's share.
func (s *shift) warnSharedService() {
	if !s.routing.Gateway() {
		return
	}
	key := s.routing.Label.Key
	for _, o := range s.set.Objects {
		if !isService(o) || o.GetName() != s.routing.Service {
			continue
		}
		if selector := selectorOf(o); len(selector) > 0 && selector[key] == "" {
			s.log.Infof("%s selects pods of every variant, so that the canary gets some of the primary's share as well: add %s: %s to its selector and to the pods of the primary",
				manifest.Ref(o.Unstructured), key, s.routing.Label.PrimaryValue)
		}
	}
}
