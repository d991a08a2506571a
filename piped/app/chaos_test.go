package app

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// chaosSize is the extent of TestChaos. PIPED_CHAOS sets it, as
// kills=100,deployments=200,applications=20; PIPED_CHAOS_SEED sets the seed.
type chaosSize struct{ kills, deployments, applications int }

// TestChaos kills the agent with SIGKILL at random moments while commits, manual syncs,
// cancels, approvals and failures keep it busy. Then it checks the invariants of the
// transition log, the outbox, the commands, the scripts' output and the live state. On
// PostgreSQL two replicas stand by, which are killed, too: whichever lives takes over. Some are
// suspended before, so that they go on while another one works, and the database is restarted.
func TestChaos(t *testing.T) {
	t.Parallel()
	size := chaosSize{kills: 8, deployments: 20, applications: 6}
	if text := os.Getenv("PIPED_CHAOS"); text != "" {
		if _, err := fmt.Sscanf(text, "kills=%d,deployments=%d,applications=%d", &size.kills, &size.deployments, &size.applications); err != nil {
			t.Fatalf("PIPED_CHAOS=%q: expected kills=<n>,deployments=<n>,applications=<n>: %v", text, err)
		}
	}
	seed := chaosSeed(t)
	binary := buildAgent(t)
	t.Run("sqlite", func(t *testing.T) { runChaos(t, size, seed, binary, nil) })
	t.Run("postgres", func(t *testing.T) { runChaos(t, size, seed, binary, pgtest.Start(t)) })
}

// chaosSeed returns PIPED_CHAOS_SEED, or a new seed.
func chaosSeed(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("PIPED_CHAOS_SEED"); text != "" {
		if _, err := fmt.Sscan(text, &seed); err != nil {
			t.Fatalf("PIPED_CHAOS_SEED=%q: expected a number: %v", text, err)
		}
	}
	return seed
}

func runChaos(t *testing.T, size chaosSize, seed uint64, binary string, server *pgtest.Server) {
	t.Logf("seed %d (PIPED_CHAOS_SEED), %+v", seed, size)
	began := time.Now()
	c := &chaos{chaosSize: size, random: rand.New(rand.NewPCG(seed, 1)), writes: make(chan struct{}, 1)}
	if c.server = server; server != nil {
		c.dsn = server.NewDSN(t)
		c.db = storetest.Raw(t, c.dsn)
		c.db.SetMaxIdleConns(-1)
	}
	dsn := c.dsn
	c.chaosEnv = newChaosEnv(t, size.applications, rand.New(rand.NewPCG(seed, 2)))
	_, kubeconfig := proxied(t, clustertest.Shared(t).Kubeconfig(), c.saw, nil)
	dir := t.TempDir()
	options := agenttest.Options{
		Binary: binary, Dir: dir, Remote: c.repo.Dir, Kubeconfig: kubeconfig, Interval: 100 * time.Millisecond, DSN: dsn,
		More: allowScripts(filepath.Dir(c.scripts)) + fmt.Sprintf(`  notifications:
    routes: [{receiver: hook}]
    receivers: [{name: hook, webhook: {url: %q, signatureValue: secret}}]
`, c.receiver(t)),
	}
	var err error
	if c.agent, err = agenttest.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	c.victims = append(c.victims, c.agent)
	t.Cleanup(func() { c.close(t) })
	if dsn != "" {
		options.StoreKey = filepath.Join(dir, "piped", storeKeyFile)
		for range 2 {
			replica, err := agenttest.StartReplica(c.agent, options, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			c.victims = append(c.victims, replica)
		}
	}

	c.torment(t)
	c.settle(t)
	c.finish(t)
	c.awaitNotified(t)
	for _, agent := range c.victims {
		if err := agent.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if dsn == "" {
		dsn = "sqlite://" + filepath.Join(dir, "piped", "piped.db")
	}
	report := c.verify(t, dsn, filepath.Join(dir, "piped"))
	t.Logf("%s\n  %d kills and restarts, suspended before for %v, taken over after %s, %s", report, len(c.killed), c.suspended, c.takeovers(t), time.Since(began).Round(time.Second))
}

// receiver starts a receiver of notifications and returns its URL.
func (c *chaos) receiver(t *testing.T) string {
	c.hook = newHook(t)
	go func() {
		for { // it counts by itself
			select {
			case <-c.hook.arrived:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return c.hook.URL
}

// awaitNotified waits until the end of each deployment has arrived at the receiver: an agent that
// stops sends for a second only, and the next start, which would send the rest, does not follow. What
// is missing is reported by verify.
func (c *chaos) awaitNotified(t *testing.T) {
	ends := []string{string(deploy.EventSucceeded), string(deploy.EventFailed), string(deploy.EventCancelled)}
	err := c.agent.Await(t.Context(), "the end of each deployment to arrive", patience, func(ctx context.Context) (bool, error) {
		ended, err := c.list(ctx, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE, modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED)
		if err != nil {
			return false, err
		}
		arrived := map[string]bool{}
		got, _ := c.hook.received()
		for _, p := range got {
			arrived[p.deployment] = arrived[p.deployment] || slices.Contains(ends, p.event)
		}
		return !slices.ContainsFunc(ended, func(d *modelv1.Deployment) bool { return !arrived[d.GetId()] }), nil
	})
	if err != nil {
		t.Error(err)
	}
}

// close ends the agent and its replicas.
func (c *chaos) close(t *testing.T) {
	for _, agent := range c.victims {
		if err := agent.Close(); err != nil {
			t.Errorf("the agent: %v", err)
		}
		if t.Failed() {
			keepLog(t, agent.LogFile)
		}
	}
}

// keepLog copies the agent's log to the directory of -artifacts.
func keepLog(t *testing.T, path string) {
	from, err := os.Open(path)
	if err != nil {
		t.Error(err)
		return
	}
	defer from.Close()
	to, err := os.CreateTemp(t.ArtifactDir(), "piped-*.log")
	if err != nil {
		t.Error(err)
		return
	}
	defer to.Close()
	if _, err := io.Copy(to, from); err != nil {
		t.Error(err)
	}
	t.Logf("the agent's log, if -artifacts is given: %s", to.Name())
}

// chaos is one run: the environment of the agent, and the kills.
type chaos struct {
	chaosSize
	*chaosEnv
	random *rand.Rand    // chooses the moments; the environment has its own source
	writes chan struct{} // receives when the agent has written to the cluster

	victims []*agenttest.Agent // the agent and its replicas, if there are any
	killed  []time.Time

	hook      *hook
	server    *pgtest.Server // nil on SQLite
	dsn       string
	db        *sql.DB // of the server; its connections are not retained
	suspended []time.Duration
	taken     []time.Duration // from a kill of the active replica until another one answers
}

// saw gets every request of the agent to the API server.
func (c *chaos) saw(r *http.Request) {
	if r.Method == http.MethodGet {
		return
	}
	select {
	case c.writes <- struct{}{}:
	default:
	}
}

// torment kills the agent until there were enough kills and enough deployments that no
// newer one cancelled. For each kill the environment acts once, so that the agent always
// has work.
func (c *chaos) torment(t *testing.T) {
	c.begin(t)
	rounds, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for range rounds {
			c.act(t)
		}
	}()
	defer func() { close(rounds); <-ended }()
	deadline := time.Now().Add(chaosLimit)
	for made := 0; (len(c.killed) < c.kills || made < c.deployments) && !t.Failed(); {
		select {
		case rounds <- struct{}{}:
		default: // the previous round still waits for a response
		}
		c.await(t.Context(), c.moment())
		if len(c.killed) >= c.kills {
			made = c.count(t.Context())
		}
		victim := c.victims[c.random.IntN(len(c.victims))]
		c.relaunchLost(t)
		c.end(t, victim)
		c.killed = append(c.killed, time.Now())
		if err := victim.Launch(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s and %d kills there are %d of %d deployments", chaosLimit, len(c.killed), made, c.deployments)
		}
	}
}

// end kills an agent. Where a replica stands by, it first suspends some of them, the first one past
// the time after which the database is given to the replica, and lets them go on: they must not do
// what the replica does now.
func (c *chaos) end(t *testing.T, victim *agenttest.Agent) {
	if len(c.victims) > 1 && (len(c.suspended) == 0 || c.random.IntN(3) == 0) {
		length := time.Duration(c.random.Int64N(int64(3 * time.Second)))
		if len(c.suspended)%suspensions == 0 {
			length = beyondExpiry
		}
		c.suspended = append(c.suspended, length)
		c.signal(t, victim, syscall.SIGSTOP)
		time.Sleep(length)
		c.signal(t, victim, syscall.SIGCONT)
		time.Sleep(time.Duration(c.random.Int64N(int64(time.Second)))) // the most dangerous moment
	}
	if c.server == nil {
		victim.Kill()
		return
	}
	if len(c.killed) == 3 {
		c.server.Restart(t, time.Second)
		c.settle(t)
	}
	measured := c.active(t) == victim.PID() && c.random.IntN(2) == 0
	if measured {
		c.takeover(t, victim) // until another one stands by: the start of a process is no part of a takeover
	}
	victim.Kill()
	if measured {
		c.taken = append(c.taken, c.takeover(t, victim))
	}
}

// relaunchLost starts replicas that have lost the database to another one, for which they end, and
// those that were started while the server was down.
func (c *chaos) relaunchLost(t *testing.T) {
	for _, a := range c.victims {
		select {
		case <-a.Ended():
			c.mustHaveLost(t, a)
			if err := a.Launch(); err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
}

// mustHaveLost fails the test unless an agent that ended had to, as relaunchLost says.
func (c *chaos) mustHaveLost(t *testing.T, a *agenttest.Agent) {
	lost := strings.Contains(a.Tail(), "this agent lost its connection to the database and stops")
	if c.server == nil || !lost && !strings.Contains(a.Tail(), "piped: connect to the database") {
		t.Fatal(a.Failure()) // it ended by itself
	}
}

// settle waits until replicas that cannot work any more have ended, and one works.
func (c *chaos) settle(t *testing.T) {
	if c.server == nil {
		return
	}
	for end := time.Now().Add(patience); c.active(t) == 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no replica has taken over")
		}
	}
	time.Sleep(3 * time.Second) // the others connect again meanwhile, and learn of it
	c.relaunchLost(t)
}

// active returns the ID of the process that has the database, according to the server; 0 if none.
func (c *chaos) active(t *testing.T) (pid int) {
	var name string
	err := c.db.QueryRowContext(t.Context(), `SELECT COALESCE(max(a.application_name), '') FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'advisory' AND l.granted AND a.application_name LIKE 'piped agent % pid %'`).Scan(&name)
	if err != nil {
		t.Fatal(err)
	}
	_, id, _ := strings.Cut(name, " pid ")
	pid, _ = strconv.Atoi(id) // 0 without one
	return pid
}

// takeover waits until a replica other than the killed one answers, and returns how long that took.
func (c *chaos) takeover(t *testing.T, killed *agenttest.Agent) time.Duration {
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		for _, a := range c.victims {
			if a == killed {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := a.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1})
			cancel()
			if err == nil {
				return time.Since(began)
			}
		}
		if time.Since(began) > patience {
			t.Fatalf("no replica answers %s after a kill", patience)
		}
	}
}

// takeovers returns the median and the longest takeover. The worst may not be longer than the time
// after which a replica that says nothing loses the database.
func (c *chaos) takeovers(t *testing.T) string {
	if len(c.taken) == 0 {
		return "no kill of an active replica"
	}
	slices.Sort(c.taken)
	worst := c.taken[len(c.taken)-1]
	if worst > longestGap {
		t.Errorf("a takeover lasted %s", worst)
	}
	return fmt.Sprintf("%s in the median and %s at worst (%d)", c.taken[len(c.taken)/2].Round(time.Millisecond), worst.Round(time.Millisecond), len(c.taken))
}

const (
	beyondExpiry = 17 * time.Second // the server ends the connection after 15 s
	suspensions  = 8                // one of so many is that long
)

func (c *chaos) signal(t *testing.T, a *agenttest.Agent, s syscall.Signal) {
	switch err := syscall.Kill(a.PID(), s); {
	case errors.Is(err, syscall.ESRCH):
		<-a.Ended()
		c.mustHaveLost(t, a)
	case err != nil:
		t.Errorf("send %s: %v", s, err)
	}
}

// chaosLimit bounds the duration of torment.
const chaosLimit = 15 * time.Minute

// moment is when the agent is killed: a condition, then a delay.
type moment struct {
	name  string
	ready func(ctx context.Context) bool // polled until it returns true
	delay time.Duration                  // the upper limit; the lower limit is 0
}

// moment chooses one of the moments in which the agent is working.
func (c *chaos) moment() moment {
	for len(c.writes) > 0 {
		<-c.writes
	}
	lines := c.scriptSize()
	return []moment{
		{"while it starts", func(context.Context) bool { return true }, 400 * time.Millisecond},
		{"as soon as it has started", c.answers, 20 * time.Millisecond},
		{"while it plans and starts stages", c.answers, 300 * time.Millisecond},
		{"while it plans and starts stages", c.answers, 300 * time.Millisecond},
		{"at a write to the cluster", func(context.Context) bool { return len(c.writes) > 0 }, 20 * time.Millisecond},
		{"at a write to the cluster", func(context.Context) bool { return len(c.writes) > 0 }, 80 * time.Millisecond},
		{"in a script", func(context.Context) bool { return c.scriptSize() > lines }, 120 * time.Millisecond},
		{"in a rollback", c.rollingBack, 150 * time.Millisecond},
		{"while it rolls back", c.rollingBack, 20 * time.Millisecond},
		{"at any time", c.answers, 2 * time.Second},
	}[c.random.IntN(10)]
}

// await returns at the moment, or after a time limit. After the kills that are wanted, the agent gets
// more and more time between two: on a slow machine it needs that to make deployments at all.
func (c *chaos) await(ctx context.Context, m moment) {
	slower := 1 + time.Duration(len(c.killed)/c.kills)
	ctx, cancel := context.WithTimeout(ctx, slower*2*time.Second)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !m.ready(ctx) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-poll.C:
		}
	}
	time.Sleep(time.Duration(c.random.Int64N(int64(slower * m.delay))))
}
