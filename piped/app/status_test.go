package app

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestStatus: the status contains the state of repositories, clusters and store, and
// since when they fail.
func TestStatus(t *testing.T) {
	t.Parallel()
	began := time.Now().UnixMilli()
	cluster := clustertest.Shared(t)
	repo := newRepo(t)
	agent := runAgent(t, settings{
		dataDir: t.TempDir(), remote: repo.Dir,
		providers: fmt.Sprintf("[{name: live, type: KUBERNETES, config: {kubeConfigPath: %s}}, {name: dead, type: KUBERNETES, config: {masterURL: \"https://127.0.0.1:1\"}}]", cluster.Kubeconfig()),
	})
	files := webApp(cluster.Namespace(t), "v1", "")
	files["web/app.pipecd.yaml"] = strings.Replace(files["web/app.pipecd.yaml"], "spec:\n", "spec:\n  platformProvider: live\n", 1)
	head := repo.Push(t, "add web", files)
	agent.mustEnd(appID("web"), head, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	agent.awaitSyncState(appID("web"), modelv1.ApplicationSyncStatus_SYNCED) // its objects are watched

	s := agent.awaitStatus("both clusters were asked and nothing is to be done", func(s *controlv1.GetStatusResponse) bool {
		busy := slices.ContainsFunc(s.Queues, func(q *controlv1.QueueStatus) bool { return q.Waiting+q.Active > 0 })
		return !busy && len(s.Clusters) == 2 && s.Clusters[0].Error != "" && s.Clusters[1].Version != ""
	})
	if a := s.Agent; a.PipedId != testID(t.Name()) || a.Version != "test" || a.GoVersion != runtime.Version() || a.StartedAtMs < began || a.ConfigLoadedAtMs < began || a.ConfigError != "" {
		t.Errorf("agent: %v", a)
	}
	if r := s.Repositories; len(r) != 1 || r[0].Id != "apps" || r[0].Remote != repo.Dir || r[0].Branch != "main" || r[0].Head != head ||
		r[0].CheckedAtMs < began || r[0].FetchedAtMs < began || r[0].Error != "" || r[0].FailingSinceMs != 0 || r[0].Applications != 1 {
		t.Errorf("repositories: %v", r)
	}
	dead, live := s.Clusters[0], s.Clusters[1]
	if dead.Name != "dead" || dead.Reachable || !strings.Contains(dead.Error, "refused") || dead.FailingSinceMs < began || dead.Version != "" {
		t.Errorf("the cluster that is not there: %v", dead)
	}
	if live.Name != "live" || !live.Reachable || live.Error != "" || live.FailingSinceMs != 0 || live.WatchedKinds == 0 || live.WatchedObjects == 0 {
		t.Errorf("the cluster that is there: %v", live)
	}
	if st := s.Store; st.Engine != "sqlite" || st.SchemaVersion == 0 || st.SizeBytes == 0 || st.Error != "" {
		t.Errorf("store: %v", st)
	}
	if sc := s.Scripts; sc.GetIsolation() != "namespaces" || sc.EndedBy != "PID namespace" || sc.Holds == "" || sc.Error != "" {
		t.Errorf("scripts: %v", sc)
	}
	if states := s.SyncStates; len(states) != 1 || states[0].Applications != 1 || states[0].Status == modelv1.ApplicationSyncStatus_DEPLOYING {
		t.Errorf("the application is in the states %v", states)
	}
	var queues []string
	for _, q := range s.Queues {
		queues = append(queues, q.Name)
		if q.OldestWaitingSinceMs != 0 {
			t.Errorf("%v, though nothing waits", q)
		}
	}
	if got, want := strings.Join(queues, " "), "commands planner scheduler cluster/dead cluster/live"; got != want {
		t.Errorf("queues %q, want %q", got, want)
	}
}

// awaitStatus returns the agent's status once it satisfies ok.
func (c *client) awaitStatus(what string, ok func(*controlv1.GetStatusResponse) bool) *controlv1.GetStatusResponse {
	c.t.Helper()
	var last *controlv1.GetStatusResponse
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if last, err = c.control.GetStatus(c.ctx, &controlv1.GetStatusRequest{}); err != nil {
			c.t.Fatal(err)
		}
		if ok(last) {
			return last
		}
	}
	c.t.Fatalf("it did not come to it that %s: %v", what, last)
	return nil
}
