package app

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// driftEnv is an agent whose requests are counted, its repository, and a client of the
// cluster that acts as other users.
type driftEnv struct {
	*client
	repo    *gittest.Repo
	ns      string
	cluster dynamic.Interface
	calls   *apiCalls

	groups discovery.DiscoveryInterface
	mapper meta.RESTMapper
}

func newDriftEnv(t *testing.T) *driftEnv {
	t.Helper()
	cluster := clustertest.Shared(t)
	cfg := cluster.RESTConfig(t)
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(httpClient.Transport) })
	w := &driftEnv{repo: newRepo(t), ns: cluster.Namespace(t), calls: &apiCalls{}}
	if w.cluster, err = dynamic.NewForConfigAndClient(cfg, httpClient); err != nil {
		t.Fatal(err)
	}
	if w.groups, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, httpClient); err != nil {
		t.Fatal(err)
	}
	w.client = runAgent(t, settings{
		dataDir: t.TempDir(), pipedID: w.ns, remote: w.repo.Dir, kubeconfig: w.calls.kubeconfig(t, cluster.Kubeconfig()),
		sweepEvery: 10 * 365 * 24 * time.Hour, // exclude requests of the sweep from the count
	})
	return w
}

// learnKinds reads which kinds the cluster serves.
func (w *driftEnv) learnKinds() {
	w.t.Helper()
	groups, err := restmapper.GetAPIGroupResources(w.groups)
	if err != nil {
		w.t.Fatal(err)
	}
	w.mapper = restmapper.NewDiscoveryRESTMapper(groups)
}

// resource returns the client for an object's kind and namespace.
func (w *driftEnv) resource(o *modelv1.ObjectRef) dynamic.ResourceInterface {
	w.t.Helper()
	m, err := w.mapper.RESTMapping(schema.GroupKind{Group: o.GetGroup(), Kind: o.GetKind()}, o.GetVersion())
	if err != nil {
		w.t.Fatal(err)
	}
	if o.GetNamespace() == "" {
		return w.cluster.Resource(m.Resource)
	}
	return w.cluster.Resource(m.Resource).Namespace(o.GetNamespace())
}

// patch changes an object as another user does.
func (w *driftEnv) patch(manager string, o *modelv1.ObjectRef, kind types.PatchType, patch string, subresources ...string) {
	w.t.Helper()
	if _, err := w.resource(o).Patch(w.ctx, o.GetName(), kind, []byte(patch), metav1.PatchOptions{FieldManager: manager}, subresources...); err != nil {
		w.t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
}

// objects returns the live objects of an application.
func (w *driftEnv) objects(app string) (out []*modelv1.ObjectRef) {
	w.t.Helper()
	var resp *controlv1.GetLiveStateResponse
	err := whenNotBusy(func() (err error) {
		resp, err = w.control.GetLiveState(w.ctx, &controlv1.GetLiveStateRequest{ApplicationId: app})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range resp.GetLiveState().GetObjects() {
		if o.GetHealth() != modelv1.Health_HEALTH_MISSING {
			out = append(out, o.GetObject())
		}
	}
	return out
}

// compare makes the agent compare an application with its cluster now.
func (w *driftEnv) compare(app string) *modelv1.DriftReport {
	w.t.Helper()
	var resp *controlv1.GetDriftReportResponse
	err := whenNotBusy(func() (err error) {
		resp, err = w.control.GetDriftReport(w.ctx, &controlv1.GetDriftReportRequest{ApplicationId: app, Refresh: true})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetReport()
}

// reports returns all periods of drift.
func (w *driftEnv) reports() (out []*modelv1.DriftReport) {
	w.t.Helper()
	for cursor := ""; ; {
		resp, err := w.control.ListDriftReports(w.ctx, &controlv1.ListDriftReportsRequest{Limit: 500, Cursor: cursor})
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, resp.GetReports()...)
		if cursor = resp.GetCursor(); cursor == "" {
			return out
		}
	}
}

// wantNoReports fails if there was a period of drift.
func (w *driftEnv) wantNoReports(what string) {
	w.t.Helper()
	for _, r := range w.reports() {
		w.t.Errorf("%s: reported as drift: %s", what, describeReport(r))
	}
}

// wantSynced waits until the applications in these directories are reported as in
// sync.
func (w *driftEnv) wantSynced(dirs ...string) {
	w.t.Helper()
	for _, dir := range dirs {
		w.awaitSyncState(appID(dir), modelv1.ApplicationSyncStatus_SYNCED)
	}
}

// describeReport formats a report in one line.
func describeReport(r *modelv1.DriftReport) string {
	text := fmt.Sprintf("%s %s", r.GetApplicationName(), r.GetStatus())
	for _, o := range r.GetObjects() {
		text += fmt.Sprintf("\n  %s %s %s %s", strings.TrimPrefix(o.GetKind().String(), "DRIFT_KIND_"), o.GetObject().GetKind(), o.GetObject().GetName(), o.GetNote())
		for _, f := range o.GetFields() {
			text += fmt.Sprintf("\n    %s: Git %s, live %s (%s)", f.GetPath(), f.GetGitValue(), f.GetLiveValue(), f.GetManager())
		}
	}
	if len(r.GetUndeployedCommits()) > 0 {
		text += fmt.Sprintf("\n  not deployed: %v", r.GetUndeployedCommits())
	}
	return text + r.GetIncompleteReason()
}

// apiCalls records the requests of an agent to its API server, except for watches.
type apiCalls struct {
	mu   sync.Mutex
	made []string
}

// kubeconfig returns a kubeconfig for the same cluster whose requests are recorded.
func (c *apiCalls) kubeconfig(t *testing.T, kubeconfig string) string {
	t.Helper()
	_, path := proxied(t, kubeconfig, func(r *http.Request) {
		if query := r.URL.Query(); query.Get("watch") == "true" || query.Get("watch") == "1" {
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.made = append(c.made, r.Method+" "+r.URL.RequestURI())
	}, nil)
	return path
}

// take returns the requests since the last call.
func (c *apiCalls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// within returns the requests since the last call, after waiting for d.
func (c *apiCalls) within(ctx context.Context, d time.Duration) []string {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return c.take()
}

// summary counts requests by method and path.
func summary(calls []string) string {
	counts := map[string]int{}
	for _, c := range calls {
		counts[c]++
	}
	var lines []string
	for c, n := range counts {
		lines = append(lines, fmt.Sprintf("%4d %s", n, c))
	}
	slices.Sort(lines)
	slices.Reverse(lines)
	return strings.Join(lines[:min(len(lines), 40)], "\n")
}
