package app

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// evidence is what a chaos run left behind.
type evidence struct {
	store       *store.Store
	events      []deploy.Event
	deployments []deploy.Deployment
	logs        map[string][]deploy.Transition // by deployment ID
}

// verify runs all checks and returns the figures. The agent has stopped.
func (c *chaos) verify(t *testing.T, dsn, dataDir string) string {
	key, _, err := storeKey(&config.Piped{DataDir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), dsn, store.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	e := evidence{store: st, events: outbox(t, dsn), logs: map[string][]deploy.Transition{}}
	if e.deployments, err = st.DeploymentsIn(t.Context(), deploy.Statuses()...); err != nil {
		t.Fatal(err)
	}
	for _, d := range e.deployments {
		if e.logs[d.ID], err = st.Transitions(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		checkLog(t, d, e.logs[d.ID])
	}
	if len(e.deployments) < c.chaosSize.deployments {
		t.Errorf("%d deployments, want at least %d", len(e.deployments), c.chaosSize.deployments)
	}
	for _, agent := range c.victims {
		if log, err := os.ReadFile(agent.LogFile); err != nil || bytes.Contains(log, []byte("panic")) {
			t.Errorf("the log %s contains a panic (%v)", agent.LogFile, err)
		}
	}
	again := c.checkNotifications(t, e)
	e.checkOneActive(t)
	e.checkOutbox(t)
	c.checkCommands(t, e)
	c.checkTriggered(t, e)
	c.checkCluster(t, e)
	lines := c.checkScripts(t, e)
	if left, err := os.ReadDir(filepath.Join(dataDir, "scripts")); err != nil || len(left) > 0 {
		t.Errorf("the directory of scripts still contains %v (%v) after the run", left, err)
	}
	return fmt.Sprintf("%s\n  %d notifications arrived again", c.figures(e, lines), again)
}

// checkLog replays a deployment's transition log. Every transition must be legal and
// start in the status where the previous one ended, and there must be exactly one end.
func checkLog(t *testing.T, d deploy.Deployment, log []deploy.Transition) {
	status, ends := deploy.Status(""), 0
	stages := map[string]deploy.StageStatus{}
	for _, m := range log {
		var err error
		if m.StageID == "" {
			err = deploy.CheckTransition(deploy.Status(m.From), deploy.Status(m.To))
			if m.From != string(status) {
				t.Errorf("deployment %s moved from %q, it was %q", d.ID, m.From, status)
			}
			if status = deploy.Status(m.To); status.Completed() {
				ends++
			}
		} else {
			err = deploy.CheckStageTransition(deploy.StageStatus(m.From), deploy.StageStatus(m.To))
			if m.From != string(stages[m.StageID]) {
				t.Errorf("stage %s of deployment %s moved from %q, it was %q", m.StageID, d.ID, m.From, stages[m.StageID])
			}
			stages[m.StageID] = deploy.StageStatus(m.To)
		}
		if err != nil {
			t.Errorf("deployment %s: %v", d.ID, err)
		}
	}
	if ends != 1 || d.Status != status || !status.Completed() {
		t.Errorf("deployment %s is %s, ended %d times in the log, which ends in %s; want one end", d.ID, d.Status, ends, status)
	}
	for _, s := range d.Stages {
		if s.Status != stages[s.ID] || s.Status == deploy.StageRunning {
			t.Errorf("stage %s of deployment %s is %s, according to the log %s", s.ID, d.ID, s.Status, stages[s.ID])
		}
	}
}

// checkOneActive: no two deployments of an application were active at once.
func (e evidence) checkOneActive(t *testing.T) {
	type span struct {
		id         string
		start, end time.Time
	}
	byApp := map[string][]span{}
	for _, d := range e.deployments {
		s := span{id: d.ID}
		for _, m := range e.logs[d.ID] {
			switch to := deploy.Status(m.To); {
			case m.StageID != "":
			case to == deploy.Planned:
				s.start = m.At
			case to.Completed():
				s.end = m.At
			}
		}
		if !s.start.IsZero() {
			byApp[d.ApplicationName] = append(byApp[d.ApplicationName], s)
		}
	}
	for app, spans := range byApp {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.start.Compare(b.start), a.end.Compare(b.end)) })
		for i := 1; i < len(spans); i++ {
			if spans[i].start.Before(spans[i-1].end) {
				t.Errorf("%s: deployment %s was planned at %s, %s ended at %s", app, spans[i].id, spans[i].start, spans[i-1].id, spans[i-1].end)
			}
		}
	}
}

// checkOutbox: each transition has its events exactly once, and there are no other events
// of deployments or stages.
func (e evidence) checkOutbox(t *testing.T) {
	got := map[string]int{}
	for _, event := range e.events {
		if strings.HasPrefix(string(event.Type), "DEPLOYMENT_") || strings.HasPrefix(string(event.Type), "STAGE_") {
			got[event.Key]++
		}
	}
	want := map[string]int{}
	for _, d := range e.deployments {
		for _, m := range e.logs[d.ID] {
			for _, event := range deploy.EventsFor(&d, m) {
				want[event.Key]++
			}
		}
	}
	for key := range want {
		if got[key] != 1 || want[key] != 1 {
			t.Errorf("event %s is %d times in the outbox and expected %d times by the log, want once", key, got[key], want[key])
		}
	}
	for key := range got {
		if want[key] == 0 {
			t.Errorf("event %s has no transition in the log", key)
		}
	}
}

// checkNotifications: the end of each deployment arrived at the receiver. It returns how many
// notifications arrived more than once: each kill may repeat those that were in flight.
func (c *chaos) checkNotifications(t *testing.T, e evidence) int {
	got, again := c.hook.received()
	arrived := map[string]bool{}
	for _, p := range got {
		arrived[p.key] = true
	}
	for _, d := range e.deployments {
		for _, m := range e.logs[d.ID] {
			if m.StageID != "" || !deploy.Status(m.To).Completed() {
				continue
			}
			for _, event := range deploy.EventsFor(&d, m) {
				if !arrived[event.Key] {
					t.Errorf("the notification %s of deployment %s was lost", event.Key, d.ID)
				}
			}
		}
	}
	if most := 4 * (len(c.killed) + len(c.suspended) + 2); again > most { // a receiver gets 4 at a time
		t.Errorf("%d notifications arrived again, want at most %d", again, most)
	}
	return again
}

// checkCommands: every command whose call was answered has ended, with its deployment or
// with a reason, and no command is open.
func (c *chaos) checkCommands(t *testing.T, e evidence) {
	for _, id := range c.commands {
		command, err := e.store.Command(t.Context(), id)
		if err != nil {
			t.Errorf("command %s is lost: %v", id, err)
			continue
		}
		switch command.Status {
		case deploy.CommandSucceeded:
			made := command.Metadata[deploy.MetaTriggeredDeployment]
			if command.Type == deploy.CommandSync && !slices.ContainsFunc(e.deployments, func(d deploy.Deployment) bool { return d.ID == made }) {
				t.Errorf("sync %s succeeded with deployment %q, which does not exist", id, made)
			}
		case deploy.CommandFailed:
			if command.Metadata[deploy.MetaReason] == "" {
				t.Errorf("command %s failed without a reason: %+v", id, command)
			}
		default:
			t.Errorf("command %s is %s", id, command.Status)
		}
	}
	if open, err := e.store.OpenCommands(t.Context()); err != nil || len(open) > 0 {
		t.Errorf("open commands: %+v (%v)", open, err)
	}
}

// checkTriggered: the newest revision of each application was deployed, with any result,
// and Git triggered no commit twice.
func (c *chaos) checkTriggered(t *testing.T, e evidence) {
	byGit := map[string]int{}
	newest := map[string]bool{}
	for _, d := range e.deployments {
		revision, ok := c.contents[d.Trigger.Commit.Hash][d.ApplicationName]
		if !ok {
			t.Errorf("deployment %s is of commit %s, which was never pushed", d.ID, d.Trigger.Commit.Hash)
		}
		if d.Trigger.Kind == deploy.OnCommit {
			byGit[d.ApplicationName+" at commit "+d.Trigger.Commit.Hash]++
		}
		for _, a := range c.apps {
			if a.dir == d.ApplicationName && a.revision == revision {
				newest[a.dir] = true
			}
		}
	}
	for what, n := range byGit {
		if n > 1 {
			t.Errorf("%s was triggered %d times", what, n)
		}
	}
	for _, a := range c.apps {
		if !newest[a.dir] {
			t.Errorf("revision %d of %s was never deployed", a.revision, a.dir)
		}
	}
}

// checkCluster: the live state is the last success of each application.
func (c *chaos) checkCluster(t *testing.T, e evidence) {
	kube := clustertest.Shared(t).Client(t)
	for _, a := range c.apps {
		app, err := e.store.Application(t.Context(), appID(a.dir))
		if err != nil {
			t.Fatal(err)
		}
		if app.LastSuccessful == nil {
			t.Errorf("%s has never succeeded", a.dir)
			continue
		}
		configMap, err := kube.CoreV1().ConfigMaps(c.namespace).Get(t.Context(), a.dir, metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", a.dir, err)
			continue
		}
		workload, err := kube.AppsV1().Deployments(c.namespace).Get(t.Context(), a.dir, metav1.GetOptions{})
		if err != nil {
			t.Errorf("%s: %v", a.dir, err)
			continue
		}
		revision := c.contents[app.LastSuccessful.Trigger.Commit.Hash][a.dir]
		want := fmt.Sprintf("revision %d, image registry.example/c:v%d, 1 available", revision, revision-revision%3)
		got := fmt.Sprintf("revision %s, image %s, %d available", configMap.Data["revision"], workload.Spec.Template.Spec.Containers[0].Image, workload.Status.AvailableReplicas)
		if got != want {
			t.Errorf("%s is live with %s; its last success, deployment %s, has %s", a.dir, got, app.LastSuccessful.DeploymentID, want)
		}
	}
}

// checkScripts: no script ran twice, and the script of each succeeded stage ran once. It
// returns the number of lines.
func (c *chaos) checkScripts(t *testing.T, e evidence) int {
	data, err := os.ReadFile(c.scripts)
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]int{}
	for line := range strings.Lines(string(data)) {
		runs[strings.TrimSpace(line)]++
	}
	total := len(runs)
	for line, n := range runs {
		if n > 1 {
			t.Errorf("script %q ran %d times", line, n)
		}
	}
	for _, d := range e.deployments {
		for _, s := range d.Stages {
			for _, name := range []string{"before", "after"} {
				if s.Name != deploy.StageScriptRun || !bytes.Contains(s.Options, []byte("SR_DEPLOYMENT_ID "+name)) {
					continue
				}
				n := runs[d.ID+" "+name]
				if s.Status == deploy.StageSuccess && n != 1 || s.Status == deploy.StageNotStarted && n != 0 {
					t.Errorf("stage %s of deployment %s ended as %s, its script ran %d times", s.ID, d.ID, s.Status, n)
				}
				delete(runs, d.ID+" "+name)
			}
		}
		delete(runs, d.ID+" undo")
	}
	if len(runs) > 0 {
		t.Errorf("scripts ran that belong to no stage: %v", slices.Collect(maps.Keys(runs)))
	}
	return total
}

// figures summarizes how deployments ended and what the kills interrupted.
func (c *chaos) figures(e evidence, scripts int) string {
	ends, triggers, hit := map[string]int{}, map[string]int{}, map[string]int{}
	for _, d := range e.deployments {
		ends[string(d.Status)]++
		triggers[string(d.Trigger.Kind)]++
		for _, at := range c.killed {
			if where := stateAt(d, e.logs[d.ID], at); where != "" {
				hit[where]++
			}
		}
	}
	return fmt.Sprintf("%d deployments: %s; triggered %s; %d commands, %d scripts\n  interrupted: %s",
		len(e.deployments), counts(ends), counts(triggers), len(c.commands), scripts, counts(hit))
}

// stateAt describes what a deployment was doing at a time; "" if nothing.
func stateAt(d deploy.Deployment, log []deploy.Transition, at time.Time) string {
	state, stage := deploy.Status(""), ""
	for _, m := range log {
		switch {
		case m.At.After(at):
		case m.StageID == "":
			state = deploy.Status(m.To)
		case deploy.StageStatus(m.To) == deploy.StageRunning:
			stage = " " + d.Stage(m.StageID).Name
		case deploy.StageStatus(m.To).Completed():
			stage = ""
		}
	}
	if state == "" || state.Completed() {
		return ""
	}
	return string(state) + stage
}

func counts(m map[string]int) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, fmt.Sprintf("%s %d", name, m[name]))
	}
	return strings.Join(out, ", ")
}
