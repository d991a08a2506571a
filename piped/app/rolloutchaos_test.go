package app

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// rolloutChaosSize is how much TestRolloutChaos does. PIPED_ROLLOUT_CHAOS sets
// it, as rollouts=2000,applications=50.
type rolloutChaosSize struct{ rollouts, applications int }

// rolloutChaosLimit bounds the time in which rollouts begin.
const rolloutChaosLimit = 15 * time.Minute

// TestRolloutChaos rolls out commits, some of which fail by design, while the agent is
// killed every few seconds, its watches are closed or expire, its requests are delayed,
// and autoscalers flap the replicas. An oracle watches the pods independently. Every
// rollout that it saw must have exactly one end in the records of the agent, and none
// that contradicts the pods.
func TestRolloutChaos(t *testing.T) {
	t.Parallel()
	size := rolloutChaosSize{rollouts: 40, applications: 12}
	if text := os.Getenv("PIPED_ROLLOUT_CHAOS"); text != "" {
		if _, err := fmt.Sscanf(text, "rollouts=%d,applications=%d", &size.rollouts, &size.applications); err != nil {
			t.Fatalf("PIPED_ROLLOUT_CHAOS=%q: expected rollouts=<n>,applications=<n>: %v", text, err)
		}
	}
	seed := chaosSeed(t)
	t.Logf("seed %d (PIPED_CHAOS_SEED), %+v", seed, size)
	c := startRolloutChaos(t, size, seed)
	c.torment(t)
	c.awaitQuiet(t)
	c.rest()
	if err := c.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	c.oracle.catchUp(t, c.kube, c.namespace)
	c.oracle.close()
	c.verify(t, filepath.Join(c.dir, "piped"))
}

// rolloutChaos is one run: the environment of the agent, and the functions that disturb
// it.
type rolloutChaos struct {
	rolloutChaosSize
	*rolloutEnv
	dir   string
	agent *agenttest.Agent
	proxy *agenttest.APIProxy
	began time.Time

	stop    context.CancelFunc // ends the background disturbances
	running sync.WaitGroup

	downs  []downtime
	cuts   int        // watches that were cut
	random *rand.Rand // chooses when the agent is killed; other disturbances have their own source

	mu      sync.Mutex
	delays  *rand.Rand // chooses the requests that are delayed
	delayed int
}

// downtime is the time from a kill until the control API answers again.
type downtime struct{ from, to time.Time }

func startRolloutChaos(t *testing.T, size rolloutChaosSize, seed uint64) *rolloutChaos {
	source := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	cluster := clustertest.Shared(t)
	c := &rolloutChaos{
		rolloutChaosSize: size, dir: t.TempDir(), random: source(11), delays: source(12),
		rolloutEnv: newRolloutEnv(t, size.applications, cluster.Namespace(t), cluster.Client(t), source(13)),
	}
	proxy, kubeconfig := proxied(t, cluster.Kubeconfig(), c.delay, nil)
	c.proxy = proxy
	c.agent = startProcess(t, agenttest.Options{Dir: c.dir, Remote: c.repo.Dir, Kubeconfig: kubeconfig})
	t.Cleanup(func() {
		if t.Failed() {
			keepLog(t, c.agent.LogFile)
		}
	})
	c.began = time.Now()
	if err := c.begin(); err != nil {
		t.Fatal(err)
	}
	c.disturb(t, source(14), source(15))
	return c
}

// disturb cuts watches and scales in the background until rest is called.
func (c *rolloutChaos) disturb(t *testing.T, cuts, scales *rand.Rand) {
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	t.Cleanup(c.rest)
	c.every(ctx, 400*time.Millisecond, func() {
		switch chance := cuts.IntN(100); {
		case chance < 8:
			c.cuts += c.proxy.CutWatches()
		case chance < 16:
			c.cuts += c.proxy.ExpireWatches()
		}
	})
	c.every(ctx, 400*time.Millisecond, func() {
		if err := c.scale(ctx, scales); err != nil && ctx.Err() == nil {
			t.Errorf("scale: %v", err)
		}
	})
}

// every calls act repeatedly until ctx ends.
func (c *rolloutChaos) every(ctx context.Context, pause time.Duration, act func()) {
	c.running.Go(func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				act()
			}
		}
	})
}

// rest ends the background disturbances.
func (c *rolloutChaos) rest() {
	c.stop()
	c.running.Wait()
}

// delay delays some requests of the agent.
func (c *rolloutChaos) delay(r *http.Request) {
	c.mu.Lock()
	pause := time.Duration(0)
	if c.delays.IntN(100) < 5 {
		pause = time.Duration(c.delays.Int64N(int64(500 * time.Millisecond)))
		c.delayed++
	}
	c.mu.Unlock()
	select {
	case <-r.Context().Done():
	case <-time.After(pause):
	}
}

// torment kills the agent and commits until enough rollouts have begun.
func (c *rolloutChaos) torment(t *testing.T) {
	said := time.Now()
	for c.oracle.began() < c.rollouts && !t.Failed() {
		for end := time.Now().Add(c.life()); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
			if err := c.act(); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case <-c.agent.Ended():
			t.Fatal(c.agent.Failure()) // it ended by itself
		default:
		}
		c.kill(t)
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			t.Logf("%s: %d of %d rollouts, %d kills", time.Since(c.began).Round(time.Second), c.oracle.began(), c.rollouts, len(c.downs))
		}
		if time.Since(c.began) > rolloutChaosLimit {
			t.Errorf("after %s and %d kills only %d of %d rollouts have begun", rolloutChaosLimit, len(c.downs), c.oracle.began(), c.rollouts)
		}
	}
}

// life returns how long the agent runs before it is killed.
func (c *rolloutChaos) life() time.Duration {
	return time.Second + time.Duration(c.random.Int64N(int64(6*time.Second)))
}

// kill kills the agent and restarts it, sometimes twice: the second time during its
// start.
func (c *rolloutChaos) kill(t *testing.T) {
	down := downtime{from: time.Now()}
	c.agent.Kill()
	if c.random.IntN(4) == 0 {
		if err := c.agent.Launch(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(c.random.Int64N(int64(800 * time.Millisecond))))
		c.agent.Kill()
	}
	if err := c.agent.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	down.to = time.Now()
	c.downs = append(c.downs, down)
}

// awaitQuiet runs the agent until no work is open. Watches are still closed and replicas
// still flap.
func (c *rolloutChaos) awaitQuiet(t *testing.T) {
	err := c.agent.Await(t.Context(), "everything to end", 15*time.Minute, func(ctx context.Context) (bool, error) {
		apps, err := c.agent.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1000})
		if err != nil {
			return false, err
		}
		evaluated := 0
		for _, a := range apps.GetApplications() {
			if a.GetEvaluatedCommit() == c.head {
				evaluated++
			}
		}
		if evaluated < len(c.apps) {
			return false, fmt.Errorf("%d of %d applications are at commit %s", evaluated, len(c.apps), c.head)
		}
		request := &apiservice.ListDeploymentsRequest{Limit: 1000}
		for _, s := range openStatuses() {
			request.Statuses = append(request.Statuses, s.String())
		}
		open, err := c.agent.API.ListDeployments(ctx, request)
		if err != nil {
			return false, err
		}
		if n := len(open.GetDeployments()); n > 0 {
			d := open.GetDeployments()[0]
			return false, fmt.Errorf("%d deployments have not ended, such as %s of %s: %s (%s)", n, d.GetId(), d.GetApplicationName(), d.GetStatus(), d.GetStatusReason())
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
