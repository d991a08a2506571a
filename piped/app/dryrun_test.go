package app

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestDryRun says what the first deployments of an agent would do, before and after another one
// has made them, and sends the cluster no request that changes anything.
func TestDryRun(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo := newRepo(t)
	files := webApp(ns, "v1", "")
	maps.Copy(files, map[string]string{
		"broken/app.pipecd.yaml":  "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: broken, pipelin: {}}\n",
		"another/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: ECSApp\nspec: {name: another}\n",
	})
	commit := repo.Push(t, "add applications", files)
	var writes writeRequests
	var slow atomic.Bool // the next discovery takes longer than a plan waits for it
	_, kubeconfig := proxied(t, cluster.Kubeconfig(), func(r *http.Request) {
		writes.note(r)
		if r.URL.Path == "/apis" && slow.CompareAndSwap(true, false) {
			time.Sleep(placeTimeout + time.Second)
		}
	}, nil)
	refused := []string{
		"broken: Quick sync false, an error true",
		"not another",
	}
	propose := func(name string, slowly bool, objects ...string) {
		t.Helper()
		var got []string
		err := whenNotBusy(func() (err error) {
			slow.Store(slowly)
			got, err = dryRunOf(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: kubeconfig})
			return err
		})
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := slices.Concat(refused[:1], []string{"web: Quick sync true, an error false"}, objects, refused[1:])
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if all := writes.take(); len(all) > 0 {
			t.Errorf("%s: requests that write: %q", name, all)
		}
	}

	propose("nothing is live", false, "  CREATE ConfigMap "+ns+"/web", "  CREATE Deployment "+ns+"/web")
	if list, err := client.AppsV1().Deployments(ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Fatalf("%d Deployments after a dry run, %v", len(list.Items), err)
	}
	agent, stop := runAgentUntil(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	stop()
	propose("everything is live", true, "  live ConfigMap "+ns+"/web own true changes false", "  live Deployment "+ns+"/web own true changes false")
	if slow.Load() {
		t.Error("discovery was not slow")
	}
	repo.Push(t, "web v2", webApp(ns, "v2", ""))
	propose("an image has changed", false, "  live ConfigMap "+ns+"/web own true changes false", "  live Deployment "+ns+"/web own true changes true")
}

// dryRunOf returns a dry run in words. The error is that of an application whose cluster did not
// answer within the agent's time limit.
func dryRunOf(t *testing.T, s settings) (said []string, err error) {
	t.Helper()
	cfg, _, err := Kinds().LoadPiped(s.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	proposals, rest, err := DryRun(t.Context(), cfg, Options{Version: "test", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range proposals {
		if deploy.IsKind(p.Err, deploy.Unavailable) {
			err = status.Error(codes.Unavailable, p.Err.Error())
		}
		said = append(said, fmt.Sprintf("%s: Quick sync %v, an error %v", p.Application.Name, strings.HasPrefix(p.Plan.Summary, "Quick sync"), p.Err != nil))
		for _, c := range p.Changes {
			at := slices.IndexFunc(p.Live, func(o deploy.AdoptedObject) bool { return o.Object == c.Object })
			if at < 0 {
				said = append(said, fmt.Sprintf("  %s %s", c.Action, c.Object))
				continue
			}
			o := p.Live[at]
			said = append(said, fmt.Sprintf("  live %s own %v changes %v", o.Object, o.OwnerApplicationID == p.Application.ID, o.Changes))
		}
	}
	for _, c := range rest {
		said = append(said, "not "+c.Git.Dir)
	}
	return said, err
}

// TestDryRunFails: what keeps an agent from reading anything is the error.
func TestDryRunFails(t *testing.T) {
	t.Parallel()
	cfg, _, err := Kinds().LoadPiped(settings{dataDir: t.TempDir(), remote: filepath.Join(t.TempDir(), "none"), kubeconfig: writeUnreached(t)}.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := DryRun(t.Context(), cfg, Options{Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no repository: %v", err)
	}
}

func writeUnreached(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, path, unreached)
	return path
}

// writeRequests are requests to an API server that may change something.
type writeRequests struct {
	mu  sync.Mutex
	all []string
}

// note records a request that neither reads, nor asks for rights, nor is a dry run.
func (w *writeRequests) note(r *http.Request) {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if reads || strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/") || r.URL.Query().Get("dryRun") == "All" {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, r.Method+" "+r.URL.RequestURI())
}

func (w *writeRequests) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.all = nil }()
	return w.all
}
