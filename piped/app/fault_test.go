package app

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store/pgtest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// outage is how long the faults last: PIPED_OUTAGE, else 3 s.
func outage(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PIPED_OUTAGE")
	if text == "" {
		return 3 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("PIPED_OUTAGE: %v", err)
	}
	return d
}

// faultScene is a working agent: application "busy" is rolling out slowly, application
// "calm" is deployed.
type faultScene struct {
	namespace  string
	repo       *gittest.Repo
	agent      *client
	busyCommit string
}

const slowPods = `devcluster.piped.dev/ready-delay: "2s"`

// appFiles returns the files of webApp in another directory.
func appFiles(dir, namespace, image, podAnnotations string) map[string]string {
	out := map[string]string{}
	for path, text := range webApp(namespace, image, podAnnotations) {
		text = strings.ReplaceAll(text, "name: web", "name: "+dir)
		text = strings.ReplaceAll(text, "app: web", "app: "+dir)
		out[strings.Replace(path, "web/", dir+"/", 1)] = text
	}
	return out
}

// newFaultScene prepares the scene with an agent that start runs.
func newFaultScene(t *testing.T, cluster *clustertest.Cluster, repo *gittest.Repo, start func() *client) *faultScene {
	t.Helper()
	s := &faultScene{namespace: cluster.Namespace(t), repo: repo}
	files := appFiles("busy", s.namespace, "v1", "")
	for path, text := range appFiles("calm", s.namespace, "v1", "") {
		files[path] = text
	}
	first := repo.Push(t, "two applications", files)
	s.agent = start()
	for _, dir := range []string{"busy", "calm"} {
		s.agent.mustEnd(appID(dir), first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	s.busyCommit = repo.Push(t, "busy v2", appFiles("busy", s.namespace, "v2", slowPods))
	s.agent.await(appID("busy"), "rolls out", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == s.busyCommit && strings.Contains(s.agent.logs(d.GetId()), "applied Deployment")
	})
	return s
}

// push changes application calm during a fault.
func (s *faultScene) push(t *testing.T) string {
	return s.repo.Push(t, "calm v2", appFiles("calm", s.namespace, "v2", ""))
}

// mustHang checks that the fault has an effect: a deployment begins, and has not ended.
func (s *faultScene) mustHang(t *testing.T, dir, commit string) {
	t.Helper()
	d := s.agent.await(appID(dir), "begins during the fault", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == commit
	})
	if d.GetCompletedAtMs() != 0 {
		t.Errorf("the deployment of %s ended in spite of the fault: %s, %s", dir, d.GetStatus(), d.GetStatusReason())
	}
}

// mustHaveLostNothing: the deployments before and during the fault end as without the
// fault, once.
func (s *faultScene) mustHaveLostNothing(t *testing.T, calmCommit string) {
	t.Helper()
	for dir, commit := range map[string]string{"busy": s.busyCommit, "calm": calmCommit} {
		mustHaveEndedOnce(t, s.agent.mustEnd(appID(dir), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))
		if n := len(s.agent.deployments(appID(dir))); n != 2 {
			t.Errorf("%d deployments of %s, want 2", n, dir)
		}
	}
	if c := s.agent.sync(appID("calm")); c.GetStatus() != modelv1.CommandStatus_COMMAND_SUCCEEDED {
		t.Errorf("a sync after the fault: %v", c)
	}
}

// TestFaultAPIServerStopped stops the API server during a rollout. Another deployment
// starts while it is down.
func TestFaultAPIServerStopped(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Own(t)
	repo := newRepo(t)
	s := newFaultScene(t, cluster, repo, func() *client {
		return runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	})
	if err := cluster.StopComponent(t.Context(), "apiserver"); err != nil {
		t.Fatal(err)
	}
	calm := s.push(t)
	time.Sleep(outage(t))
	s.mustHang(t, "calm", calm)
	if err := cluster.StartComponent(t.Context(), "apiserver"); err != nil {
		t.Fatal(err)
	}
	s.mustHaveLostNothing(t, calm)
}

// TestFaultAPIServerSilent makes the network drop all packets to the API server, so that
// connections are neither refused nor answered.
func TestFaultAPIServerSilent(t *testing.T) {
	t.Parallel()
	proxy, kubeconfig := proxied(t, clustertest.Shared(t).Kubeconfig(), nil, nil)
	repo := newRepo(t)
	s := newFaultScene(t, clustertest.Shared(t), repo, func() *client {
		return runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: kubeconfig})
	})
	proxy.Silence()
	calm := s.push(t)
	time.Sleep(outage(t))
	s.mustHang(t, "calm", calm)
	proxy.Speak()
	s.mustHaveLostNothing(t, calm)
}

// TestFaultGitRemoteGone stops the Git remote during a rollout: the rollout ends
// meanwhile, and commits pushed meanwhile are deployed afterwards.
func TestFaultGitRemoteGone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"refuses", "hangs"} {
		t.Run(name, func(t *testing.T) {
			repo := newRepo(t)
			remote := repo.HTTP(t, gittest.HTTPOptions{})
			s := newFaultScene(t, clustertest.Shared(t), repo, func() *client {
				return runAgent(t, settings{dataDir: t.TempDir(), remote: remote.URL, kubeconfig: clustertest.Shared(t).Kubeconfig()})
			})
			back := make(chan struct{})
			fault := gittest.Fail(http.StatusServiceUnavailable)
			if name == "hangs" {
				fault = holdUntil(back)
			}
			remote.SetFault(fault)
			calm := s.push(t)
			if name == "refuses" {
				c := s.agent.sync(appID("calm"))
				if c.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED {
					t.Errorf("a sync without the remote: %v", c)
				}
				mustContain(t, c.GetMetadata()["Reason"], "cannot be read", remote.URL, "503")
			}
			// Not earlier: the push and the answer may take longer than the outage.
			end := time.AfterFunc(outage(t), func() { remote.SetFault(nil); close(back) })
			defer end.Stop()
			s.agent.mustEnd(appID("busy"), s.busyCommit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			s.mustHaveLostNothing(t, calm)
		})
	}
}

// holdUntil keeps requests waiting until the remote is back.
func holdUntil(back <-chan struct{}) gittest.Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		select {
		case <-back:
			next.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}
}

// TestFaultClockJumps sets the clock forward by more than the default timeout of a
// deployment while one rolls out and another waits, and then backward. No deployment may
// end early or hang.
func TestFaultClockJumps(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{7 * time.Hour, -7 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			var offset atomic.Int64
			now := func() time.Time { return time.Now().Round(0).Add(time.Duration(offset.Load())) }
			cluster, repo := clustertest.Shared(t), newRepo(t)
			s := newFaultScene(t, cluster, repo, func() *client {
				return runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), now: now})
			})
			offset.Store(int64(by))
			wait := outage(t)
			files := appFiles("calm", s.namespace, "v2", "")
			files["calm/app.pipecd.yaml"] += fmt.Sprintf("  planner: {alwaysUsePipeline: true}\n  pipeline: {stages: [{name: WAIT, with: {duration: %s}}, {name: K8S_SYNC}]}\n", wait)
			began := time.Now()
			calm := repo.Push(t, "calm v2, after a wait", heldApp("calm", files)) // it runs until the clock has jumped back
			s.agent.await(appID("calm"), "waits", func(d *modelv1.Deployment) bool {
				return d.GetTrigger().GetCommit().GetHash() == calm && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_RUNNING
			})
			offset.Store(-int64(by))
			s.agent.letPodsBeReady(cluster.Client(t), s.namespace, appID("calm"), calm)
			d := s.agent.mustEnd(appID("calm"), calm, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			if took := time.Since(began); took < wait {
				t.Errorf("a deployment that waits for %s ended after %s", wait, took)
			}
			if jumped := time.Duration(d.GetCompletedAtMs()-d.GetCreatedAtMs()) * time.Millisecond; jumped.Abs() < 13*time.Hour {
				t.Errorf("by the agent's clock the deployment took %s: the jump was not seen", jumped)
			}
			s.mustHaveLostNothing(t, calm)
		})
	}
}

// TestFaultPostgreSQLRestarted restarts the database during a rollout.
func TestFaultPostgreSQLRestarted(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	dsn := server.NewDSN(t)
	repo := newRepo(t)
	s := newFaultScene(t, clustertest.Shared(t), repo, func() *client {
		return runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: clustertest.Shared(t).Kubeconfig(), dsn: dsn})
	})
	calm := s.push(t)
	server.Restart(t, outage(t))
	s.mustHaveLostNothing(t, calm)
}
