package app

import (
	"fmt"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestOneObjectOfTwoApplications: of two new applications of one commit that declare
// one object, one has it, and the other is refused with both names. So it is where the
// applications name the cluster by different platform providers.
func TestOneObjectOfTwoApplications(t *testing.T) {
	t.Parallel()
	t.Run("one provider", func(t *testing.T) { testOneObject(t, "local", "local") })
	t.Run("two providers of one cluster", func(t *testing.T) { testOneObject(t, "local", "again") })
}

func testOneObject(t *testing.T, left, right string) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	files := map[string]string{}
	for name, provider := range map[string]string{"left": left, "right": right} {
		files[name+"/app.pipecd.yaml"] = fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  platformProvider: %s\n  input: {namespace: %s}\n", name, provider, ns)
		files[name+"/cm.yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shared}\ndata: {of: %s}\n", name)
	}
	commit := repo.Push(t, "two applications", files)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, providers: fmt.Sprintf(
		"[{name: local, type: KUBERNETES, config: {kubeConfigPath: %[1]s}}, {name: again, type: KUBERNETES, config: {kubeConfigPath: %[1]s}}]", cluster.Kubeconfig())})
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
