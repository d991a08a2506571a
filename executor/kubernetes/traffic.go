package kubernetes

import (
	"context"
	"encoding/json"
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

// TrafficRouting runs K8S_TRAFFIC_ROUTING: it puts the shares of the variants into
// what routes the traffic, step by step, and ends when the last ones are in force.
// No variant gets traffic before it can take it.
func (e *Executor) TrafficRouting() Stage {
	return e.stage(admit, openCluster, render, permitSet, shiftTraffic)
}

// shift is one run of the stage.
type shift struct {
	*work
	options config.TrafficRoutingOptions
	routing traffic.Routing
	steps   []traffic.Shares
	now     overlay // as stored
}

// routingOf fills in what spec.trafficRouting takes from the rest of the
// configuration, from the pipeline and from the cluster.
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

// rolloutOptions are what the options of the stages that roll out a variant have in
// common.
type rolloutOptions struct {
	Suffix         string         `json:"suffix"`
	ReadyThreshold strict.Percent `json:"readyThreshold"`
}

// rolloutOf returns the stage before this one that rolled out a variant, nil when
// there is none or the variant was removed since.
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
			if err := json.Unmarshal(stage.Options, &o); err != nil {
				return nil, o, deploy.Errorf(deploy.Invalid, "read the options of stage %s: %w", stage.ID, err)
			}
		}
	}
	return found, o, nil
}

// shiftTraffic goes through the steps. One that was begun before a restart is gone
// on with; none is repeated.
func shiftTraffic(ctx context.Context, w *work) error {
	s := &shift{work: w}
	err := w.options(&s.options)
	if err != nil {
		return err
	}
	if s.routing, err = w.routingOf(ctx, w.spec()); err != nil {
		return w.refuse(err)
	}
	s.steps = stepsOf(s.options)
	s.sayShared()
	begun, err := s.begin()
	switch {
	case err != nil:
		return err
	case s.now.Refused != "": // the agent ended before the stage's end was stored
		return &stageError{reason: s.now.Refused}
	}
	for i := s.now.Step; i < len(s.steps); i++ {
		if !begun || i > s.now.Step {
			if err := s.enter(ctx, i); err != nil {
				return err
			}
		} else if err := s.resume(ctx); err != nil {
			return err
		}
		if err := s.hold(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stepsOf returns the shares of each step; without steps there is one.
func stepsOf(o config.TrafficRoutingOptions) (steps []traffic.Shares) {
	for _, canary := range o.Steps {
		steps = append(steps, traffic.Shares{Primary: 100 - int(canary), Canary: int(canary)})
	}
	if len(steps) == 0 {
		steps = []traffic.Shares{{Primary: int(o.Primary), Canary: int(o.Canary), Baseline: int(o.Baseline)}}
	}
	return steps
}

// begin finds out where the stage stands, and reports whether a step was begun.
func (s *shift) begin() (begun bool, err error) {
	if s.now, begun, err = overlayOf(s.run.Stage); err != nil {
		return false, err
	}
	if begun {
		s.now.Step = min(s.now.Step, len(s.steps)-1)
		s.now.Routing = s.routing
		return true, nil
	}
	last, found, err := lastOverlay(s.run.Deployment)
	s.now = overlay{Routing: s.routing, Shares: traffic.Stable(), Before: traffic.Stable()}
	if found {
		s.now.Shares, s.now.Before, s.now.Ready = last.Shares, last.Shares, last.Ready
	}
	return false, err
}

// enter brings the shares of a step into force.
func (s *shift) enter(ctx context.Context, step int) error {
	if s.now.Shares.Whole() {
		s.countPrimary(ctx)
	}
	s.now.Before = s.now.Shares
	next := s.now
	next.Step, next.Shares, next.Since, next.Analyzed = step, s.steps[step], time.Time{}, false
	if err := s.awaitVariants(ctx, next.Shares); err != nil {
		return err
	}
	if err := next.save(ctx, s.run); err != nil {
		return err
	}
	s.now = next
	return s.enforce(ctx)
}

// resume goes on with the step that the agent's end interrupted.
func (s *shift) resume(ctx context.Context) error {
	if s.now.Since.IsZero() {
		if err := s.awaitVariants(ctx, s.now.Shares); err != nil {
			return err
		}
	}
	return s.enforce(ctx)
}

// enforce applies the shares of the present step, waits until they are in force and
// says so. When they are refused, those before are put back.
func (s *shift) enforce(ctx context.Context) error {
	if err := s.place(ctx, s.now.Shares); err != nil {
		return s.goBack(ctx, err)
	}
	resumed := !s.now.Since.IsZero()
	if !resumed {
		s.now.Since = s.Now()
		if err := s.now.save(ctx, s.run); err != nil {
			return err
		}
	}
	line, left := s.describe(), time.Duration(s.options.Interval)
	if resumed {
		line, left = "Going on after a restart of the agent: "+line, s.left().Round(100*time.Millisecond)
	}
	if s.now.Step+1 < len(s.steps) {
		line += fmt.Sprintf("; next step in %s", left)
	}
	s.log.Successf("%s", line)
	return nil
}

// describe names the present step and its shares.
func (s *shift) describe() string {
	if len(s.steps) == 1 {
		return "Traffic: " + s.now.Shares.String()
	}
	return fmt.Sprintf("Step %d/%d: %s", s.now.Step+1, len(s.steps), s.now.Shares)
}

// place makes the cluster share the traffic so, and waits until it does.
func (s *shift) place(ctx context.Context, shares traffic.Shares) error {
	routes, err := s.write(ctx, shares)
	if err != nil || !s.routing.Gateway() {
		return err
	}
	return s.verifyRoutes(ctx, s.routing, routes)
}

// write applies what routes the traffic with the shares in it, and returns it.
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

// goBack puts the shares back that were in force before those that were refused. A
// stage that was told to stop leaves them as they are.
func (s *shift) goBack(ctx context.Context, why error) error {
	var refused *stageError
	if ctx.Err() != nil || !errors.As(why, &refused) {
		return why
	}
	reason := fmt.Sprintf("%s: %s", s.now.Shares, refused.reason)
	s.now.Shares, s.now.Since = s.now.Before, time.Time{}
	s.now.Refused = fmt.Sprintf("%s; the traffic is shared as before: %s", reason, s.now.Before)
	if err := s.putBack(ctx); err != nil {
		return &stageError{reason: fmt.Sprintf("%s; the shares before (%s) could not be put back: %v", reason, s.now.Before, err)}
	}
	return &stageError{reason: s.now.Refused}
}

// putBack applies the shares and does not wait for them: whoever refused the others
// may refuse these.
func (s *shift) putBack(ctx context.Context) error {
	if _, err := s.write(ctx, s.now.Shares); err != nil {
		return err
	}
	s.now.Since = s.Now()
	return s.now.save(ctx, s.run)
}

// hold lets the time between two steps pass, and the analysis after the step.
func (s *shift) hold(ctx context.Context) error {
	if s.options.Analysis != nil && !s.now.Analyzed {
		if err := s.analyze(ctx); err != nil {
			return err
		}
		s.now.Analyzed = true
		if err := s.now.save(ctx, s.run); err != nil {
			return err
		}
	}
	if s.now.Step+1 == len(s.steps) {
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
	err := s.Analyzer.Analyze(ctx, run, fmt.Sprintf("step-%d", s.now.Step+1), *s.options.Analysis, s.now.Since)
	if err != nil && ctx.Err() == nil {
		return &stageError{reason: fmt.Sprintf("%s: the analysis failed: %v", s.describe(), err)}
	}
	return err
}

// left is how much of the interval remains until the next step. A clock that jumped
// makes it neither negative nor longer than the interval.
func (s *shift) left() time.Duration {
	interval := time.Duration(s.options.Interval)
	return interval - min(max(0, s.Now().Sub(s.now.Since)), interval)
}

// sayShared warns of a stable Service that the pods of the variants belong to as
// well: they get some of its traffic beside what they are to get.
func (s *shift) sayShared() {
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
