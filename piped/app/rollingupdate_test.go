package app

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// front asks the replicas in turn, as the clients of a Service do, and the next one when one
// refuses.
type front struct {
	replicas []*agenttest.Agent
	asked    int
	answered atomic.Int32
	longest  time.Duration // between two answers
}

// poll asks until ctx ends. It does not count the time in which it stands still itself.
func (f *front) poll(ctx context.Context, ask func(context.Context, *agenttest.Agent) error) {
	const limit, pause = 2 * time.Second, 20 * time.Millisecond // of one request, and after it
	var waited time.Duration                                    // since the last answer
	for ctx.Err() == nil {
		replica := f.replicas[f.asked%len(f.replicas)]
		f.asked++
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, limit)
		err := ask(limited, replica)
		cancel()
		waited += min(time.Since(began), limit)
		f.longest = max(f.longest, waited)
		if err == nil {
			f.answered.Add(1)
			waited = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		waited += pause
	}
}

func askAPI(ctx context.Context, a *agenttest.Agent) error {
	_, err := a.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1})
	return err
}

func askPage(client *http.Client) func(context.Context, *agenttest.Agent) error {
	return func(ctx context.Context, a *agenttest.Agent) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.WebAddress+"/", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK { // of the page, or of the sign-in that it leads to
			return fmt.Errorf("status %s", response.Status)
		}
		return nil
	}
}

// longestGap bounds the time without an answer during a rolling update: a standby takes over within
// a second, and three processes start on a machine that is busy with other tests.
const longestGap = 15 * time.Second

// TestRollingUpdate replaces three replicas one after the other while a deployment runs and clients
// ask all of them. The deployment ends once, and clients are answered but for the takeovers.
func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	cluster, repo := clustertest.Shared(t), newRepo(t)
	ns := cluster.Namespace(t)
	o := agenttest.Options{Binary: buildAgent(t), Dir: t.TempDir(), Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), DSN: pgtest.Start(t).NewDSN(t), Interval: 200 * time.Millisecond}
	r := &replicas{t: t, first: startProcess(t, o)}
	all := []*agenttest.Agent{r.first}
	o.StoreKey = filepath.Join(o.Dir, "piped", storeKeyFile)
	for range 2 {
		a, err := agenttest.StartReplica(r.first, o, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := a.Close(); err != nil {
				t.Errorf("the replica: %v", err)
			}
		})
		r.standsBy(a)
		all = append(all, a)
	}
	files := heldApp("web", webApp(ns, "v1", "")) // the deployment runs until its pods may be ready
	files["web/app.pipecd.yaml"] += "  planner: {alwaysUsePipeline: true}\n  pipeline: {stages: [{name: WAIT, with: {duration: 15s}}, {name: K8S_SYNC}]}\n"
	commit, web := repo.Push(t, "first", files), appID("web")
	r.client = &client{t: t, ctx: t.Context(), api: all[2].API, control: all[2].Control}
	r.client.await(web, "runs", func(d *modelv1.Deployment) bool { return d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_RUNNING })

	r.update(all, func() {
		r.client.letPodsBeReady(cluster.Client(t), ns, web, commit)
		mustHaveEndedOnce(t, r.client.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))
	})
}

// TestRollingUpdateOfSharedWork is TestRollingUpdate with replicas that share the work: each of them has
// deployments that run when it is replaced.
func TestRollingUpdateOfSharedWork(t *testing.T) {
	t.Parallel()
	f := startSharing(t, 6, clustertest.Shared(t).Kubeconfig)
	commit := f.push("v1", 15*time.Second)
	f.awaitWaits(commit)
	f.client = &client{t: t, ctx: t.Context(), api: f.third.API, control: f.third.Control}
	f.update([]*agenttest.Agent{f.first, f.second, f.third}, func() {
		f.awaitShares(3) // until its worker listens, the third one passes calls on, and cuts them off then
		f.answers(f.third)
		f.mustEndOnce("v1", commit)
	})
	f.awaitShares(3)
	f.mustListReplicas(3)
}

// update replaces replicas one after the other while clients ask all of them, and checks that these are
// answered but for the takeovers. Then it calls updated, while they go on asking.
func (r *replicas) update(all []*agenttest.Agent, updated func()) {
	t := r.t
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true} // each request finds a replica anew
	api, page := &front{replicas: all}, &front{replicas: all}
	ctx, cancel := context.WithCancel(t.Context())
	var polling sync.WaitGroup
	polling.Go(func() { api.poll(ctx, askAPI) })
	polling.Go(func() { page.poll(ctx, askPage(&http.Client{Transport: transport})) })
	defer polling.Wait()
	defer cancel()
	for _, a := range all {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
		if err := a.Launch(); err != nil {
			t.Fatal(err)
		}
		r.answers(a)
	}
	updated()
	fronts := map[string]*front{"API": api, "page": page}
	for name, f := range fronts {
		before := f.answered.Load()
		clustertest.Eventually(t, name+" answers each replica's clients after the update", func() bool { return f.answered.Load() >= before+int32(len(all)) })
	}
	cancel()
	polling.Wait()
	for name, f := range fronts {
		t.Logf("%s: %d of %d requests answered, at most %s without an answer", name, f.answered.Load(), f.asked, f.longest.Round(time.Millisecond))
		if f.longest > longestGap {
			t.Errorf("%s: %s without an answer, want at most %s", name, f.longest, longestGap)
		}
	}
}
