package app

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// rolloutEvidence holds the records that the agent left.
type rolloutEvidence struct {
	rollouts    []deploy.Rollout // oldest first
	deployments map[string]deploy.Deployment
	ended       map[string]int // by rollout: the events of its end
}

// rolloutFaults are the found faults, one line each.
type rolloutFaults struct{ lost, duplicate, wrong []string }

// verify compares the agent's records with the oracle's observations and prints the
// figures. The agent has stopped.
func (c *rolloutChaos) verify(t *testing.T, dataDir string) {
	e := readRollouts(t, dataDir)
	f, byEpoch := e.compare(c.oracle.deployments, c.commits)
	for what, lines := range map[string][]string{"lost": f.lost, "duplicate": f.duplicate, "false": f.wrong} {
		for _, line := range lines[:min(len(lines), 10)] {
			t.Errorf("%s: %s", what, line)
		}
	}
	t.Log(c.figures(e, f, byEpoch))
}

// compare compares the records with the observations, and returns the records by epoch.
func (e rolloutEvidence) compare(seen map[string]*oracleDeployment, commits map[string]rolloutCommit) (f rolloutFaults, byEpoch map[*epoch][]deploy.Rollout) {
	byEpoch = map[*epoch][]deploy.Rollout{}
	for _, r := range e.rollouts {
		if epoch := f.check(r, seen[r.Workload.Name], e.deployments[r.DeploymentID], commits); epoch != nil {
			byEpoch[epoch] = append(byEpoch[epoch], r)
		}
		if n := e.ended[r.ID]; n > 1 {
			f.duplicate = append(f.duplicate, fmt.Sprintf("the end of %s is reported %d times", r.ID, n))
		} else if n == 0 && r.Phase.Terminal() {
			f.lost = append(f.lost, fmt.Sprintf("the end of %s (%s) is not reported", r.ID, r.Phase))
		}
	}
	for name, d := range seen {
		for _, epoch := range d.epochs {
			f.count(name, epoch, byEpoch[epoch])
		}
	}
	return f, byEpoch
}

func readRollouts(t *testing.T, dataDir string) rolloutEvidence {
	key, _, err := storeKey(&config.Piped{DataDir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	dsn := "sqlite://" + filepath.Join(dataDir, "piped.db")
	st, err := store.Open(t.Context(), dsn, store.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	e := rolloutEvidence{deployments: map[string]deploy.Deployment{}, ended: map[string]int{}}
	if e.rollouts, err = st.Rollouts(t.Context(), store.RolloutQuery{}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(e.rollouts)
	deployments, err := st.DeploymentsIn(t.Context(), deploy.Statuses()...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range deployments {
		e.deployments[d.ID] = d
	}
	for _, event := range outbox(t, dsn) {
		if event.Type == deploy.EventRolloutEnded {
			e.ended[event.Key]++
		}
	}
	return e
}

// check compares a record with the observed Deployment and returns the
// epoch of the record, nil if there is none.
func (f *rolloutFaults) check(r deploy.Rollout, seen *oracleDeployment, d deploy.Deployment, commits map[string]rolloutCommit) *epoch {
	wrong := func(format string, args ...any) {
		f.wrong = append(f.wrong, fmt.Sprintf("%s, %s at %s (%s): %s", r.ID, r.Phase, r.CompletedAt.Format(time.StampMilli), r.Reason, fmt.Sprintf(format, args...)))
	}
	switch {
	case r.External():
		wrong("only the agent changed a template")
		return nil
	case r.Phase == deploy.RolloutIntent, r.Generation == 0 && r.Phase.Terminal():
		return nil // not applied; if it was applied, the count shows that
	case !r.Phase.Terminal():
		f.lost = append(f.lost, fmt.Sprintf("%s has not ended, it is %s (%s)", r.ID, r.Phase, r.Reason))
		return nil
	}
	i := seen.epochOf(r.Generation)
	if i < 0 {
		wrong("no such generation of the Deployment, %d, was seen", r.Generation)
		return nil
	}
	e := seen.epochs[i]
	content := commits[d.Trigger.Commit.Hash].contents[d.ApplicationName]
	stage := d.Stage(r.StageID)
	rollback := stage != nil && stage.Name == deploy.StageRollback
	if !rollback && e.image != content.image {
		wrong("generation %d had image %s, the commit has %s", r.Generation, e.image, content.image)
	}
	switch r.Phase {
	case deploy.RolloutComplete, deploy.RolloutNoRollout:
		if r.Phase == deploy.RolloutNoRollout && changesTemplate(r) {
			wrong("the template was new")
		}
		if !rollback && !content.sound() {
			wrong("its pods never became ready")
		}
		if p := seen.leftover(e, r.CompletedAt); p != nil {
			wrong("a pod of image %s was still there, created at %s, ended at %s", p.image, p.created, p.ended)
		}
		if ready, need := seen.ready(e, r.CompletedAt), e.need(r.CompletedAt); ready < need {
			wrong("%d pods were ready, %d wanted", ready, need)
		}
		if i+1 < len(seen.epochs) && r.CompletedAt.After(seen.epochs[i+1].begun.Add(oracleLag)) {
			wrong("the next template was there since %s", seen.epochs[i+1].begun)
		}
	case deploy.RolloutFailed, deploy.RolloutTimedOut: // the latter if the Deployment controller does not act within the deadline
		if rollback || content.sound() {
			wrong("nothing made it fail")
		}
	case deploy.RolloutSuperseded:
		if d.Status != deploy.Cancelled || !changedAfter(d, commits) {
			wrong("the deployment ended as %s (%s), and no newer commit took over", d.Status, d.StatusReason)
		}
	default:
		wrong("nothing called for that end")
	}
	return e
}

// changedAfter reports whether a commit changed the application after the one
// that was deployed, before the deployment ended.
func changedAfter(d deploy.Deployment, commits map[string]rolloutCommit) bool {
	deployed := commits[d.Trigger.Commit.Hash]
	for _, c := range commits {
		if c.at.After(deployed.at) && c.at.Before(d.CompletedAt) && c.contents[d.ApplicationName] != deployed.contents[d.ApplicationName] {
			return true
		}
	}
	return false
}

// count checks that exactly one record of an epoch is of the rollout that began it. The
// other records found its template already live.
func (f *rolloutFaults) count(name string, e *epoch, records []deploy.Rollout) {
	opening := slices.DeleteFunc(slices.Clone(records), func(r deploy.Rollout) bool { return !changesTemplate(r) })
	what := fmt.Sprintf("the rollout of %s to %s at generation %d, begun at %s", name, e.image, e.generation, e.begun.Format(time.StampMilli))
	switch len(opening) {
	case 0:
		f.lost = append(f.lost, what+", has no end")
	case 1:
	default:
		f.duplicate = append(f.duplicate, fmt.Sprintf("%s, has %d ends: %s and %s", what, len(opening), opening[0].ID, opening[1].ID))
	}
}

// changesTemplate reports whether the apply of a record changed the template.
func changesTemplate(r deploy.Rollout) bool { return r.LiveBefore != r.TemplateDigest }

// figures summarizes the run and its results.
func (c *rolloutChaos) figures(e rolloutEvidence, f rolloutFaults, byEpoch map[*epoch][]deploy.Rollout) string {
	ends, intents, scaled := map[string]int{}, 0, 0
	for _, r := range e.rollouts {
		if r.Generation == 0 {
			intents++
			continue
		}
		if d := e.deployments[r.DeploymentID]; d.Stage(r.StageID) != nil {
			ends[d.Stage(r.StageID).Name+" "+string(r.Phase)]++
		}
	}
	for _, d := range c.oracle.deployments {
		scaled += d.scaled
	}
	var lags, awake []time.Duration // delays of marks after the API, and those while the agent ran
	for epoch, records := range byEpoch {
		for _, r := range records {
			if r.Phase != deploy.RolloutComplete || !changesTemplate(r) || epoch.shown.IsZero() {
				continue
			}
			lag := max(0, r.CompletedAt.Sub(epoch.shown))
			lags = append(lags, lag)
			if !c.downIn(epoch.shown, r.CompletedAt) {
				awake = append(awake, lag)
			}
		}
	}
	return fmt.Sprintf(`%d rollouts in %s, %d records: %s; %d intents that came to nothing
  %d kills, %d watches cut, %d forced to list again, %d requests delayed, replicas changed %d times
  %d lost, %d duplicate, %d false
  from the API showing completion to the mark: %s; with the agent alive: %s`,
		c.oracle.rollouts, time.Since(c.began).Round(time.Second), len(e.rollouts), counts(ends), intents,
		len(c.downs), c.cuts, c.proxy.Refused(), c.delayed, scaled, len(f.lost), len(f.duplicate), len(f.wrong), spread(lags), spread(awake))
}

// downIn reports whether the agent was down during a part of the time.
func (c *rolloutChaos) downIn(from, to time.Time) bool {
	return slices.ContainsFunc(c.downs, func(d downtime) bool { return d.from.Before(to) && d.to.After(from) })
}

func spread(of []time.Duration) string {
	if len(of) == 0 {
		return "none"
	}
	slices.Sort(of)
	at := func(share float64) time.Duration { return of[int(share*float64(len(of)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("median %s, p99 %s, worst %s of %d", at(0.5), at(0.99), at(1), len(of))
}
