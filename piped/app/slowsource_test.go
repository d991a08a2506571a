package app

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// gate keeps requests waiting while it is shut.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

// shut makes requests wait until the returned function is called.
func (g *gate) shut() (open func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	shut := make(chan struct{})
	g.open = shut
	return sync.OnceFunc(func() { close(shut) })
}

// pass is a gittest.Fault.
func (g *gate) pass(w http.ResponseWriter, r *http.Request, next http.Handler) {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		next.ServeHTTP(w, r)
	case <-r.Context().Done():
	}
}

// TestSlowSourcesHoldTheirApplicationsAlone: a chart and a remote base cannot be fetched
// yet. Their applications report what they wait for. The other application of the
// repository is deployed, for the first time and with its next commit. The waiting ones
// are deployed when the servers answer.
func TestSlowSourcesHoldTheirApplicationsAlone(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo, bases := newRepo(t), gittest.New(t)
	g := &gate{}
	open := g.shut()
	defer func() { open() }() // before the servers are closed
	files, err := url.Parse(chartRepository(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(files)
	charts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.pass(w, r, proxy) }))
	t.Cleanup(charts.Close)
	base := bases.HTTP(t, gittest.HTTPOptions{})
	base.SetFault(g.pass)
	host, err := url.Parse(base.URL)
	if err != nil {
		t.Fatal(err)
	}
	agent := runAgent(t, settings{
		dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(),
		more: fmt.Sprintf("  git: {remoteHosts: [%q]}\n  charts: {allowedHosts: [127.0.0.1]}\n", "http://"+host.Host),
	})
	at := func(greeting string) map[string]string {
		ref := bases.Push(t, greeting, map[string]string{"web/kustomization.yaml": "configMapGenerator: [{name: base, literals: [greeting=" + greeting + "]}]\n"})
		config := "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s%s}\n"
		return merged(simple("plain", ns, greeting), map[string]string{
			"chart/app.pipecd.yaml": fmt.Sprintf(config, "chart", ns, ", helmChart: {repository: "+charts.URL+", name: web, version: ^1}, helmOptions: {setValues: {name: chart, greeting: "+greeting+"}}"),
			"base/app.pipecd.yaml":  fmt.Sprintf(config, "base", ns, ""), "base/kustomization.yaml": fmt.Sprintf("resources: [%q]\n", base.URL+"//web?ref="+ref),
		})
	}
	waits := map[string]string{"chart": "it waits for chart repository " + charts.URL, "base": "it waits for Git repository " + base.URL}
	const success = modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS

	first := repo.Push(t, "first", at("hello"))
	agent.mustEnd(appID("plain"), first, success)
	for app, why := range waits {
		notice := agent.application(appID(app)).GetNotice()
		for end := time.Now().Add(patience); !strings.Contains(notice, why) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			notice = agent.application(appID(app)).GetNotice()
		}
		mustContain(t, notice, "Not deployed yet: its rendering takes long: "+why)
	}
	open()
	for app := range waits {
		agent.mustEnd(appID(app), first, success)
	}

	open = g.shut()
	second := repo.Push(t, "second", at("bye"))
	agent.mustEnd(appID("plain"), second, success)
	for app, why := range waits {
		agent.await(appID(app), "says that "+why, func(d *modelv1.Deployment) bool {
			return d.GetTrigger().GetCommit().GetHash() == second && strings.Contains(d.GetStatusReason(), "Rendering the application takes long: "+why)
		})
	}
	open()
	for app := range waits {
		agent.mustEnd(appID(app), second, success)
	}
}
