package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/kubernetes/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestOneObjectOfTwoApplications: of two new applications of one commit that declare
// one object, one has it, and the other is refused with both names.
func TestOneObjectOfTwoApplications(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	files := map[string]string{}
	for _, name := range []string{"left", "right"} {
		files[name+"/app.pipecd.yaml"] = fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s}\n", name, ns)
		files[name+"/cm.yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {of: %s}\n", name)
	}
	commit := repo.Push(t, "two applications", files)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig()})
	var won, lost []string
	for _, name := range []string{"left", "right"} {
		d := agent.awaitEnd(appID(name), commit)
		if d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
			won = append(won, name)
			continue
		}
		lost = append(lost, name)
		said := d.GetStatusReason() + agent.logs(d.GetId())
		mustContain(t, said, "ConfigMap "+ns+"/shared belongs to application", "left (apps:left/app.pipecd.yaml", "right (apps:right/app.pipecd.yaml", "takeOver: true")
	}
	if len(won) != 1 || len(lost) != 1 {
		t.Errorf("succeeded: %s; refused: %s; want one of each", strings.Join(won, ", "), strings.Join(lost, ", "))
	}
}
