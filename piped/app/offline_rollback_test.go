package app

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// offlineWeb returns a Deployment. With an image that never becomes ready its rollout lasts until the
// test shortens its deadline.
func offlineWeb(name, image string) string {
	return fmt.Sprintf(offlineManifest, name, image, int(patience.Seconds()))
}

const neverReady = "never-ready"

const offlineManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  progressDeadlineSeconds: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec: {containers: [{name: web, image: "registry.example/web:%[2]s"}]}
`

// chartRepository serves versions 1.0.0 and 2.0.0 of a chart named web. The rollout of
// 2.0.0 fails.
func chartRepository(t *testing.T) *httptest.Server {
	t.Helper()
	site := fstest.MapFS{}
	index := "apiVersion: v1\nentries:\n  web:\n"
	for version, image := range map[string]string{"1.0.0": "v1", "2.0.0": neverReady} {
		file := "web-" + version + ".tgz"
		site[file] = &fstest.MapFile{Data: archive(t, map[string]string{
			"web/Chart.yaml":         "apiVersion: v2\nname: web\nversion: " + version + "\n",
			"web/templates/web.yaml": offlineWeb("{{ .Values.name }}", image),
		})}
		index += fmt.Sprintf("  - {name: web, version: %s, urls: [%s]}\n", version, file)
	}
	site["index.yaml"] = &fstest.MapFile{Data: []byte(index)}
	server := httptest.NewServer(http.FileServerFS(site))
	t.Cleanup(server.Close)
	return server
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	tape := tar.NewWriter(zip)
	for name, text := range files {
		if err := tape.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := tape.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tape.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRollbackWithoutGitAndCharts: a chart and a kustomization with a remote base roll
// out and will fail. Meanwhile both remotes and the Git remote become unreachable, and
// everything fetched from them is deleted. The rollback must need none of it: it applies
// the stored objects of the last success.
func TestRollbackWithoutGitAndCharts(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, client := cluster.Namespace(t), cluster.Client(t)
	repo, bases := newRepo(t), gittest.New(t)
	remote, baseRemote, charts := repo.HTTP(t, gittest.HTTPOptions{}), bases.HTTP(t, gittest.HTTPOptions{}), chartRepository(t)
	base := func(image string) string {
		return bases.Push(t, image, map[string]string{
			"web/kustomization.yaml": "resources: [web.yaml]\n", "web/web.yaml": offlineWeb("base", image),
		})
	}
	files := func(chart, ref string) map[string]string {
		config := "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s%s}\n"
		return map[string]string{
			"chart/app.pipecd.yaml": fmt.Sprintf(config, "chart", ns, ", helmChart: {repository: "+charts.URL+", name: web, version: "+chart+"}, helmOptions: {setValues: {name: chart}}"),
			"base/app.pipecd.yaml":  fmt.Sprintf(config, "base", ns, ""),
			"base/kustomization.yaml": fmt.Sprintf("resources: [%q]\nnamePrefix: my-\nlabels: [{pairs: {team: web}}]\n",
				baseRemote.URL+"//web?ref="+ref),
		}
	}
	host, err := url.Parse(baseRemote.URL)
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	agent := runAgent(t, settings{
		dataDir: data, remote: remote.URL, kubeconfig: cluster.Kubeconfig(), more: fmt.Sprintf("  git: {remoteHosts: [%q]}\n  charts: {allowedHosts: [127.0.0.1]}\n", "http://"+host.Host),
	})
	first := repo.Push(t, "first", files("1.0.0", base("v1")))
	names := map[string]string{"chart": "chart", "base": "my-base"} // of the Deployment, by application
	for app := range names {
		agent.mustEnd(appID(app), first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	image := func(app string) string {
		t.Helper()
		d, err := client.AppsV1().Deployments(ns).Get(t.Context(), names[app], metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.Spec.Template.Spec.Containers[0].Image
	}

	second := repo.Push(t, "second", files("2.0.0", base(neverReady)))
	for end := time.Now().Add(patience); image("chart") == "registry.example/web:v1" || image("base") == "registry.example/web:v1"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the second commit is not applied: %s, %s", image("chart"), image("base"))
		}
	}
	charts.Close()
	remote.SetFault(gittest.Fail(http.StatusServiceUnavailable))
	baseRemote.SetFault(gittest.Fail(http.StatusServiceUnavailable))
	for _, dir := range []string{"git", "remotes", "charts"} {
		if err := os.RemoveAll(filepath.Join(data, dir)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		patch := []byte(`{"spec":{"progressDeadlineSeconds":1}}`)
		if _, err := client.AppsV1().Deployments(ns).Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
			t.Fatal(err)
		}
	}
	for app := range names {
		d := agent.mustEnd(appID(app), second, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
		mustContain(t, d.GetStatusReason(), "rolled back to commit "+first[:7])
		mustContain(t, agent.logs(d.GetId()), "Deployment "+ns+"/"+names[app]+": rollout complete")
		if got := image(app); got != "registry.example/web:v1" {
			t.Errorf("after the rollback of %s its image is %s", app, got)
		}
	}

	// A rollback by a user is a new deployment of a commit, which needs Git.
	resp, err := agent.control.RollbackApplication(agent.ctx, &controlv1.RollbackApplicationRequest{ApplicationId: appID("chart"), Commit: first})
	if err != nil {
		t.Fatal(err)
	}
	c := agent.answer(resp.GetCommandId())
	if c.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED {
		t.Errorf("a rollback by hand without the remote: %v", c)
	}
	mustContain(t, c.GetMetadata()["Reason"], "the repository cannot be read", "503")
}
