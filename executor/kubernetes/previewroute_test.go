package kubernetes

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/deploy"
)

// TestPreviewWaitsForItsRoutes: the deployment of a preview ends when a gateway has accepted its route, and
// fails when it refuses it. One of the branch does not wait.
func TestPreviewWaitsForItsRoutes(t *testing.T) {
	t.Parallel()
	const route = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: web}\nspec: {parentRefs: [{name: gateway}], rules: [{backendRefs: [{name: web, port: 80}]}]}\n"
	l := newStageEnv(t)
	l.shared.InstallGatewayAPI(t)
	l.manifests = keptManifest + route
	if result, _ := l.syncAs(t, l.manifests); result.Status != deploy.StageSuccess {
		t.Fatalf("the branch: %s: %s", result.Status, result.Reason)
	}
	routes := l.Clusters.(fixed)["one"].Dynamic().Resource(httpRoutes).Namespace(l.ns)
	answer := func(mode string) {
		patch := `{"metadata":{"annotations":{"devcluster.piped.dev/route-status":"` + mode + `"}}}`
		if _, err := routes.Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "gateway"}); err != nil {
			t.Error(err)
		}
	}
	waited := false
	preview := func(run *deploy.StageRun) {
		run.Deployment.Git.PullRequest = 7
		run.Log = &everyLine{run.Log, func(line string) {
			if strings.Contains(line, "has not reported a status yet") && !waited {
				waited = true
				answer("accept")
			}
		}}
	}
	if result, _ := l.syncAs(t, l.manifests, preview); result.Status != deploy.StageSuccess || !waited {
		t.Errorf("the preview: %s: %s (waited: %t)", result.Status, result.Reason, waited)
	}
	answer("reject")
	eventually(t, func() string { // until then the route is accepted, and the stage does not wait
		live, err := routes.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || !traffic.Evaluate(live).Refused {
			return fmt.Sprintf("the gateway has not refused the route (%v)", err)
		}
		return ""
	})
	if result, _ := l.syncAs(t, l.manifests, preview); result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "/web is refused: Gateway") {
		t.Errorf("the refused preview: %s: %s", result.Status, result.Reason)
	}
}

// TestPreviewPrunesWithoutALimit: a commit of a pull request may remove most of the objects of its preview,
// which one of the branch may not.
func TestPreviewPrunesWithoutALimit(t *testing.T) {
	t.Parallel()
	many := keptManifest
	for i := range 30 {
		many += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: more-%d}\n", i)
	}
	l := newStageEnv(t)
	l.spec += "  quickSync: {prune: true}\n"
	if result, _ := l.syncAs(t, many); result.Status != deploy.StageSuccess {
		t.Fatalf("%s: %s", result.Status, result.Reason)
	}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageFailure {
		t.Errorf("the branch: %s: %s", result.Status, result.Reason)
	}
	result, _ := l.syncAs(t, keptManifest, func(run *deploy.StageRun) { run.Deployment.Git.PullRequest = 7 })
	if left := l.inventoried(t); result.Status != deploy.StageSuccess || len(left) != 1 {
		t.Errorf("the preview: %s: %s; left: %v", result.Status, result.Reason, left)
	}
}
