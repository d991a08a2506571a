package app

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// sharingFleet are three replicas that share the work on a few applications.
type sharingFleet struct {
	*replicas
	third   *agenttest.Agent
	db      *sql.DB
	repo    *gittest.Repo
	ns      string
	apps    []string
	scripts string // the file to which scripts append a line
}

// startSharing starts three replicas, and waits until each holds its share of the partitions. Each has
// a kubeconfig of its own.
func startSharing(t *testing.T, applications int, kubeconfig func() string, change ...func(*agenttest.Options, *gittest.Repo)) *sharingFleet {
	dir := t.TempDir()
	key := filepath.Join(dir, "store.key")
	if err := os.WriteFile(key, bytes.Repeat([]byte("k"), storeKeySize), 0o600); err != nil {
		t.Fatal(err)
	}
	repo := newRepo(t)
	o := agenttest.Options{
		Binary: buildAgent(t), Dir: filepath.Join(dir, "first"), Remote: repo.Dir, Kubeconfig: kubeconfig(),
		DSN: pgtest.Start(t).NewDSN(t), StoreKey: key, Share: true, Interval: 200 * time.Millisecond,
		More: "  scripts: {isolation: none}\n",
	}
	for _, c := range change {
		c(&o, repo)
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f := &sharingFleet{replicas: &replicas{t: t, first: startProcess(t, o)}, repo: repo, ns: clustertest.Shared(t).Namespace(t), scripts: filepath.Join(dir, "scripts")}
	f.client = &client{t: t, ctx: t.Context(), api: f.first.API, control: f.first.Control}
	f.db = storetest.Raw(t, o.DSN)
	for _, a := range []**agenttest.Agent{&f.second, &f.third} {
		o.Kubeconfig = kubeconfig()
		replica, err := agenttest.StartReplica(f.first, o, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		*a = replica
		t.Cleanup(func() {
			if err := replica.Close(); err != nil {
				t.Errorf("a replica: %v", err)
			}
		})
		f.standsBy(replica)
	}
	f.awaitShares(3)
	all := []*agenttest.Agent{f.first, f.second, f.third}
	for i := range applications { // each replica works on some of them
		f.apps = append(f.apps, f.applicationOf(all[i%len(all)], fmt.Sprint("app-", i)))
	}
	return f
}

// awaitShares waits until each of n replicas holds its share of the partitions within one.
func (f *sharingFleet) awaitShares(n int) {
	f.t.Helper()
	began := time.Now()
	for {
		rows, err := f.db.QueryContext(f.t.Context(), "SELECT count(*) FROM partitions WHERE holder <> '' GROUP BY holder ORDER BY 1")
		if err != nil {
			f.t.Fatal(err)
		}
		var counts []int
		for rows.Next() {
			var count int
			if err := rows.Scan(&count); err != nil {
				f.t.Fatal(err)
			}
			counts = append(counts, count)
		}
		if err := rows.Err(); err != nil {
			f.t.Fatal(err)
		}
		sum := 0
		for _, c := range counts {
			sum += c
		}
		if len(counts) == n && sum == deploy.Partitions && counts[n-1]-counts[0] <= 1 {
			f.t.Logf("%d replicas hold %v partitions after %s", n, counts, time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > patience {
			f.t.Fatalf("%d replicas are to share the partitions, they hold %v", n, counts)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// awaitTakeover waits until another replica than one that has ended, or does not go on, has the database,
// and listens. Until it does, its worker may still answer, which is about to end.
func (f *sharingFleet) awaitTakeover(ended *agenttest.Agent) {
	f.t.Helper()
	clustertest.Eventually(f.t, "a takeover", func() bool {
		var host, api string
		if err := f.db.QueryRowContext(f.t.Context(), "SELECT host, api_address FROM store_owner").Scan(&host, &api); err != nil {
			f.t.Fatal(err)
		}
		return !strings.HasSuffix(host, fmt.Sprint(" pid ", ended.PID())) && api != ""
	})
}

// push pushes a version of all applications, whose deployments run a script and then wait.
func (f *sharingFleet) push(version string, wait time.Duration) (commit string) {
	f.t.Helper()
	files := map[string]string{}
	for _, name := range f.apps {
		files[name+"/app.pipecd.yaml"] = fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: %s
  input: {namespace: %s}
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {name: SCRIPT_RUN, with: {run: "echo %s %s >> %s"}}
      - {id: wait, name: WAIT, with: {duration: %s}}
      - {name: K8S_SYNC}
`, name, f.ns, name, version, f.scripts, wait)
		files[name+"/app.yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {version: %s}\n", name, version)
	}
	return f.repo.Push(f.t, version, files)
}

// awaitWaits waits until the scripts of all deployments of a commit have ended: most of them wait
// then, and on a busy machine some have ended.
func (f *sharingFleet) awaitWaits(commit string) {
	f.t.Helper()
	for _, name := range f.apps {
		f.client.await(appID(name), "has run its script of commit "+commit, func(d *modelv1.Deployment) bool {
			return d.GetTrigger().GetCommit().GetHash() == commit && slices.ContainsFunc(d.GetStages(), func(s *modelv1.PipelineStage) bool {
				return s.GetId() == "wait" && s.GetStatus() != modelv1.StageStatus_STAGE_NOT_STARTED_YET
			})
		})
	}
}

// ran returns the applications whose scripts have run, sorted.
func (f *sharingFleet) ran(version string) (names []string) {
	f.t.Helper()
	text, err := os.ReadFile(f.scripts)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if name, v, _ := strings.Cut(strings.TrimSpace(line), " "); v == version {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// mustEndOnce waits until all deployments of a commit have succeeded, and checks that each of their
// stages and scripts ran once.
func (f *sharingFleet) mustEndOnce(version, commit string) {
	f.t.Helper()
	for _, name := range f.apps {
		mustHaveEndedOnce(f.t, f.client.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))
	}
	want := slices.Sorted(slices.Values(f.apps))
	if ran := f.ran(version); !slices.Equal(ran, want) {
		f.t.Errorf("%s: the scripts of %q ran, want each of %q once", version, ran, want)
	}
}

// started returns how many deployments a process has started, by its log.
func (f *sharingFleet) started(a *agenttest.Agent) int {
	f.t.Helper()
	text, err := os.ReadFile(a.LogFile)
	if err != nil {
		f.t.Fatal(err)
	}
	return bytes.Count(text, []byte("deployment started"))
}

// mustListReplicas checks that the status and the metrics, asked from a replica that may stand by, list n
// replicas with all partitions, and one of them as that with the database.
func (f *sharingFleet) mustListReplicas(n int) {
	f.t.Helper()
	status, err := f.client.control.GetStatus(f.t.Context(), &controlv1.GetStatusRequest{})
	if err != nil {
		f.t.Fatal(err)
	}
	partitions, active := 0, 0
	want := map[string]float64{}
	for _, r := range status.GetStore().GetReplicas() {
		partitions += int(r.GetPartitions())
		want["piped_partitions_held{replica="+r.GetHost()+"}"] = float64(r.GetPartitions())
		if r.GetActive() {
			active++
		}
		if r.GetVersion() == "" || r.GetLastHandoverAtMs() < r.GetStartedAtMs() {
			f.t.Errorf("replica %v", r)
		}
	}
	if len(want) != n || partitions != deploy.Partitions || active != 1 || status.GetStore().GetHandovers() < deploy.Partitions {
		f.t.Errorf("the status lists %v, want %d replicas", status.GetStore(), n)
	}
	got := scrapeProcess(f.t, f.third)
	for name := range got {
		if _, wanted := want[name]; !wanted && strings.HasPrefix(name, "piped_partitions_held") {
			f.t.Errorf("there is %s", name)
		}
	}
	for name, n := range want {
		if got[name] != n {
			f.t.Errorf("%s is %v, want %v", name, got[name], n)
		}
	}
}

// TestReplicasShareTheWork: three replicas run deployments at the same time. Whichever of them is
// killed, stopped or suspended, each deployment goes on in another one and ends once, and so does
// each of its scripts. One that was suspended works on when it goes on.
func TestReplicasShareTheWork(t *testing.T) {
	t.Parallel()
	f := startSharing(t, 12, clustertest.Shared(t).Kubeconfig)
	f.mustEndOnce("v1", f.push("v1", time.Second))
	for name, a := range map[string]*agenttest.Agent{"first": f.first, "second": f.second, "third": f.third} {
		if n := f.started(a); n == 0 {
			t.Errorf("the %s replica has run no deployment", name)
		}
	}

	for _, name := range f.apps { // each by the replica that compares it
		f.client.awaitSyncState(appID(name), modelv1.ApplicationSyncStatus_SYNCED)
	}
	f.mustListReplicas(3)
	commit := f.push("v2", 8*time.Second)
	f.awaitWaits(commit)
	f.second.Kill()
	began := time.Now()
	f.mustEndOnce("v2", commit)
	t.Logf("after a worker was killed, all deployments have ended in %s", time.Since(began).Round(time.Millisecond))
	f.awaitShares(2)
	f.relaunch(f.second)
	f.awaitShares(3)

	commit = f.push("v3", 8*time.Second)
	f.awaitWaits(commit)
	f.signal(f.third, syscall.SIGSTOP)
	f.mustEndOnce("v3", commit)
	f.signal(f.third, syscall.SIGCONT)
	f.awaitShares(3)
	f.mustEndOnce("v3", commit)

	commit = f.push("v4", 8*time.Second)
	f.awaitWaits(commit)
	if err := f.third.Stop(); err != nil {
		t.Error(err)
	}
	began = time.Now()
	f.mustEndOnce("v4", commit)
	t.Logf("after a worker was stopped, all deployments have ended in %s", time.Since(began).Round(time.Millisecond))
	f.relaunch(f.third)
	f.awaitShares(3)

	commit = f.push("v5", 8*time.Second)
	f.awaitWaits(commit)
	f.first.Kill()
	began = time.Now()
	f.awaitTakeover(f.first) // the one that takes the database over ends its connections
	f.answers(f.second)
	f.client = &client{t: t, ctx: t.Context(), api: f.second.API, control: f.second.Control}
	f.mustEndOnce("v5", commit)
	t.Logf("after the replica that has the database was killed, all deployments have ended in %s", time.Since(began).Round(time.Millisecond))
	f.awaitShares(2) // the killed one has expired: until then it is listed, next to its next process
	f.relaunch(f.first)
	f.awaitShares(3)
	f.mustListReplicas(3)
	f.mustEndOnce("v6", f.push("v6", time.Second))
}
