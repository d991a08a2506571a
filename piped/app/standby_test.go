package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// replicas are two processes of one agent.
type replicas struct {
	t      *testing.T
	client *client // of the first process, whichever works

	first, second *agenttest.Agent
}

// startReplicas starts an agent and, when that works, its standby.
func startReplicas(t *testing.T, remote string) *replicas {
	o := agenttest.Options{
		Binary: buildAgent(t), Dir: t.TempDir(), Remote: remote, Kubeconfig: clustertest.Shared(t).Kubeconfig(), DSN: pgtest.Start(t).NewDSN(t), Interval: 200 * time.Millisecond,
	}
	r := &replicas{t: t, first: startProcess(t, o)}
	r.client = &client{t: t, ctx: t.Context(), api: r.first.API, control: r.first.Control}
	o.StoreKey = filepath.Join(o.Dir, "piped", storeKeyFile)
	var err error
	if r.second, err = agenttest.StartReplica(r.first, o, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.second.Close(); err != nil {
			t.Errorf("the replica: %v", err)
		}
	})
	r.standsBy(r.second)
	return r
}

// standsBy waits until a process says that it follows the other one, and forwards calls to it.
func (r *replicas) standsBy(a *agenttest.Agent) {
	r.t.Helper()
	r.says(a, "following the active replica")
	r.answers(a)
}

// says waits until the log of a process, since its start, contains a text.
func (r *replicas) says(a *agenttest.Agent, text string) {
	r.t.Helper()
	if err := a.Await(r.t.Context(), text, patience, func(context.Context) (bool, error) { return strings.Contains(a.Log(), text), nil }); err != nil {
		r.t.Fatal(err)
	}
}

// answers waits until a process answers calls, itself or the other one, and returns how long that
// took.
func (r *replicas) answers(a *agenttest.Agent) time.Duration {
	r.t.Helper()
	began := time.Now()
	err := a.Await(r.t.Context(), "an answer", patience, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := a.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1})
		return err == nil, err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return time.Since(began)
}

// relaunch starts a process that has ended, which stands by then.
func (r *replicas) relaunch(a *agenttest.Agent) {
	r.t.Helper()
	if err := a.Launch(); err != nil {
		r.t.Fatal(err)
	}
	r.standsBy(a)
}

// TestStandby: calls to a standby reach the active replica. It takes over when that is killed,
// stopped for an upgrade or does not go on, and the deployments go on and end once. The one that
// did not go on ends.
func TestStandby(t *testing.T) {
	t.Parallel()
	cluster, repo := clustertest.Shared(t), newRepo(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	files := func(image string) map[string]string {
		files := heldApp("web", webApp(ns, image, "")) // each deployment runs until its pods may be ready
		files["web/app.pipecd.yaml"] += "  planner: {alwaysUsePipeline: true}\n  pipeline: {stages: [{name: WAIT, with: {duration: 8s}}, {name: K8S_SYNC}]}\n"
		return files
	}
	r, web := startReplicas(t, repo.Dir), appID("web")
	first := repo.Push(t, "first", files("v1"))
	r.client.letPodsBeReady(kube, ns, web, first)
	r.client.mustEnd(web, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	for i, c := range []struct {
		name           string
		active, passes *agenttest.Agent
		end            func(*agenttest.Agent)
	}{
		{"killed", r.first, r.second, (*agenttest.Agent).Kill},
		{"stopped for an upgrade", r.second, r.first, func(a *agenttest.Agent) {
			if err := a.Stop(); err != nil {
				t.Error(err)
			}
		}},
		{"suspended", r.first, r.second, func(a *agenttest.Agent) { r.signal(a, syscall.SIGSTOP) }},
	} {
		r.rename(c.passes, c.name) // after it has begun to stand by
		commit := repo.Push(t, c.name, files(fmt.Sprint("v", i+2)))
		r.client.await(web, "runs", func(d *modelv1.Deployment) bool {
			return d.GetTrigger().GetCommit().GetHash() == commit && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_RUNNING
		})
		c.end(c.active)
		took := r.answers(c.passes)
		t.Logf("%s: taken over after %s", c.name, took.Round(time.Millisecond))
		status, err := c.passes.Control.GetStatus(t.Context(), &controlv1.GetStatusRequest{})
		if name := status.GetAgent().GetName(); err != nil || name != c.name {
			t.Errorf("%s: the agent is named %q, %v: the configuration is the one from before", c.name, name, err)
		}
		if c.name == "suspended" {
			r.signal(c.active, syscall.SIGCONT)
			<-c.active.Ended()
			mustContain(t, c.active.Tail(), "this agent lost its connection to the database and stops")
		}
		r.relaunch(c.active)
		r.client.letPodsBeReady(kube, ns, web, commit)
		mustHaveEndedOnce(t, r.client.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))
	}
}

// rename sets the name in the configuration of a process.
func (r *replicas) rename(a *agenttest.Agent, name string) {
	r.t.Helper()
	text, err := os.ReadFile(a.Config)
	if err == nil {
		before, _, _ := strings.Cut(string(text), "  name: ")
		err = os.WriteFile(a.Config, fmt.Appendf([]byte(before), "  name: %s\n", name), 0o600)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *replicas) signal(a *agenttest.Agent, s syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(a.PID(), s); err != nil {
		r.t.Fatal(err)
	}
}

// TestDatabaseLostAtStart: an agent whose connection is cut when it has opened the store, before it works,
// ends and says why.
func TestDatabaseLostAtStart(t *testing.T) {
	t.Parallel()
	s := settings{dataDir: t.TempDir(), remote: newRepo(t).Dir, kubeconfig: writeUnreached(t), dsn: pgtest.Start(t).NewDSN(t)}
	cfg, _, err := Kinds().LoadPiped(s.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Version: "test", Logger: testLogger(t), LeaseEvery: -1}
	agent, err := New(t.Context(), cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = storetest.Raw(t, s.dsn).ExecContext(t.Context(), `
		CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$;
		CREATE TRIGGER cut BEFORE UPDATE ON store_owner FOR EACH ROW WHEN (NEW.api_address <> OLD.api_address AND NEW.api_address <> '') EXECUTE FUNCTION cut()`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), cfg, o); err == nil || !strings.Contains(err.Error(), "this agent lost its connection to the database and stops") {
		t.Errorf("an agent that loses its database at its start ends with %v", err)
	}
}
