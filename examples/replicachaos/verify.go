package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// problems collects what is wrong.
type problems struct{ found []error }

func (p *problems) addf(format string, args ...any) {
	p.found = append(p.found, fmt.Errorf(format, args...))
}

// verify compares the records of the agent with what others saw, and prints figures.
func (c *chaos) verify(ctx context.Context, takeover time.Duration) error {
	all, err := retried(ctx, func() ([]*modelv1.Deployment, error) { return c.client.deployments(ctx) })
	if err != nil {
		return err
	}
	p := &problems{}
	for i, d := range all {
		if all[i], err = retried(ctx, func() (*modelv1.Deployment, error) { return c.client.deployment(ctx, d.GetId()) }); err != nil {
			return err
		}
		p.checkTransitions(all[i])
	}
	p.checkOneActive(all)
	if err := c.awaitNotifications(ctx, all); err != nil {
		p.addf("notifications were lost: %w", err)
	}
	p.checkEnds(c.receiver, all)
	r, err := readRuns(c.Scripts)
	if err != nil {
		return err
	}
	p.checkScripts(r, all)
	suspended := slices.ContainsFunc(c.Faults, func(f fault) bool { return f.Suspends })
	if r.overlaps > 0 && !suspended {
		p.addf("%d scripts ran on while another replica undid them", r.overlaps)
	}
	rollouts, err := c.checkRollouts(ctx, p)
	if err != nil {
		return err
	}
	continued, err := c.continued(ctx, all)
	if err != nil {
		return err
	}
	c.report(all, r, rollouts, continued)
	if worst := slices.Max(append(c.takeovers(), 0)); worst > takeover {
		p.addf("a takeover lasted %s, at most %s are permitted", worst, takeover)
	}
	return errors.Join(p.found...)
}

// checkTransitions: the deployment and each stage entered each status once, and the deployment ended
// once.
func (p *problems) checkTransitions(d *modelv1.Deployment) {
	entered, ends := map[string]int{}, 0
	for _, t := range d.GetTransitions() {
		if entered[t.GetStageId()+" "+t.GetTo()]++; entered[t.GetStageId()+" "+t.GetTo()] > 1 {
			p.addf("deployment %s entered %s of stage %q twice", d.GetId(), t.GetTo(), t.GetStageId())
		}
		if t.GetStageId() == "" && ended(modelv1.DeploymentStatus(modelv1.DeploymentStatus_value[t.GetTo()])) {
			ends++
		}
	}
	if ends != 1 {
		p.addf("deployment %s ended %d times", d.GetId(), ends)
	}
}

// checkOneActive: no two deployments of an application were active at once.
func (p *problems) checkOneActive(all []*modelv1.Deployment) {
	type span struct {
		id         string
		start, end int64
	}
	byApp := map[string][]span{}
	for _, d := range all {
		s := span{id: d.GetId()}
		for _, t := range d.GetTransitions() {
			switch to := modelv1.DeploymentStatus(modelv1.DeploymentStatus_value[t.GetTo()]); {
			case t.GetStageId() != "":
			case to == modelv1.DeploymentStatus_DEPLOYMENT_PLANNED:
				s.start = t.GetAtMs()
			case ended(to):
				s.end = t.GetAtMs()
			}
		}
		if s.start != 0 {
			byApp[d.GetApplicationName()] = append(byApp[d.GetApplicationName()], s)
		}
	}
	for app, spans := range byApp {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
		for i := 1; i < len(spans); i++ {
			if spans[i].start < spans[i-1].end {
				p.addf("%s: deployment %s was planned before %s had ended", app, spans[i].id, spans[i-1].id)
			}
		}
	}
}

// awaitNotifications waits until the end of each deployment has arrived.
func (c *chaos) awaitNotifications(ctx context.Context, all []*modelv1.Deployment) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var missing []string
		c.receiver.mu.Lock()
		for _, d := range all {
			if len(c.receiver.ends[d.GetId()]) == 0 {
				missing = append(missing, d.GetId())
			}
		}
		c.receiver.mu.Unlock()
		if len(missing) == 0 {
			return nil
		}
		if wait(ctx, time.Second/10) != nil {
			return fmt.Errorf("that of the end of %d deployments, such as %s", len(missing), missing[0])
		}
	}
}

// checkEnds: the receiver was notified of one end of each deployment, the one that the agent reports,
// and of none of others.
func (p *problems) checkEnds(r *receiver, all []*modelv1.Deployment) {
	events := map[modelv1.DeploymentStatus]string{
		modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS: "DEPLOYMENT_SUCCEEDED", modelv1.DeploymentStatus_DEPLOYMENT_FAILURE: "DEPLOYMENT_FAILED", modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED: "DEPLOYMENT_CANCELLED",
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := map[string]bool{}
	for _, d := range all {
		known[d.GetId()] = true
		got := slices.Collect(maps.Values(r.ends[d.GetId()]))
		if want := events[d.GetStatus()]; len(got) != 1 || got[0] != want {
			p.addf("deployment %s is %s, the receiver was notified of %q", d.GetId(), d.GetStatus(), got)
		}
	}
	for id := range r.ends {
		if !known[id] {
			p.addf("the receiver was notified of the end of deployment %s, which does not exist", id)
		}
	}
}

// checkScripts: no script ran twice, and that of each stage that succeeded ran.
func (p *problems) checkScripts(r runs, all []*modelv1.Deployment) {
	for script, n := range r.starts {
		if n > 1 {
			p.addf("script %s ran %d times", script, n)
		}
	}
	for _, d := range all {
		words := []string{"before", "after"}
		var stages []*modelv1.PipelineStage
		for _, s := range d.GetStages() {
			if s.GetName() == "SCRIPT_RUN" {
				stages = append(stages, s)
			}
		}
		for i, s := range stages {
			word := words[len(words)-len(stages)+i]
			n := r.starts[d.GetId()+" "+word]
			succeeded, begun := s.GetStatus() == modelv1.StageStatus_STAGE_SUCCESS, s.GetStatus() != modelv1.StageStatus_STAGE_NOT_STARTED_YET
			if succeeded && n != 1 || !begun && n != 0 {
				p.addf("stage %s of deployment %s is %s, and its script ran %d times", s.GetId(), d.GetId(), s.GetStatus(), n)
			}
		}
	}
}

// checkRollouts: each revision of a Deployment that its controller counted has one record with an end,
// no record is without one, and no template has two ReplicaSets. It returns the number of revisions.
func (c *chaos) checkRollouts(ctx context.Context, p *problems) (total int, err error) {
	apps, err := retried(ctx, func() (map[string]*modelv1.Application, error) { return c.client.applications(ctx) })
	if err != nil {
		return 0, err
	}
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	for name, byRevision := range c.cluster.replicaSets {
		for revision, uids := range byRevision {
			if len(uids) != 1 {
				p.addf("revision %s of Deployment %s has %d ReplicaSets", revision, name, len(uids))
			}
		}
	}
	for _, a := range c.apps {
		id := apps[a.name].GetId()
		records, err := retried(ctx, func() ([]*modelv1.Rollout, error) { return c.client.rollouts(ctx, id) })
		if err != nil {
			return 0, err
		}
		marks := map[int64]int{}
		for _, r := range records {
			switch r.GetOutcome() {
			case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_HELD, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_UNSPECIFIED:
				p.addf("rollout %s of %s has no end: %s", r.GetId(), r.GetWorkload().GetName(), r.GetOutcome())
			case modelv1.RolloutOutcome_ROLLOUT_OUTCOME_NO_ROLLOUT:
			default:
				if r.GetWorkload().GetName() == a.name {
					marks[r.GetRevision()]++
				}
			}
		}
		counted := c.cluster.revisions[a.name]
		for n := int64(1); n <= counted; n++ {
			if total++; marks[n] != 1 {
				p.addf("revision %d of Deployment %s has %d marks", n, a.name, marks[n])
			}
		}
	}
	return total, nil
}

// continued returns how long after the fault of a takeover interrupted stages were resumed, sorted.
func (c *chaos) continued(ctx context.Context, all []*modelv1.Deployment) (out []time.Duration, err error) {
	for _, d := range all {
		if !slices.ContainsFunc(c.hits, func(h hit) bool { return h.Takeover && during(h.at, d) }) {
			continue
		}
		logs, err := retried(ctx, func() (map[string]*apiservice.StageLog, error) { return c.client.logs(ctx, d.GetId()) })
		if err != nil {
			return nil, err
		}
		for _, log := range logs {
			for _, block := range log.GetBlocks() {
				if !strings.HasPrefix(block.GetLog(), "The agent was interrupted here") {
					continue
				}
				if last := c.before(time.UnixMilli(block.GetCreatedAtMs())); last != nil && last.Takeover {
					out = append(out, time.UnixMilli(block.GetCreatedAtMs()).Sub(last.at))
				}
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// during reports whether a deployment was there at a time.
func during(at time.Time, d *modelv1.Deployment) bool {
	return d.GetCreatedAt() <= at.Unix() && at.Unix() <= d.GetCompletedAt()
}

// before returns the last fault before a time.
func (c *chaos) before(at time.Time) (last *hit) {
	for i := range c.hits {
		if c.hits[i].at.Before(at) {
			last = &c.hits[i]
		}
	}
	return last
}

// retried repeats a call for a while: an agent limits its callers, and a busy one may not answer in time.
func retried[T any](ctx context.Context, call func() (T, error)) (T, error) {
	for tries := 0; ; tries++ {
		v, err := call()
		if err == nil || tries == 20 || wait(ctx, time.Second/2) != nil {
			return v, err
		}
	}
}

// takeovers returns how long the takeovers lasted, sorted.
func (c *chaos) takeovers() (out []time.Duration) {
	for _, h := range c.hits {
		if h.Takeover {
			out = append(out, h.taken)
		}
	}
	slices.Sort(out)
	return out
}

// report prints figures.
func (c *chaos) report(all []*modelv1.Deployment, r runs, rollouts int, continued []time.Duration) {
	counts := map[string]int{}
	for _, d := range all {
		counts[strings.ToLower(strings.TrimPrefix(d.GetStatus().String(), "DEPLOYMENT_"))]++
	}
	c.receiver.mu.Lock()
	defer c.receiver.mu.Unlock()
	fmt.Fprintf(c.out, "%d deployments %v, %d rollouts, %d scripts, %d notifications of which %d arrived again\n", len(all), counts, rollouts, len(r.starts), len(c.receiver.keys), c.receiver.again)
	fmt.Fprintf(c.out, "%d faults; %d scripts ran on while another replica undid them\n", len(c.hits), r.overlaps)
	fmt.Fprintf(c.out, "taken over after %s; interrupted deployments continued after %s\n", spread(c.takeovers()), spread(continued))
}

// spread describes durations, which are sorted.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "- (none)"
	}
	return fmt.Sprintf("%s in the median and %s at worst (%d)", all[len(all)/2].Round(time.Millisecond), all[len(all)-1].Round(time.Millisecond), len(all))
}
