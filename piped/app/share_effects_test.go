package app

import (
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// effectGate holds the first request with a method for an object, or its response.
type effectGate struct {
	method, object string
	response       bool

	by      chan int      // receives which replica's request is held
	opened  chan struct{} // closed to let it pass
	arrived chan struct{} // closed when the API server has answered the request

	// Guarded by effectGates.
	held, done bool
	holder     int
}

// effectGates are in the proxies between replicas and the API server.
type effectGates struct {
	ended <-chan struct{}

	mu    sync.Mutex
	gates []*effectGate
}

func (g *effectGates) add(method, object string, response bool) *effectGate {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := &effectGate{method: method, object: object, response: response, by: make(chan int, 1), opened: make(chan struct{}), arrived: make(chan struct{})}
	g.gates = append(g.gates, a)
	return a
}

// pass waits if a request, or its response, is to be held.
func (g *effectGates) pass(replica int, r *http.Request, response bool) {
	g.mu.Lock()
	i := slices.IndexFunc(g.gates, func(a *effectGate) bool {
		return !a.held && a.response == response && a.matches(r)
	})
	if i < 0 {
		g.mu.Unlock()
		return
	}
	a := g.gates[i]
	a.held, a.holder = true, replica
	g.mu.Unlock()
	a.by <- replica
	select {
	case <-a.opened:
	case <-g.ended: // the test has failed
	}
}

// answered records that the API server has answered a held request.
func (g *effectGates) answered(replica int, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.gates {
		if a.held && a.holder == replica && !a.response && a.matches(r) && !a.done {
			a.done = true
			close(a.arrived)
		}
	}
}

// matches reports whether a request is one that the gate holds.
func (a *effectGate) matches(r *http.Request) bool {
	return a.method == r.Method && a.object == path.Base(r.URL.Path) && !r.URL.Query().Has("dryRun")
}

// startGated starts three sharing replicas, each with a proxy to the API server that has the gates.
func startGated(t *testing.T) (*sharingFleet, *effectGates) {
	g := &effectGates{ended: t.Context().Done()}
	replica := 0
	return startSharing(t, 0, func() string {
		this := replica
		replica++
		_, file := proxied(t, clustertest.Shared(t).Kubeconfig(),
			func(r *http.Request) { g.pass(this, r, false) },
			func(resp *http.Response) {
				g.pass(this, resp.Request, true)
				g.answered(this, resp.Request)
			})
		return file
	}), g
}

// applicationOf returns the name of an application that a replica works on.
func (f *sharingFleet) applicationOf(a *agenttest.Agent, prefix string) string {
	f.t.Helper()
	for i := 0; i < 10_000; i++ {
		name := fmt.Sprint(prefix, "-", i)
		if strings.HasSuffix(f.holder(appID(name)), fmt.Sprint(" pid ", a.PID())) {
			return name
		}
	}
	f.t.Fatal("the replica has no partition")
	return ""
}

// holder returns the replica that holds the partition of a key, as its host and process.
func (f *sharingFleet) holder(key string) (host string) {
	f.t.Helper()
	err := f.db.QueryRowContext(f.t.Context(), "SELECT r.host FROM partitions p JOIN replicas r ON p.holder = r.id WHERE p.id = $1", int64(deploy.PartitionOf(key))).Scan(&host)
	if err != nil {
		f.t.Fatal(err)
	}
	return host
}

// uids counts the objects that have ever existed in a namespace, by name, as the API server reports.
type uids struct {
	mu    sync.Mutex
	known map[string]map[string]bool
}

func watchObjects(t *testing.T, ns string) *uids {
	t.Helper()
	u := &uids{known: map[string]map[string]bool{}}
	client := clustertest.Shared(t).Client(t)
	jobs, err := client.BatchV1().Jobs(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(jobs.Stop)
	maps, err := client.CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(maps.Stop)
	for _, w := range []watch.Interface{jobs, maps} {
		go func() {
			for e := range w.ResultChan() {
				if o, ok := e.Object.(metav1.Object); ok {
					u.add(o.GetName(), string(o.GetUID()))
				}
			}
		}()
	}
	return u
}

func (u *uids) add(name, uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.known[name] == nil {
		u.known[name] = map[string]bool{}
	}
	u.known[name][uid] = true
}

func (u *uids) count(name string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.known[name])
}

// effects are the applications of one round, each in the middle of an effect that is not idempotent.
type effects struct {
	*sharingFleet
	script, hook, once, prune, again string
	file                             string // to which the script writes
}

func (e *effects) all() []string { return []string{e.script, e.hook, e.once, e.prune, e.again} }

func newEffects(f *sharingFleet, victim *agenttest.Agent, round string) *effects {
	e := &effects{sharingFleet: f, file: filepath.Join(f.t.TempDir(), "script")}
	for _, c := range []struct {
		name *string
		kind string
	}{{&e.script, "script"}, {&e.hook, "hook"}, {&e.once, "once"}, {&e.prune, "prune"}, {&e.again, "again"}} {
		*c.name = f.applicationOf(victim, round+"-"+c.kind)
	}
	return e
}

// before returns the files of the first version, which has none of the effects.
func (e *effects) before() map[string]string {
	files := map[string]string{}
	for _, name := range e.all() {
		input := ""
		if name == e.hook || name == e.once {
			input = ", helmChart: {path: .}"
			files[name+"/Chart.yaml"] = "apiVersion: v2\nname: web\nversion: 1.0.0\n"
			files[name+"/templates/map.yaml"] = configMap(name, "v1")
		} else {
			files[name+"/map.yaml"] = configMap(name, "v1")
		}
		files[name+"/app.pipecd.yaml"] = e.config(name, input, "")
	}
	files[e.prune+"/app.pipecd.yaml"] = e.config(e.prune, "", "  quickSync: {prune: true}\n")
	files[e.prune+"/old.yaml"] = configMap(e.prune+"-old", "v1")
	files[e.again+"/again.yaml"] = immutable(e.again+"-again", "v1")
	return files
}

func (e *effects) config(name, input, more string) string {
	return fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s%s}\n%s", name, e.ns, input, more)
}

func configMap(name, version string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {version: %s}\n", name, version)
}

// immutable is an object that must be deleted and created anew to change it.
func immutable(name, version string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, annotations: {pipecd.dev/force-sync-by-replace: enabled}}\nimmutable: true\ndata: {version: %s}\n", name, version)
}

// after returns the files with the effects.
func (e *effects) after() map[string]string {
	files := map[string]string{e.again + "/again.yaml": immutable(e.again+"-again", "v2")}
	files[e.script+"/app.pipecd.yaml"] = e.config(e.script, "", fmt.Sprintf(`  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - name: SCRIPT_RUN
        with:
          run: "echo start >> %[1]s; while true; do echo tick $(date +%%s%%N) >> %[1]s; sleep 0.1; done"
          onRollback: echo undo $(date +%%s%%N) >> %[1]s
      - {name: K8S_SYNC}
`, e.file))
	for name, policy := range map[string]string{e.hook: "before-hook-creation", e.once: "hook-succeeded"} {
		files[name+"/templates/hook.yaml"] = fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: %s-job, annotations: {helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-delete-policy: %s}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: job, image: registry.example/job:v1}]}}}
`, name, policy)
	}
	return files
}

// lines returns the times of the lines of the script's file that begin with a word, of the first field
// after it.
func (e *effects) lines(word string) (at []time.Time) {
	e.t.Helper()
	text, err := os.ReadFile(e.file)
	if err != nil && !os.IsNotExist(err) {
		e.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if first, rest, _ := strings.Cut(strings.TrimSpace(line), " "); first == word {
			ns, _ := strconv.ParseInt(rest, 10, 64) // none after start
			at = append(at, time.Unix(0, ns))
		}
	}
	return at
}

// awaitSilence waits until the script has written nothing for a second.
func (e *effects) awaitSilence() {
	e.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(pollInterval) {
		ticks := e.lines("tick")
		if last := ticks[len(ticks)-1]; time.Since(last) > time.Second {
			return
		}
		if time.Now().After(end) {
			e.t.Fatal("the script runs on")
		}
	}
}

// mustHaveRunOnce checks that the script was started once, and undone once.
func (e *effects) mustHaveRunOnce() {
	e.t.Helper()
	if starts, undone := len(e.lines("start")), len(e.lines("undo")); starts != 1 || undone != 1 {
		e.t.Errorf("the script was started %d times and undone %d times", starts, undone)
	}
}

// mustEnd waits until the deployments of a commit have ended, each once: that of the script failed.
func (e *effects) mustEnd(commit string) {
	e.t.Helper()
	for _, name := range e.all() {
		want := modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
		if name == e.script {
			want = modelv1.DeploymentStatus_DEPLOYMENT_FAILURE
		}
		mustHaveEndedOnce(e.t, e.client.mustEnd(appID(name), commit, want))
	}
}

// configMapUID returns the UID of an object, "" if it does not exist.
func (e *effects) configMapUID(name string) string {
	e.t.Helper()
	o, err := clustertest.Shared(e.t).Client(e.t).CoreV1().ConfigMaps(e.ns).Get(e.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	if err != nil {
		e.t.Fatal(err)
	}
	return string(o.UID)
}

// begin deploys the first version, then the effects, and returns when the victim is in the middle of all
// of them.
func (e *effects) begin(g *effectGates, victim int, response bool) (commit string, held []*effectGate) {
	e.t.Helper()
	commit = e.repo.Push(e.t, "before", e.before())
	for _, name := range e.all() {
		e.client.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	held = []*effectGate{
		g.add(http.MethodPatch, e.hook+"-job", response), g.add(http.MethodPatch, e.once+"-job", response),
		g.add(http.MethodDelete, e.prune+"-old", response), g.add(http.MethodDelete, e.again+"-again", response),
	}
	if err := e.repo.Remove(e.prune + "/old.yaml"); err != nil {
		e.t.Fatal(err)
	}
	commit = e.repo.Push(e.t, "after", e.after())
	for _, a := range held {
		select {
		case by := <-a.by:
			if by != victim {
				e.t.Fatalf("replica %d requests %s of %s, and replica %d has the partition", by, a.method, a.object, victim)
			}
		case <-time.After(patience):
			for _, d := range e.client.deployments(appID(strings.TrimSuffix(strings.TrimSuffix(a.object, "-old"), "-again"))) {
				e.t.Logf("%s %s: %s\n%s", d.GetId(), d.GetStatus(), d.GetStatusReason(), e.client.logs(d.GetId()))
			}
			e.t.Fatalf("there was no %s of %s", a.method, a.object)
		}
	}
	e.awaitScript()
	return commit, held
}

func (e *effects) awaitScript() {
	e.t.Helper()
	for end := time.Now().Add(patience); len(e.lines("tick")) == 0; time.Sleep(pollInterval) {
		if time.Now().After(end) {
			e.t.Fatal("the script does not run")
		}
	}
}

// TestReplicasDoNothingTwice: a replica is suspended until others have its work, or killed, while a
// script of it runs and requests that are not idempotent are on their way. No effect is doubled, but for
// those that docs/operations.md names. Effects are counted by a file, to which scripts write, and by what
// the API server reports.
func TestReplicasDoNothingTwice(t *testing.T) {
	t.Parallel()
	f, g := startGated(t)
	objects := watchObjects(t, f.ns)

	t.Log("suspended")
	e := newEffects(f, f.second, "suspended")
	e.arriveLate(g, 1, func() { f.signal(f.second, syscall.SIGSTOP) }, func() { f.signal(f.second, syscall.SIGCONT) })
	f.awaitShares(3)
	e.awaitSilence()
	e.mustHaveRunOnce()
	e.mustHaveCreated(objects, 2)

	t.Log("a worker is killed, and its requests arrive late")
	e = newEffects(f, f.third, "worker")
	var killed time.Time
	e.arriveLate(g, 2, func() { f.third.Kill(); killed = time.Now() }, func() {})
	e.mustHaveEndedWithItsAgent(killed)
	e.mustHaveCreated(objects, 2)
	f.relaunch(f.third)
	f.awaitShares(3)

	t.Log("killed")
	e = newEffects(f, f.first, "killed")
	commit, held := e.begin(g, 0, true)
	f.first.Kill()
	killed = time.Now()
	for _, a := range held {
		close(a.opened)
	}
	f.awaitTakeover(f.first) // the one that takes the database over ends its connections
	f.answers(f.second)
	f.client = &client{t: t, ctx: t.Context(), api: f.second.API, control: f.second.Control}
	e.mustEnd(commit)
	e.mustHaveEndedWithItsAgent(killed)
	e.mustHaveCreated(objects, 1)
	if got := e.configMapUID(e.prune + "-old"); got != "" {
		t.Error("what is no longer in Git was not deleted")
	}
	f.relaunch(f.first)
	f.awaitShares(3)
	e.mustHaveRunOnce()
}

// arriveLate ends or suspends a victim in the middle of all effects, lets the others do its work and what
// it has requested arrive after that, and lets it go on. Its deletions do not reach what is new.
func (e *effects) arriveLate(g *effectGates, victim int, end, resume func()) {
	t := e.t
	t.Helper()
	commit, held := e.begin(g, victim, false)
	end()
	e.mustEnd(commit)
	foreign, err := clustertest.Shared(t).Client(t).CoreV1().ConfigMaps(e.ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: e.prune + "-old"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	replaced := e.configMapUID(e.again + "-again")
	for _, a := range held {
		close(a.opened)
	}
	for _, a := range held {
		select {
		case <-a.arrived:
		case <-time.After(patience):
			t.Fatalf("the late %s of %s has not arrived", a.method, a.object)
		}
	}
	resume()
	e.mustEnd(commit)
	if got := e.configMapUID(e.prune + "-old"); got != string(foreign.UID) {
		t.Errorf("the late deletion has deleted another object of the same name")
	}
	if got := e.configMapUID(e.again + "-again"); got != replaced {
		t.Errorf("the late recreation has deleted what the other replica created")
	}
}

// mustHaveEndedWithItsAgent checks that the script has ended when its agent was killed, before another
// one has undone it.
func (e *effects) mustHaveEndedWithItsAgent(killed time.Time) {
	e.t.Helper()
	e.mustHaveRunOnce()
	ticks, undone := e.lines("tick"), e.lines("undo")
	if len(ticks) == 0 || len(undone) == 0 {
		e.t.Fatalf("the script has written %d lines, its undoing %d", len(ticks), len(undone))
	}
	last := ticks[len(ticks)-1]
	e.t.Logf("the last sign of the script: %s after the agent was killed", last.Sub(killed).Round(time.Millisecond))
	if last.After(undone[0]) {
		e.t.Errorf("the script ran on for %s after another replica had begun to undo it", last.Sub(undone[0]))
	}
}

// mustHaveCreated checks how many objects have existed: each Job of a hook once, and one that is
// deleted when it has succeeded at most as often as given.
func (e *effects) mustHaveCreated(objects *uids, atMost int) {
	e.t.Helper()
	clustertest.Eventually(e.t, "the watches to show what exists", func() bool {
		return objects.count(e.hook+"-job") >= 1 && objects.count(e.once+"-job") >= 1 && objects.count(e.again+"-again") >= 2
	})
	if n := objects.count(e.hook + "-job"); n != 1 {
		e.t.Errorf("the hook was created %d times", n)
	}
	if n := objects.count(e.once + "-job"); n < 1 || n > atMost {
		e.t.Errorf("the hook that is deleted after its success was created %d times, want 1 to %d", n, atMost)
	}
	if n := objects.count(e.again + "-again"); n != 2 {
		e.t.Errorf("the object that was recreated once has existed %d times", n)
	}
}
