package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// foreignSize is how much TestForeignRollouts does. PIPED_FOREIGN_ROLLOUTS sets it, as
// rollouts=1000,workloads=30.
type foreignSize struct{ rollouts, workloads int }

const foreignLimit = 20 * time.Minute // bounds the time in which rollouts begin

// TestForeignRollouts: other tools change workloads that belong to no application at random,
// also while the agent is killed or away, and its watches are closed or expire. An oracle
// watches the API server independently. The records and notifications of the agent have every
// rollout that it saw, once and with the right end, and no other.
func TestForeignRollouts(t *testing.T) {
	t.Parallel()
	size := foreignSize{rollouts: 70, workloads: 10}
	if text := os.Getenv("PIPED_FOREIGN_ROLLOUTS"); text != "" {
		if _, err := fmt.Sscanf(text, "rollouts=%d,workloads=%d", &size.rollouts, &size.workloads); err != nil {
			t.Fatalf("PIPED_FOREIGN_ROLLOUTS=%q: expected rollouts=<n>,workloads=<n>: %v", text, err)
		}
	}
	seed := chaosSeed(t)
	t.Logf("seed %d (PIPED_CHAOS_SEED), %+v", seed, size)
	c := startForeign(t, size, seed)
	c.torment(t)
	c.awaitQuiet(t)
	if err := c.agent.Stop(); err != nil {
		t.Fatal(err)
	}
	c.oracle.close()
	c.verify(t)
}

// foreignChaos is one run: the environment of the agent, and the functions that disturb it.
type foreignChaos struct {
	foreignSize
	*foreignEnv
	oracle *foreignOracle
	hook   *foreignHook
	dir    string
	agent  *agenttest.Agent
	proxy  *agenttest.APIProxy
	chance *rand.Rand // chooses what happens to the agent
	began  time.Time

	launched time.Time // what began before is no rollout for the agent
	ups      []uptime
	proofs   []proof
	probes   int // workloads that only prove
	cuts     int // watches that were cut
}

// proof proves that the agent had handled by seen what happened before began: a rollout of each kind
// that began since then was recorded.
type proof struct{ began, seen time.Time }

// uptime is a time in which the agent ran.
type uptime struct {
	launched time.Time
	from     time.Time // when it certainly watched everything; zero if it did not get that far
	to       time.Time // when it was killed; zero: it runs
}

// beginRun begins an uptime.
func (c *foreignChaos) beginRun() {
	c.ups = append(c.ups, uptime{launched: time.Now()})
}

// noteWatch notes since when the agent watches everything, which it logs, unless that is known.
func (c *foreignChaos) noteWatch(t *testing.T) {
	up := &c.ups[len(c.ups)-1]
	if !up.from.IsZero() {
		return
	}
	log, err := os.ReadFile(c.agent.LogFile)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		stamp, isTime := strings.CutPrefix(line, "time=")
		if !isTime || !strings.Contains(line, `"every rollout of the cluster is recorded"`) {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, stamp[:strings.IndexByte(stamp, ' ')])
		if err != nil {
			t.Fatal(err)
		}
		if at.After(up.launched) {
			up.from = at
			return
		}
	}
}

func startForeign(t *testing.T, size foreignSize, seed uint64) *foreignChaos {
	source := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, n)) }
	cluster := clustertest.Shared(t)
	namespace, kube := cluster.Namespace(t), cluster.Client(t)
	c := &foreignChaos{
		foreignSize: size, dir: t.TempDir(), chance: source(21), began: time.Now(), hook: newForeignHook(t), oracle: watchForeign(t, kube, namespace),
		foreignEnv: &foreignEnv{namespace: namespace, kube: kube, random: source(22), targets: foreignTargets(size.workloads)},
	}
	for i, f := range c.targets { // half of them, some of which roll out while the agent starts
		if i%2 == 0 {
			if err := c.create(t.Context(), f, 2); err != nil {
				t.Fatal(err)
			}
		}
	}
	proxy, kubeconfig := proxied(t, cluster.Kubeconfig(), nil, nil)
	c.proxy = proxy
	c.launched = time.Now()
	c.beginRun()
	c.agent = startProcess(t, agenttest.Options{Dir: c.dir, Remote: newRepo(t).Dir, Kubeconfig: kubeconfig, WatchIn: namespace, More: c.hook.config()})
	t.Cleanup(func() {
		if t.Failed() {
			keepLog(t, c.agent.LogFile)
		}
	})
	c.awaitWatch(t)
	return c
}

// awaitWatch creates workloads until the agent records one: it watches since before that.
func (c *foreignChaos) awaitWatch(t *testing.T) {
	err := c.agent.Await(t.Context(), "a rollout to be recorded", patience, func(ctx context.Context) (bool, error) {
		found, err := c.recorded(ctx)
		if err != nil || len(found) > 0 {
			return err == nil, err
		}
		if err := c.probe(ctx, "DaemonSet"); err != nil {
			return false, err
		}
		time.Sleep(200 * time.Millisecond) // for the agent to see it
		return false, errors.New("none yet")
	})
	if err != nil {
		t.Fatal(err)
	}
	c.ups[0].from = time.Now()
}

// probe creates a workload that nothing changes.
func (c *foreignChaos) probe(ctx context.Context, kind string) error {
	c.probes++
	return c.create(ctx, &foreignTarget{name: fmt.Sprintf("probe-%d", c.probes), kind: kind}, 1)
}

// prove waits until the agent, which runs, has handled all that has happened.
func (c *foreignChaos) prove(t *testing.T) {
	began, missing := time.Now(), map[string]bool{}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		if err := c.probe(t.Context(), kind); err != nil {
			t.Fatal(err)
		}
		missing[fmt.Sprintf("probe-%d", c.probes)] = true
	}
	err := c.agent.Await(t.Context(), "probes to be recorded", patience, func(ctx context.Context) (bool, error) {
		found, err := c.recorded(ctx)
		for _, r := range found {
			delete(missing, r.GetWorkload().GetName())
		}
		return len(missing) == 0, err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.proofs = append(c.proofs, proof{began, time.Now()})
}

// recorded returns the recorded rollouts, by ID.
func (c *foreignChaos) recorded(ctx context.Context) (map[string]*modelv1.Rollout, error) {
	found := map[string]*modelv1.Rollout{}
	request := &controlv1.ListRolloutsRequest{Kind: modelv1.RolloutKind_ROLLOUT_KIND_ROLLOUT, Limit: 1000}
	for {
		answer, err := c.agent.Control.ListRollouts(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, r := range answer.GetRollouts() {
			found[r.GetId()] = r
		}
		if request.Cursor = answer.GetCursor(); request.Cursor == "" {
			return found, nil
		}
	}
}

// torment changes workloads, and what the agent sees of them, until enough rollouts have
// begun. It kills the agent, and restarts it at once or after it was away for a while.
func (c *foreignChaos) torment(t *testing.T) {
	said := time.Now()
	for round := 0; c.oracle.began()-c.probes < c.rollouts && !t.Failed(); round++ {
		c.change(t, time.Second+time.Duration(c.chance.Int64N(int64(2*time.Second))))
		switch c.chance.IntN(4) {
		case 0:
			c.cuts += c.proxy.CutWatches()
		case 1:
			c.cuts += c.proxy.ExpireWatches()
		}
		c.change(t, time.Second)
		if round%3 == 0 {
			c.change(t, oracleLag)
			c.prove(t)
			c.change(t, oracleLag)
		}
		if round%10 == 9 { // deadlines do not count for half a minute after the start
			c.change(t, time.Minute)
		}
		c.agent.Kill()
		c.ups[len(c.ups)-1].to = time.Now()
		c.noteWatch(t)
		if round%2 == 1 {
			c.change(t, 3*time.Second+time.Duration(c.chance.Int64N(int64(3*time.Second))))
		}
		c.beginRun()
		if err := c.agent.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Since(said) > 15*time.Second {
			said = time.Now()
			t.Logf("%s: %d of %d rollouts, killed %d times", time.Since(c.began).Round(time.Second), c.oracle.began(), c.rollouts, len(c.ups)-1)
		}
		if time.Since(c.began) > foreignLimit {
			t.Errorf("after %s only %d of %d rollouts have begun", foreignLimit, c.oracle.began(), c.rollouts)
		}
	}
}

// change changes workloads for a while.
func (c *foreignChaos) change(t *testing.T, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Duration(c.random.Int64N(int64(150 * time.Millisecond)))) {
		if err := c.act(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitQuiet lets every rollout end and waits for the records and notifications of that. What
// is missing is reported by verify.
func (c *foreignChaos) awaitQuiet(t *testing.T) {
	if err := c.foreignEnv.rest(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.awaitEnds(t)
	c.prove(t)
	c.awaitEnds(t)
	c.awaitPods(t)
}

// awaitPods waits until the oracle has seen every pod as it is: after that, its watch is closed.
func (c *foreignChaos) awaitPods(t *testing.T) {
	list, err := c.kube.CoreV1().Pods(c.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for i := range list.Items {
		last = max(last, versionOf(&list.Items[i]))
	}
	eventually(t, "the oracle has seen the last pod", func() bool { return c.oracle.sawPods(last) })
}

// awaitEnds waits until everything that has begun has ended, and that is announced.
func (c *foreignChaos) awaitEnds(t *testing.T) {
	err := c.agent.Await(t.Context(), "everything to end", patience, func(ctx context.Context) (bool, error) {
		found, err := c.recorded(ctx)
		if err != nil {
			return false, err
		}
		if open := c.oracle.open(found); open != "" {
			return false, errors.New(open)
		}
		if n := c.hook.missing(found); n > 0 {
			return false, fmt.Errorf("%d notifications are missing", n)
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}

// open returns a rollout that ought to have a record or an end soon, or a record whose rollout the
// oracle has not seen, "" if there is none.
func (o *foreignOracle) open(recorded map[string]*modelv1.Rollout) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[string]bool{}
	for name, w := range o.byName {
		for _, l := range w.lives {
			stuck := l.deleted.IsZero() && len(l.rollouts) > 0 && l.kind != "Deployment" && !soundImage(imageOf(l.rollouts[len(l.rollouts)-1].image))
			for i, r := range l.rollouts {
				last := i == len(l.rollouts)-1
				id := deploy.ExternalRolloutID("devcluster", l.uid, r.revision)
				rec := recorded[id]
				seen[id] = true
				switch {
				case last && l.deleted.IsZero() && rec == nil && i > 0 && !l.continued(i, recorded):
					return fmt.Sprintf("revision %d of %s has no record", r.revision, name)
				case last && l.deleted.IsZero() && r.shown.IsZero() && soundImage(imageOf(r.image)):
					return fmt.Sprintf("revision %d of %s rolls out", r.revision, name)
				case rec != nil && rec.GetCompletedAtMs() == 0 && !(last && stuck):
					return fmt.Sprintf("revision %d of %s is %s: %s", r.revision, name, rec.GetOutcome(), rec.GetReason())
				}
			}
		}
	}
	for id, rec := range recorded {
		if !seen[id] {
			return fmt.Sprintf("the oracle has not seen the revision of record %s of %s", id, rec.GetWorkload().GetName())
		}
	}
	return ""
}

// continued reports whether rollout i of a life restarted an earlier one with the same image, whose
// record goes on.
func (l *foreignLife) continued(i int, recorded map[string]*modelv1.Rollout) bool {
	r := l.rollouts[i]
	return slices.ContainsFunc(l.rollouts[:i], func(before *foreignRollout) bool {
		rec := recorded[deploy.ExternalRolloutID("devcluster", l.uid, before.revision)]
		return rec != nil && before.image != r.image && imageOf(before.image) == imageOf(r.image) &&
			(rec.GetCompletedAtMs() == 0 || rec.GetCompletedAtMs() > r.begun.Add(-oracleLag).UnixMilli())
	})
}

// began returns how many rollouts have begun.
func (o *foreignOracle) began() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, w := range o.byName {
		for _, l := range w.lives {
			n += len(l.rollouts)
		}
	}
	return n
}

// foreignHook is a receiver of notifications.
type foreignHook struct {
	url string

	mu   sync.Mutex
	seen map[string]bool // by idempotency key
	got  []foreignEvent  // each once, in the order of the first delivery
}

type foreignEvent struct {
	kind, key      string
	id, interrupts string
	phase          deploy.RolloutPhase
	late           bool
}

func newForeignHook(t *testing.T) *foreignHook {
	h := &foreignHook{seen: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var body struct {
			Metadata struct {
				Rollout struct {
					ID, Interrupts string
					Phase          deploy.RolloutPhase
					Late           bool `json:"found_late"`
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return // its sender was killed
		}
		of := body.Metadata.Rollout
		h.add(foreignEvent{r.Header.Get("Piped-Event"), r.Header.Get("Piped-Delivery"), of.ID, of.Interrupts, of.Phase, of.Late})
	}))
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *foreignHook) add(e foreignEvent) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.seen[e.key] {
		h.seen[e.key] = true
		h.got = append(h.got, e)
	}
}

// config returns the lines of the agent's configuration.
func (h *foreignHook) config() string {
	return fmt.Sprintf(`  notifications:
    routes: [{name: rollouts, receiver: hook, groups: [ROLLOUT], ignoreEvents: [SCALING_ENDED]}]
    receivers: [{name: hook, webhook: {url: %q}}]
`, h.url)
}

// missing returns how many notifications of records have not been received.
func (h *foreignHook) missing(recorded map[string]*modelv1.Rollout) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	want := len(recorded)
	for _, r := range recorded {
		if r.GetCompletedAtMs() > 0 {
			want++
		}
	}
	return want - len(h.got)
}
