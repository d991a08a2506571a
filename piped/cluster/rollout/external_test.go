package rollout

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestExternal: finds rollouts of a Deployment that have no record yet. A letter names a
// template and is the digest of its ReplicaSet; "B+r" is template B with another
// annotation.
func TestExternal(t *testing.T) {
	revision := func(template string, number int64) Revision {
		return Revision{UID: "set-" + template, Name: "web-" + template, OwnerUID: "d1", Number: number,
			Template: Template{Digest: template, Base: template[:1]}, Created: epoch.Add(-time.Hour + time.Duration(number)*time.Second)}
	}
	live := func(template, manager string) *Workload {
		return &Workload{Kind: KindDeployment, Name: "web", UID: "d1", Generation: 9, Replicas: 3,
			Template: Template{Digest: template, Base: template[:1]}, TemplateManager: manager, TemplateManagedAt: epoch.Add(-time.Minute)}
	}
	own := func(template string, number int64, phase deploy.RolloutPhase) deploy.Rollout {
		return deploy.Rollout{DeploymentID: "d", UID: "d1", Phase: phase, Revision: number, TemplateDigest: template, TemplateBase: template[:1], TargetUID: "set-" + template}
	}
	external := func(template string, number int64) deploy.Rollout {
		return deploy.Rollout{UID: "d1", Phase: deploy.RolloutComplete, Revision: number, TemplateDigest: template, TargetUID: "set-" + template}
	}
	bumped := external("A+1", 2)
	bumped.Phase, bumped.TemplateBase, bumped.ChangedBy = deploy.RolloutProgressing, "A", "bumper"
	undone := own("A+2", 2, deploy.RolloutProgressing)
	undone.TemplateAnnotations = `{"checksum/config":"2"}`
	const done, open = deploy.RolloutComplete, deploy.RolloutProgressing
	another := own("A", 1, done)
	another.UID = "d0"
	deleting, set, setByAgent := live("B", "kubectl"), live("B", "kubectl"), live("B", "piped")
	deleting.Deleting, set.Kind, setByAgent.Kind = true, KindStatefulSet, KindStatefulSet

	cases := []struct {
		name        string
		live        *Workload
		sets        []Revision
		recorded    []deploy.Rollout
		base        Baseline
		want        []string
		provisional bool
	}{
		{name: "none: it is not there"},
		{name: "none: it is being deleted", live: deleting, sets: []Revision{revision("B", 2)}, recorded: []deploy.Rollout{own("A", 1, done)}},
		{name: "none: a StatefulSet", live: set, sets: []Revision{revision("B", 2)}, recorded: []deploy.Rollout{own("A", 1, done)}},
		{name: "none: never rolled out by this agent", live: live("B", "kubectl"), sets: []Revision{revision("A", 1), revision("B", 2)}},
		{name: "none: created anew since", live: live("B", "kubectl"), sets: []Revision{revision("B", 2)}, recorded: []deploy.Rollout{another}},
		{name: "none: the agent's own is the last", live: live("B", "piped"), sets: []Revision{revision("A", 1), revision("B", 2)}, recorded: []deploy.Rollout{own("B", 2, done)}},
		{name: "none: recorded already", live: live("B", "kubectl"), sets: []Revision{revision("A", 1), revision("B", 2)}, recorded: []deploy.Rollout{external("B", 2), own("A", 1, done)}},
		{name: "all: what was there before", base: Baseline{Known: true, Revision: 2}, live: live("B", "kubectl"), sets: []Revision{revision("A", 1), revision("B", 2)}},
		{name: "all: a new workload", base: Baseline{Known: true}, live: live("A", "helm"), sets: []Revision{revision("A", 1)},
			want: []string{`1 web-A by "helm" since 11:59:00: Progressing`}},
		{name: "all: another template", base: Baseline{Known: true, Revision: 2}, live: live("B", "helm"), sets: []Revision{revision("A", 2), revision("B", 3)},
			want: []string{`3 web-B by "helm" since 11:59:00: Progressing`}},
		{name: "all: back to an old template", base: Baseline{Known: true, Revision: 2}, live: live("A", "helm"), sets: []Revision{revision("A", 3), revision("B", 2)},
			want: []string{`3 web-A by "helm" since 11:59:00: Progressing`}},
		{name: "all: a StatefulSet", base: Baseline{Known: true, Revision: 1}, live: set, sets: []Revision{revision("A", 1), revision("B", 2)},
			want: []string{`2 web-B by "kubectl" since 11:59:00: Progressing`}},
		{name: "all: a StatefulSet that the agent applied", base: Baseline{Known: true, Revision: 1}, live: setByAgent, sets: []Revision{revision("A", 1), revision("B", 2)},
			recorded: []deploy.Rollout{own("B", 0, done)}},
		{name: "all: by the agent of another store", base: Baseline{Known: true, Revision: 1}, live: live("B", "piped"), sets: []Revision{revision("A", 1), revision("B", 2)},
			want: []string{`2 web-B by "piped" since 11:59:00: Progressing`}},
		{name: "a restart by hand", live: live("A+r", "kubectl-rollout"), sets: []Revision{revision("A", 1), revision("A+r", 2)}, recorded: []deploy.Rollout{own("A", 1, done)},
			want: []string{`2 web-A+r by "kubectl-rollout" since 11:59:00: Progressing`}},
		{name: "an undo to the agent's template", live: live("A", "kubectl-rollout"), sets: []Revision{revision("A", 3), revision("B", 2)}, recorded: []deploy.Rollout{own("B", 2, done), own("A", 1, done)},
			want: []string{`3 web-A by "kubectl-rollout" since 11:59:00: Progressing`}},
		{name: "several while the agent was down", live: live("D", "kubectl"), sets: []Revision{revision("C", 3), revision("D", 4), revision("B", 2), revision("A", 1)}, recorded: []deploy.Rollout{own("A", 1, done)},
			want: []string{`2 web-B by "" since 11:00:02: Superseded`, `3 web-C by "" since 11:00:03: Superseded`, `4 web-D by "kubectl" since 11:59:00: Progressing`}},
		{name: "when a ReplicaSet was used again is not known", live: live("C", "kubectl"), sets: []Revision{revision("A", 3), revision("B", 2), revision("C", 4)}, recorded: []deploy.Rollout{own("B", 2, done), own("A", 1, done)},
			want: []string{`3 web-A by "" since 00:00:00: Superseded`, `4 web-C by "kubectl" since 11:59:00: Progressing`}},
		{name: "before one of the agent's", live: live("C", "piped"), sets: []Revision{revision("A", 1), revision("B", 2), revision("C", 3)}, recorded: []deploy.Rollout{own("C", 0, open), own("A", 1, done)},
			want: []string{`2 web-B by "" since 11:00:02: Superseded`}},
		{name: "what the agent begins, before its record is there", live: live("B", "piped"), sets: []Revision{revision("A", 1), revision("B", 2)}, recorded: []deploy.Rollout{own("A", 1, done)}},
		{name: "what the agent begins, before its record has a number", live: live("B", "other"), sets: []Revision{revision("A", 1), revision("B", 2)}, recorded: []deploy.Rollout{own("B", 0, open), own("A", 1, done)}},
		{name: "what the agent is about to apply, after a change by another in the same second", live: live("B+r", "kubectl-rollout"), sets: []Revision{revision("A+r", 2), revision("B+r", 3)},
			recorded: []deploy.Rollout{{DeploymentID: "d2", Phase: deploy.RolloutIntent, IntentDigest: "B"}, external("A+r", 2), own("A", 1, done)}, provisional: true},
		{name: "a restart that a stage follows", live: live("B+r", "kubectl-rollout"), sets: []Revision{revision("A", 1), revision("B", 2), revision("B+r", 3)}, recorded: []deploy.Rollout{own("B", 2, open), own("A", 1, done)}},
		{name: "restarts that a stage follows, of which one was not seen", live: live("B+2", "bumper"), sets: []Revision{revision("A", 1), revision("B", 2), revision("B+1", 3), revision("B+2", 4)},
			recorded: []deploy.Rollout{own("B", 2, open), own("A", 1, done)}},
		{name: "a template that keeps changing has one record", live: live("A+3", "bumper"), sets: []Revision{revision("A", 1), revision("A+1", 2), revision("A+2", 3), revision("A+3", 4)},
			recorded: []deploy.Rollout{bumped, own("A", 1, done)}},
		{name: "another manager changes a template that keeps changing", live: live("A+3", "kubectl"), sets: []Revision{revision("A", 1), revision("A+1", 2), revision("A+3", 3)},
			recorded: []deploy.Rollout{bumped, own("A", 1, done)}, want: []string{`3 web-A+3 by "kubectl" since 11:59:00: Progressing`}},
		{name: "an undo of an annotation while a stage waits", live: live("A+1", "kubectl-rollout"), sets: []Revision{revision("A+1", 3), revision("A+2", 2)},
			recorded: []deploy.Rollout{undone}, want: []string{`3 web-A+1 by "kubectl-rollout" since 11:59:00: Progressing`}},
		{name: "another template while a stage waits", live: live("C", "kubectl"), sets: []Revision{revision("A", 1), revision("B", 2), revision("C", 3)}, recorded: []deploy.Rollout{own("B", 2, open), own("A", 1, done)},
			want: []string{`3 web-C by "kubectl" since 11:59:00: Progressing`}},
		{name: "history from before the agent took over", live: live("C", "kubectl"), sets: []Revision{revision("A", 1), revision("B", 2), revision("C", 3)}, recorded: []deploy.Rollout{own("C", 0, deploy.RolloutApplied)}},
		{name: "history from before the agent's first template", live: live("C", "piped"), sets: []Revision{revision("A", 1), revision("B", 2), revision("C", 3)}, recorded: []deploy.Rollout{own("C", 0, deploy.RolloutApplied)}},
		{name: "the agent's own number was never learned", live: live("D", "kubectl"), sets: []Revision{revision("A", 1), revision("C", 3), revision("D", 4)}, recorded: []deploy.Rollout{own("C", 0, deploy.RolloutSuperseded), own("A", 1, done)},
			want: []string{`4 web-D by "kubectl" since 11:59:00: Progressing`}},
		{name: "the new ReplicaSet is not there yet", live: live("B", "kubectl"), sets: []Revision{revision("A", 1)}, recorded: []deploy.Rollout{own("A", 1, done)}, provisional: true},
		{name: "a ReplicaSet that is used again has its old number still", live: live("A", "kubectl"), sets: []Revision{revision("A", 1), revision("B", 2)}, recorded: []deploy.Rollout{own("B", 2, done), own("A", 1, done)}, provisional: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			app := deploy.Rollout{ApplicationID: "app", Cluster: "one", Workload: deploy.ObjectRef{Kind: KindDeployment, Name: "web"}}
			given := slices.Clone(c.recorded)
			found, final := External(app, Snapshot{Workload: c.live, Revisions: c.sets}, c.recorded, c.base, "piped", epoch)
			var got []string
			for _, rec := range found {
				got = append(got, fmt.Sprintf("%d %s by %q since %s: %s", rec.Revision, rec.TargetName, rec.ChangedBy, rec.AppliedAt.Format(time.TimeOnly), rec.Phase))
				if !rec.External() || rec.ApplicationID != "app" || rec.ID != deploy.ExternalRolloutID("one", "d1", rec.Revision) {
					t.Errorf("record %+v", rec)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			if final == c.provisional {
				t.Errorf("final = %t", final)
			}
			if diff := cmp.Diff(given, c.recorded); diff != "" {
				t.Errorf("the records were changed (-before +after):\n%s", diff)
			}
		})
	}
}

// TestExternalByOneClock: a cluster's times become the agent's.
func TestExternalByOneClock(t *testing.T) {
	for _, skew := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		began := epoch.Add(-2 * time.Second) // by the agent's clock
		w := &Workload{Kind: KindDeployment, Name: "web", UID: "d1", Generation: 9, Replicas: 3, Template: Template{"B", "b"}, TemplateManager: "kubectl", TemplateManagedAt: began.Add(skew)}
		s := Snapshot{Workload: w, Skew: skew, Revisions: []Revision{
			{UID: "1", OwnerUID: "d1", Number: 1, Template: Template{"A", "a"}}, {UID: "2", OwnerUID: "d1", Number: 2, Template: Template{"B", "b"}},
		}}
		found, _ := External(deploy.Rollout{Cluster: "one"}, s, []deploy.Rollout{{DeploymentID: "d", UID: "d1", Revision: 1, TemplateDigest: "A", Phase: deploy.RolloutComplete}}, Baseline{}, "piped", epoch)
		if len(found) != 1 || !found[0].AppliedAt.Equal(began) || !found[0].ServerAppliedAt.Equal(began.Add(skew)) {
			t.Errorf("skew %s: %+v, want one that began at %s", skew, found, began)
		}
	}
}

// TestExternalAfterAPause: a template that was written while the workload was paused rolls out since the
// resume, which the agent may have seen late, after the revision was made.
func TestExternalAfterAPause(t *testing.T) {
	at := func(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }
	for name, c := range map[string]struct{ written, made, resumed, want time.Time }{
		"never paused":                 {at(-60), at(-58), time.Time{}, at(-60)},
		"seen at once":                 {at(-60), at(-29), at(-30), at(-30)},
		"seen late":                    {at(-60), at(-30), at(-20), at(-30)},
		"an older revision used again": {at(-60), at(-90), at(-20), at(-20)},
		"written after the resume":     {at(-10), at(-9), at(-20), at(-10)},
	} {
		s := Snapshot{
			Workload:  &Workload{Kind: KindDeployment, Name: "web", UID: "d1", Template: Template{"B", "b"}, TemplateManager: "kubectl", TemplateManagedAt: c.written},
			Revisions: []Revision{{UID: "2", OwnerUID: "d1", Number: 2, Created: c.made, Template: Template{"B", "b"}}},
		}
		found, _ := External(deploy.Rollout{Cluster: "one"}, s, nil, Baseline{Known: true, Revision: 1, Resumed: c.resumed}, "piped", epoch)
		if len(found) != 1 || !found[0].AppliedAt.Equal(c.want) {
			t.Errorf("%s: %+v, want one that began at %s", name, found, c.want)
		}
	}
}
