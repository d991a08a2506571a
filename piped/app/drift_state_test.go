package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// periodEnv is an agent that can be stopped and restarted, with one application, in a
// cluster that can be made unreachable.
type periodEnv struct {
	*client
	t     *testing.T
	stop  func()
	s     settings
	repo  *gittest.Repo
	proxy *agenttest.APIProxy
	ns    string
	kube  kubernetes.Interface
	web   string
}

func newPeriodEnv(t *testing.T) *periodEnv {
	t.Helper()
	return newPeriodEnvIn(t, clustertest.Shared(t))
}

func newPeriodEnvIn(t *testing.T, cluster *clustertest.Cluster) *periodEnv {
	t.Helper()
	w := &periodEnv{t: t, repo: newRepo(t), ns: cluster.Namespace(t), kube: cluster.Client(t), web: appID("web")}
	proxy, kubeconfig := proxied(t, cluster.Kubeconfig(), nil, nil)
	w.proxy = proxy
	w.s = settings{dataDir: t.TempDir(), pipedID: w.ns, remote: w.repo.Dir, kubeconfig: kubeconfig}
	w.start()
	return w
}

func (w *periodEnv) start() {
	w.t.Helper()
	w.client, w.stop = runAgentUntil(w.t, w.s)
	w.t.Cleanup(w.proxy.Speak) // before the agent stops
}

// deploy deploys the application, with additional lines in its configuration.
func (w *periodEnv) deploy(image, more string, want modelv1.DeploymentStatus) (commit string) {
	w.t.Helper()
	files := webApp(w.ns, image, "")
	files["web/app.pipecd.yaml"] += more
	commit = w.repo.Push(w.t, "web "+image, files)
	w.mustEnd(w.web, commit, want)
	return commit
}

// greet changes the application's ConfigMap by hand.
func (w *periodEnv) greet(text string) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"data":{"greeting":%q}}`, text)
	if _, err := w.kube.CoreV1().ConfigMaps(w.ns).Patch(w.t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		w.t.Fatal(err)
	}
}

// want waits until the application has a state, and returns the state with its reason.
func (w *periodEnv) want(want modelv1.ApplicationSyncStatus) *modelv1.ApplicationSyncState {
	w.t.Helper()
	return w.awaitSyncState(w.web, want)
}

// periods returns all periods of drift, newest first.
func (w *periodEnv) periods() []*modelv1.DriftReport {
	w.t.Helper()
	resp, err := w.control.ListDriftReports(w.ctx, &controlv1.ListDriftReportsRequest{})
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.GetReports()
}

// wantPeriods fails the test unless there were n periods and the last one ended as given.
func (w *periodEnv) wantPeriods(n int, end modelv1.DriftEnd) *modelv1.DriftReport {
	w.t.Helper()
	all := w.periods()
	if len(all) != n || all[0].GetEnd() != end {
		w.t.Fatalf("want %d periods, the last one's end %s; there were %v", n, end, all)
	}
	return all[0]
}

const (
	synced    = modelv1.ApplicationSyncStatus_SYNCED
	outOfSync = modelv1.ApplicationSyncStatus_OUT_OF_SYNC
	lasts     = modelv1.DriftEnd_DRIFT_END_UNSPECIFIED
)

// TestDriftIsReported changes an object by hand and changes it back.
func TestDriftIsReported(t *testing.T) {
	t.Parallel()
	w := newPeriodEnv(t)
	commit := w.deploy("v1", "", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.want(synced)
	w.greet("good evening")
	state := w.want(outOfSync)
	if want := "1 difference: 1 changed"; state.GetShortReason() != want {
		t.Errorf("short reason %q, want %q", state.GetShortReason(), want)
	}
	for _, want := range []string{commit[:7], "ConfigMap " + w.ns + "/web", "data.greeting", `"hello" in Git`, `"good evening" live`, "by somebody"} {
		if !strings.Contains(state.GetReason(), want) {
			t.Errorf("the reason does not say %q: %s", want, state.GetReason())
		}
	}
	asked, err := w.control.GetDriftReport(w.ctx, &controlv1.GetDriftReportRequest{ApplicationId: w.web, Refresh: true, Diff: true})
	if err != nil {
		t.Fatal(err)
	}
	r := asked.GetReport()
	if len(r.GetObjects()) != 1 || !strings.Contains(r.GetObjects()[0].GetDiff(), "good evening") || r.GetId() != w.periods()[0].GetId() {
		t.Errorf("asked with diffs: %v", r)
	}
	w.greet("hello")
	w.want(synced)
	w.wantPeriods(1, modelv1.DriftEnd_DRIFT_END_REVERTED)

	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if state := w.want(outOfSync); state.GetShortReason() != "1 difference: 1 missing" {
		t.Errorf("after a delete: %v", state)
	}
	w.mustEndAsked()
	w.want(synced)
	w.wantPeriods(2, modelv1.DriftEnd_DRIFT_END_DEPLOYED)
	_, err = w.control.GetDriftReport(w.ctx, &controlv1.GetDriftReportRequest{ApplicationId: "nobody", Refresh: true})
	if status.Code(err) != codes.NotFound {
		t.Errorf("for an unknown application: %v", err)
	}
}

// mustEndAsked syncs the application by hand.
func (w *periodEnv) mustEndAsked() {
	w.t.Helper()
	id := w.sync(w.web).GetMetadata()["TriggeredDeploymentID"]
	w.await(w.web, "was asked for and succeeds", func(d *modelv1.Deployment) bool {
		return d.GetId() == id && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
}

// TestDriftOverRestarts: drift appears and disappears while the agent is stopped, and
// while the cluster is unreachable.
func TestDriftOverRestarts(t *testing.T) {
	t.Parallel()
	w := newPeriodEnv(t)
	w.deploy("v1", "", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.want(synced)
	w.greet("drifted")
	w.want(outOfSync)
	first := w.wantPeriods(1, lasts)

	w.stop() // with drift present
	w.start()
	w.want(outOfSync)
	asked, err := w.control.GetDriftReport(w.ctx, &controlv1.GetDriftReportRequest{ApplicationId: w.web, Refresh: true})
	if err != nil || asked.GetReport().GetId() != first.GetId() || asked.GetReport().GetBeganAtMs() != first.GetBeganAtMs() {
		t.Errorf("after a restart the period is %v, %v; want %s", asked, err, first.GetId())
	}

	w.stop() // drift disappears meanwhile
	w.greet("hello")
	w.start()
	w.want(synced)
	w.wantPeriods(1, modelv1.DriftEnd_DRIFT_END_REVERTED)

	w.stop() // drift appears meanwhile
	w.greet("drifted again")
	w.start()
	w.want(outOfSync)
	second := w.wantPeriods(2, lasts)

	w.stop() // the cluster is unreachable at the start
	w.proxy.Silence()
	w.start()
	state := w.want(modelv1.ApplicationSyncStatus_UNKNOWN)
	if !strings.Contains(state.GetShortReason(), `cluster "local"`) || !strings.Contains(state.GetReason(), " since 20") {
		t.Errorf("for an unreachable cluster: %v", state)
	}
	w.proxy.Speak()
	w.want(outOfSync)
	if r := w.wantPeriods(2, lasts); r.GetId() != second.GetId() {
		t.Errorf("the period is %s after the outage, was %s", r.GetId(), second.GetId())
	}

	w.proxy.CutWatches()
	w.greet("hello")
	w.want(synced)
	w.proxy.ExpireWatches()
	w.greet("drifted for the third time")
	w.want(outOfSync)
	w.wantPeriods(3, lasts)
}

// TestDriftOverAnAPIServersRestart: during an outage of the API server the state is
// unknown. Afterwards the open period continues, and the next change is reported. The
// test uses its own cluster, because controllers do not survive so long an outage.
func TestDriftOverAnAPIServersRestart(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Own(t)
	w := newPeriodEnvIn(t, cluster)
	w.deploy("v1", "", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.want(synced)
	w.greet("drifted")
	w.want(outOfSync)
	first := w.wantPeriods(1, lasts)

	if err := cluster.StopComponent(t.Context(), "apiserver"); err != nil {
		t.Fatal(err)
	}
	w.want(modelv1.ApplicationSyncStatus_UNKNOWN)
	w.wantPeriods(1, lasts)
	if err := cluster.StartComponent(t.Context(), "apiserver"); err != nil {
		t.Fatal(err)
	}
	w.want(outOfSync)
	if r := w.wantPeriods(1, lasts); r.GetId() != first.GetId() {
		t.Errorf("the period is %s after the restart, was %s", r.GetId(), first.GetId())
	}
	w.greet("hello")
	w.want(synced)
	w.wantPeriods(1, modelv1.DriftEnd_DRIFT_END_REVERTED)
	w.greet("drifted again")
	w.want(outOfSync)
	w.wantPeriods(2, lasts)
}

// TestDriftOfAnApplicationThatChanges: checks how changes of the application itself
// affect its periods of drift.
func TestDriftOfAnApplicationThatChanges(t *testing.T) {
	t.Parallel()
	w := newPeriodEnv(t)
	good := w.deploy("v1", "", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.want(synced)
	w.greet("drifted")
	w.want(outOfSync)
	call(t, w.api.DisableApplication, w.ctx, &apiservice.DisableApplicationRequest{ApplicationId: w.web})
	if state := w.want(modelv1.ApplicationSyncStatus_UNKNOWN); state.GetShortReason() != "The application is disabled" {
		t.Errorf("disabled: %v", state)
	}
	w.wantPeriods(1, modelv1.DriftEnd_DRIFT_END_ABANDONED)
	call(t, w.api.EnableApplication, w.ctx, &apiservice.EnableApplicationRequest{ApplicationId: w.web})
	w.want(outOfSync)
	w.wantPeriods(2, lasts)

	// A broken configuration is the state, whatever is live.
	files := webApp(w.ns, "v1", "")
	w.repo.Push(t, "break", map[string]string{"web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {timeout: nonsense}\n"})
	w.want(modelv1.ApplicationSyncStatus_INVALID_CONFIG)
	w.greet("hello")
	w.awaitPeriods(2, modelv1.DriftEnd_DRIFT_END_REVERTED)
	w.want(modelv1.ApplicationSyncStatus_INVALID_CONFIG)
	w.repo.Push(t, "fix", files)
	w.want(synced)

	// A commit whose deployment fails is not deployed. Neither are the two commits before
	// it, which together needed no deployment.
	files = webApp(w.ns, "v2", "")
	files["web/app.yaml"] += "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: Not_A_Name}}\n"
	bad := w.repo.Push(t, "fail", files)
	w.mustEnd(w.web, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	state := w.want(outOfSync)
	if !strings.Contains(state.GetShortReason(), "3 commits not deployed") || !strings.Contains(state.GetReason(), bad[:7]) {
		t.Errorf("after a failure of %s, while %s is deployed: %v", bad, good, state)
	}
	w.deploy("v3", "", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.want(synced)
	w.awaitPeriods(3, modelv1.DriftEnd_DRIFT_END_DEPLOYED)

	w.greet("drifted")
	w.want(outOfSync)
	w.deleteApplication(&controlv1.DeleteApplicationRequest{ApplicationId: w.web})
	w.awaitPeriods(4, modelv1.DriftEnd_DRIFT_END_ABANDONED)
}

func (w *periodEnv) awaitPeriods(n int, end modelv1.DriftEnd) {
	w.t.Helper()
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if all := w.periods(); len(all) == n && all[0].GetEnd() == end {
			return
		}
		if time.Now().After(limit) {
			w.wantPeriods(n, end)
		}
	}
}

// TestSelfHealEndsAPeriod: drift is healed at once, and the period ends as healed.
// Objects that are no longer in Git are reported but not deleted.
func TestSelfHealEndsAPeriod(t *testing.T) {
	t.Parallel()
	w := newPeriodEnv(t)
	const heal = "  trigger: {onOutOfSync: {disabled: false, minWindow: 1s}}\n"
	files := webApp(w.ns, "v1", "")
	files["web/app.pipecd.yaml"] += heal
	files["web/more.yaml"] = "{apiVersion: v1, kind: ConfigMap, metadata: {name: left}}\n"
	w.mustEnd(w.web, w.repo.Push(t, "web", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	w.want(synced)
	w.greet("drifted")
	w.await(w.web, "heals", func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetSyncStrategy() >= 0 && strings.Contains(d.GetTrigger().GetStrategySummary(), "1 difference: 1 changed") && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	w.awaitPeriods(1, modelv1.DriftEnd_DRIFT_END_DEPLOYED)
	w.want(synced)

	if err := w.repo.Remove("web/more.yaml"); err != nil {
		t.Fatal(err)
	}
	// The detector has this time to see that a deployment has healed it, until it is healed again.
	later := strings.Replace(files["web/app.pipecd.yaml"], "minWindow: 1s", "minWindow: 20s", 1)
	w.mustEnd(w.web, w.repo.Push(t, "remove one", map[string]string{"web/app.pipecd.yaml": later}), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	// Before, a deployment that is pending for long is reported.
	eventually(t, "the remaining object alone is reported", func() bool {
		state := w.application(w.web).GetSyncState()
		return state.GetStatus() == outOfSync && state.GetShortReason() == "1 difference: 1 extra"
	})
	before := len(w.deployments(w.web))
	w.greet("drifted") // this is healed, and the rest is unchanged
	w.await(w.web, "heals again", func(d *modelv1.Deployment) bool {
		return strings.Contains(d.GetTrigger().GetStrategySummary(), "2 differences: 1 changed, 1 extra") && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.ctx, "left", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.want(synced)
	if now := len(w.deployments(w.web)); now != before+1 {
		t.Errorf("there were %d deployments while objects remained, want 1", now-before)
	}
}
