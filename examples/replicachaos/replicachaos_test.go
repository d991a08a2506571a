package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/examples/programs"
	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// TestReplicaChaos runs the program with three replicas that share the work, and whatever can happen to
// them. PIPED_REPLICA_CHAOS sets the size, as deployments=200,applications=20; without it each fault
// happens once. PIPED_CHAOS_SEED repeats the choices of a run.
func TestReplicaChaos(t *testing.T) {
	deployments, applications, limit, long := 12, 6, 10*time.Minute, false
	if text := os.Getenv("PIPED_REPLICA_CHAOS"); text != "" {
		if _, err := fmt.Sscanf(text, "deployments=%d,applications=%d", &deployments, &applications); err != nil {
			t.Fatalf("PIPED_REPLICA_CHAOS=%q: expected deployments=<n>,applications=<n>: %v", text, err)
		}
		limit, long = time.Hour, true
	}
	seed := cmp.Or(os.Getenv("PIPED_CHAOS_SEED"), fmt.Sprint(time.Now().UnixNano()))
	t.Logf("PIPED_CHAOS_SEED=%s", seed)
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com",
	} {
		t.Setenv(name, value)
	}
	c := startReplicas(t)
	began := time.Now()
	code := run(t.Context(), []string{
		"-config", c.config(long), "-deployments", fmt.Sprint(deployments), "-applications", fmt.Sprint(applications),
		"-seed", seed, "-takeover", takeoverLimit.String(), "-limit", limit.String(),
	}, t.Output(), t.Output())
	if code != 0 {
		t.Fatalf("replicachaos exited with %d", code)
	}
	t.Logf("it lasted %s", time.Since(began).Round(time.Second))
	c.mustRest()
	c.stop()
	c.mustNotPanic()
}

// takeoverLimit is how long a takeover may last: until the killed replica expires, and some seconds for
// a busy machine.
const takeoverLimit = 20 * time.Second

const storeKeySize = 32

// replicas are three replicas, each behind proxies of its own, and a supervisor that starts each
// again when it ends by itself, as systemd or a cluster does.
type replicas struct {
	t         *testing.T
	server    *pgtest.Server
	dsn       string
	namespace string
	dir       string
	work      string // a clone of the repository
	receiver  string // the address for notifications
	control   string // the URL of the faults
	all       []*supervised
	ending    chan struct{}
	watching  sync.WaitGroup
}

// supervised is a replica with what can be done to it.
type supervised struct {
	*agenttest.Agent
	database *agenttest.TCPProxy
	cluster  *agenttest.APIProxy

	mu   sync.Mutex
	down bool // it was killed, and is not to be started yet
}

func startReplicas(t *testing.T) *replicas {
	c := &replicas{t: t, server: pgtest.Start(t), namespace: clustertest.Shared(t).Namespace(t), dir: t.TempDir(), ending: make(chan struct{})}
	c.dsn = c.server.NewDSN(t)
	var err error
	if c.receiver, _, err = agenttest.FreeAddresses(); err != nil {
		t.Fatal(err)
	}
	repo := gittest.New(t)
	repo.Push(t, "begin", map[string]string{"README.md": "applications of the test"})
	c.work = filepath.Join(c.dir, "work")
	if out, err := exec.Command("git", "clone", "-q", repo.Dir, c.work).CombinedOutput(); err != nil {
		t.Fatalf("git clone: %v\n%s", err, out)
	}
	if err := os.WriteFile(c.storeKey(), bytes.Repeat([]byte("k"), storeKeySize), 0o600); err != nil {
		t.Fatal(err)
	}
	o := agenttest.Options{
		Binary: filepath.Join(programs.Dir(t), "piped"), Remote: repo.Dir, Interval: 5 * time.Second, StoreKey: c.storeKey(), Share: true,
		More: fmt.Sprintf(`  scripts: {isolation: none}
  notifications:
    routes: [{receiver: hook}]
    receivers: [{name: hook, webhook: {url: "http://%s/", signatureValue: secret}}]
`, c.receiver),
	}
	for range 3 {
		c.all = append(c.all, c.start(o))
	}
	faults := httptest.NewServer(c)
	t.Cleanup(faults.Close)
	c.control = faults.URL
	c.watching.Go(c.supervise)
	t.Cleanup(c.stop)
	return c
}

func (c *replicas) storeKey() string { return filepath.Join(c.dir, "store.key") }
func (c *replicas) scripts() string  { return filepath.Join(c.dir, "scripts") }

// start starts a replica. The first one works when it returns.
func (c *replicas) start(o agenttest.Options) *supervised {
	t := c.t
	s := &supervised{}
	dsn, err := url.Parse(c.dsn)
	if err != nil {
		t.Fatal(err)
	}
	if s.database, err = agenttest.ServeTCP(dsn.Host); err != nil {
		t.Fatal(err)
	}
	dsn.Host = s.database.Address
	o.DSN = dsn.String()
	if s.cluster, err = agenttest.ServeAPI(clustertest.Shared(t).Kubeconfig(), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(s.database.Close(), s.cluster.Close()); err != nil {
			t.Error(err)
		}
	})
	o.Dir, o.ID = t.TempDir(), "replicachaos-"+c.namespace
	if o.Kubeconfig, err = s.cluster.Kubeconfig(o.Dir); err != nil {
		t.Fatal(err)
	}
	if len(c.all) == 0 {
		s.Agent, err = agenttest.Start(t.Context(), o)
	} else {
		s.Agent, err = agenttest.StartReplica(c.all[0].Agent, o, o.Dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// supervise starts replicas that have ended by themselves, until stop.
func (c *replicas) supervise() {
	for {
		select {
		case <-c.ending:
			return
		case <-time.After(100 * time.Millisecond):
		}
		for i, s := range c.all {
			if err := s.startAgain(); err != nil {
				c.t.Errorf("replica %d: %v", i, err)
			}
		}
	}
}

// startAgain starts a replica that has ended by itself. It may end for the loss of its database only.
func (s *supervised) startAgain() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.Ended():
	default:
		return nil
	}
	if s.down {
		return nil
	}
	var err error
	if tail := s.Tail(); !strings.Contains(tail, "this agent lost its connection to the database and stops") && !strings.Contains(tail, "piped: connect to the database") {
		err = s.Failure()
	}
	return errors.Join(err, s.Launch())
}

// ServeHTTP does what the path says: /kill/0 kills the first replica.
func (c *replicas) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what, number, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if what == "restart" {
		c.server.Restart(c.t, time.Second)
		return
	}
	i, err := strconv.Atoi(number)
	if err != nil {
		c.t.Error(err)
		return
	}
	pid, err := c.all[i].do(what)
	if err != nil {
		c.t.Errorf("%s: %v", r.URL.Path, err)
	}
	fmt.Fprintf(w, " pid %d", pid)
}

// do does something to a replica, and returns the ID of its process before.
func (s *supervised) do(what string) (pid int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid = s.PID()
	switch what {
	case "kill":
		s.down = true
		s.Kill()
	case "launch":
		s.down = false
		err = s.Launch()
	case "suspend":
		err = syscall.Kill(pid, syscall.SIGSTOP)
	case "continue":
		err = syscall.Kill(pid, syscall.SIGCONT)
	case "cut-database":
		s.database.Silence()
	case "mend-database":
		s.database.Speak()
	case "cut-cluster":
		s.cluster.Silence()
	case "mend-cluster":
		s.cluster.Speak()
	default:
		err = fmt.Errorf("no such fault: %s", what)
	}
	return pid, err
}

// config writes the configuration of the program, with faults of each replica or each fault of one, and
// returns its path.
func (c *replicas) config(long bool) string {
	command := func(what string, replica int) string {
		return fmt.Sprintf("curl -fsS -X POST %s/%s/%d", c.control, what, replica)
	}
	type fault struct {
		Name, Do, Undo     string
		Min, Max           time.Duration
		Takeover, Suspends bool
	}
	faults := []fault{{Name: "restart the database", Do: command("restart", 0)}}
	for i := range c.all {
		own := []fault{
			{Name: "kill", Do: command("kill", i), Undo: command("launch", i), Max: 20 * time.Second, Takeover: true},
			{Name: "suspend", Do: command("suspend", i), Undo: command("continue", i), Min: 5 * time.Second, Max: time.Minute, Suspends: true},
			{Name: "cut from the database", Do: command("cut-database", i), Undo: command("mend-database", i), Min: time.Second, Max: 30 * time.Second},
			{Name: "cut from the cluster", Do: command("cut-cluster", i), Undo: command("mend-cluster", i), Min: time.Second, Max: 30 * time.Second},
		}
		if !long { // one of each, and the first is suspended past its expiry
			own[0].Max, own[1].Min, own[1].Max, own[2].Max, own[3].Max = 0, 17*time.Second, 17*time.Second, 5*time.Second, 3*time.Second
			own = [][]fault{own[1:2], own[0:1], own[2:4]}[i]
		}
		for _, f := range own {
			f.Name += fmt.Sprint(" replica ", i)
			faults = append(faults, f)
		}
	}
	config := map[string]any{
		"keyFile": c.all[0].KeyFile, "workTree": c.work, "kubeconfig": clustertest.Shared(c.t).Kubeconfig(), "namespace": c.namespace,
		"image": "registry.example/c:v1", "scripts": c.scripts(), "receiver": c.receiver, "faults": faults,
	}
	var addresses []string
	for _, s := range c.all {
		addresses = append(addresses, s.Address)
	}
	config["api"] = addresses
	text, err := yaml.Marshal(config)
	file := filepath.Join(c.dir, "replicachaos.yaml")
	if err := cmp.Or(err, os.WriteFile(file, text, 0o600)); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// stop stops the supervisor and all replicas.
func (c *replicas) stop() {
	select {
	case <-c.ending:
		return
	default:
		close(c.ending)
	}
	c.watching.Wait()
	for _, s := range c.all {
		s.database.Speak()
		s.cluster.Speak()
		_ = syscall.Kill(s.PID(), syscall.SIGCONT) // after a failure
		if err := s.Close(); err != nil {
			c.t.Error(err)
		}
		if c.t.Failed() {
			c.t.Logf("the end of %s:\n%s", s.LogFile, s.Tail())
		}
	}
}

// mustNotPanic checks the logs of the replicas.
func (c *replicas) mustNotPanic() {
	for _, s := range c.all {
		if log, err := os.ReadFile(s.LogFile); err != nil || bytes.Contains(log, []byte("panic")) {
			c.t.Errorf("the log %s contains a panic (%v)", s.LogFile, err)
		}
	}
}

// mustRest checks that replicas with nothing to do send at most two requests per second each to the
// database, as the server counts them, asked over another database.
func (c *replicas) mustRest() {
	u, err := url.Parse(c.dsn)
	if err != nil {
		c.t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	u.Path = "postgres"
	server := storetest.Raw(c.t, u.String())
	transactions := func() (n int64) {
		if err := server.QueryRowContext(c.t.Context(), "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = $1", database).Scan(&n); err != nil {
			c.t.Fatal(err)
		}
		return n
	}
	const window = 8 * time.Second
	lowest := 0.0
	for end := time.Now().Add(2 * time.Minute); ; { // what the program has caused ends meanwhile
		before, began := transactions(), time.Now()
		time.Sleep(window)
		lowest = float64(transactions()-before) / time.Since(began).Seconds() / float64(len(c.all))
		if lowest <= 2 {
			c.t.Logf("at rest: %.2f requests per second and replica", lowest)
			return
		}
		if time.Now().After(end) {
			c.t.Errorf("at rest a replica sends %.2f requests per second, at most 2 are permitted", lowest)
			return
		}
	}
}
