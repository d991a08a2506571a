package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/store/storetest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// posted is one message that a receiver got.
type posted struct {
	key, event, deployment string
	taken                  bool
}

// hook is a receiver of webhooks that can be made to fail.
type hook struct {
	*httptest.Server
	arrived chan string // the names of events, as they arrive

	mu    sync.Mutex
	fails bool
	got   []posted
}

func newHook(t *testing.T) *hook {
	h := &hook{arrived: make(chan string, 1000)}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		Metadata struct {
			Deployment struct {
				ID string `json:"id"`
			} `json:"deployment"`
		}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || json.Unmarshal(body, &m) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	event := r.Header.Get("Piped-Event")
	h.got = append(h.got, posted{r.Header.Get("Piped-Delivery"), event, m.Metadata.Deployment.ID, !h.fails})
	if h.fails {
		w.WriteHeader(http.StatusInternalServerError)
	}
	h.arrived <- event
}

func (h *hook) fail(fails bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails = fails
}

// received returns the accepted messages, each key once in order of arrival, and the number
// of repeated ones.
func (h *hook) received() (once []posted, again int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seen := map[string]bool{}
	for _, p := range h.got {
		switch {
		case !p.taken:
		case seen[p.key]:
			again++
		default:
			seen[p.key] = true
			once = append(once, p)
		}
	}
	return once, again
}

// eventsOf returns the events of a deployment in the order of delivery.
func eventsOf(all []posted, deployment string) (events []string) {
	for _, p := range all {
		if p.deployment == deployment {
			events = append(events, p.event)
		}
	}
	return events
}

// TestNothingIsLeftUndelivered: a receiver fails while the agent works and is killed,
// also during deliveries. Once the receiver works, all events must be delivered in the
// order of each deployment, and repeated events must have the same key.
func TestNothingIsLeftUndelivered(t *testing.T) {
	t.Parallel()
	cluster, h := clustertest.Shared(t), newHook(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	h.fail(true)
	p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), More: fmt.Sprintf(`  notifications:
    routes: [{receiver: hook}, {receiver: hook, groups: [ROLLOUT]}]
    receivers: [{name: hook, webhook: {url: %q, signatureValue: secret}}]
`, h.URL)})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	db := storetest.Raw(t, "sqlite://"+filepath.Join(filepath.Dir(p.KeyFile), "piped.db"))
	awaitStarts := func(n int) { // an agent that ends before has not started for its receivers
		t.Helper()
		clustertest.Eventually(t, fmt.Sprintf("the start of process %d to be stored", n), func() bool {
			var starts int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox WHERE type = 'PIPED_STARTED'").Scan(&starts); err != nil {
				t.Fatal(err)
			}
			return starts == n
		})
	}
	web := appID("web")
	first := agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	awaitStarts(1)
	restart(t, p)
	for len(h.arrived) > 0 {
		<-h.arrived
	}
	h.fail(false)
	<-h.arrived // a delivery is in progress
	awaitStarts(2)
	restart(t, p)
	second := agent.mustEnd(web, repo.Push(t, "change web", webApp(ns, "v2", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	awaitStarts(3)
	awaitDelivered(t, p)
	_, again := h.received()
	starts := 4
	for ; ; starts++ {
		if err := p.Stop(); err != nil {
			t.Fatal(err)
		}
		// On a busy machine a stop may take longer to be stored than the agent waits for that: it is stopped again.
		var stops int
		if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox WHERE type = 'PIPED_STOPPED'").Scan(&stops); err != nil {
			t.Fatal(err)
		}
		if stops > 0 || starts > 9 {
			break
		}
		if err := p.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		awaitStarts(starts)
	}
	if err := p.Restart(t.Context()); err != nil { // delivers the stop, if that took longer than the agent waits at its end
		t.Fatal(err)
	}
	counts := func() map[string]int {
		all, _ := h.received()
		out := map[string]int{}
		for _, p := range all {
			out[p.event]++
		}
		return out
	}
	clustertest.Eventually(t, "the stop and the last start to be delivered", func() bool {
		got := counts()
		return got["PIPED_STARTED"] >= starts && got["PIPED_STOPPED"] >= 1
	})

	all, _ := h.received()
	want := []string{
		"DEPLOYMENT_TRIGGERED", "DEPLOYMENT_PLANNED", "DEPLOYMENT_STARTED", "STAGE_STARTED", "ROLLOUT_STARTED", "ROLLOUT_ENDED", "STAGE_SUCCEEDED", "DEPLOYMENT_SUCCEEDED",
	}
	for _, d := range []*modelv1.Deployment{first, second} {
		if diff := cmp.Diff(want, eventsOf(all, d.GetId())); diff != "" {
			t.Errorf("events of deployment %s (-want +got):\n%s", d.GetId(), diff)
		}
	}
	if got := counts(); got["PIPED_STARTED"] != starts || got["PIPED_STOPPED"] != 1 { // the agent was killed twice, and stopped until that was stored
		t.Errorf("delivered %d starts and %d stops, want %d and 1", got["PIPED_STARTED"], got["PIPED_STOPPED"], starts)
	}
	if again > 4 { // the deliveries that a kill interrupted
		t.Errorf("%d events were delivered again", again)
	}
}

// awaitDelivered waits until no notification is pending, at most as long as the retry of a
// failed one may take.
func awaitDelivered(t *testing.T, p *agenttest.Agent) {
	t.Helper()
	err := p.Await(t.Context(), "all notifications to be delivered", 15*time.Minute, func(ctx context.Context) (bool, error) {
		s, err := p.Control.GetStatus(ctx, &controlv1.GetStatusRequest{})
		if err != nil {
			return false, err
		}
		done := func(r *controlv1.ReceiverStatus) bool { return r.GetPending() == 0 && r.GetDeadLetterCount() == 0 }
		return len(s.GetReceivers()) > 0 && !slices.ContainsFunc(s.GetReceivers(), func(r *controlv1.ReceiverStatus) bool { return !done(r) }),
			fmt.Errorf("receivers: %v", s.GetReceivers())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHangingReceiverSlowsNoDeployment: with a receiver that never answers, deployments
// must take no longer than without one.
func TestHangingReceiverSlowsNoDeployment(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	over := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(over) })
	start := func(more string) (takes func(version string) time.Duration) {
		ns, repo := cluster.Namespace(t), newRepo(t)
		p := startProcess(t, agenttest.Options{Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), More: more})
		agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
		return func(version string) time.Duration {
			d := agent.mustEnd(appID("web"), repo.Push(t, version, webApp(ns, version, "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			return time.Duration(d.GetCompletedAtMs()-d.GetCreatedAtMs()) * time.Millisecond
		}
	}
	silent := start("")
	notifying := start(fmt.Sprintf("  notifications:\n    routes: [{receiver: hangs}]\n    receivers: [{name: hangs, webhook: {url: %q}}]\n", hangs.URL))
	without, with := patience, patience
	// In turn, so that the machine is as busy for both. The fastest counts.
	for _, version := range []string{"v0", "v1", "v2", "v3"} {
		without = min(without, silent(version))
		with = min(with, notifying(version))
	}
	t.Logf("without a receiver %s, with one that hangs %s", without, with)
	if with > 2*without+4*time.Second { // a delivery times out after 5 s
		t.Errorf("a deployment took %s with a receiver that hangs, %s without", with, without)
	}
}

// TestReceiversComeAndGo: a receiver with a new address, and a new receiver, get later
// events without a restart of the agent.
func TestReceiversComeAndGo(t *testing.T) {
	t.Parallel()
	first, second, repo := newHook(t), newHook(t), newRepo(t)
	notifying := func(hooks ...*hook) string {
		var routes, receivers []string
		for i, h := range hooks {
			routes = append(routes, fmt.Sprintf("{receiver: hook-%d, events: [DEPLOYMENT_TRIGGER_FAILED]}", i))
			receivers = append(receivers, fmt.Sprintf("{name: hook-%d, webhook: {url: %q}}", i, h.URL))
		}
		return fmt.Sprintf("  notifications:\n    routes: [%s]\n    receivers: [%s]\n", strings.Join(routes, ", "), strings.Join(receivers, ", "))
	}
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, more: notifying(first)}
	agent := runReloading(t, s, 10*time.Millisecond)
	breaks := func(text string) { // to cause one more notification
		repo.Push(t, text, map[string]string{"web/app.pipecd.yaml": "nonsense: " + text + "\n"})
	}
	breaks("one")
	<-first.arrived

	s.more = notifying(second)
	agent.write(s, inEffect, "changed=notifications")
	breaks("two")
	<-second.arrived

	s.more = notifying(second, first)
	agent.write(s, inEffect, "changed=notifications")
	breaks("three")
	<-second.arrived
	<-first.arrived
	for name, h := range map[string]*hook{"the first": first, "the second": second} {
		if got, again := h.received(); len(got) != 2 || again != 0 {
			t.Errorf("%s address got %v, and %d repeated events", name, got, again)
		}
	}
}
