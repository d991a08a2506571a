package app

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// progressive is an agent, a cluster with the CRDs of the Gateway API and Istio, and a
// repository with one application, "web", in its own namespace.
type progressive struct {
	*client
	cluster   *clustertest.Cluster
	repo      *gittest.Repo
	namespace string
	store     *store.Store // the agent's
	web       progressiveApp
}

// newProgressive starts an agent and deploys version v1 of an application. spec ends the
// application's configuration, for example with its pipeline; objects are manifests in
// addition to those of progressiveApp; more are lines of the agent's configuration.
func newProgressive(t *testing.T, spec, objects, more string) *progressive {
	t.Helper()
	p := &progressive{cluster: progressiveCluster(t), repo: newRepo(t)}
	p.namespace = p.cluster.Namespace(t)
	dataDir := t.TempDir()
	p.client = runAgent(t, settings{dataDir: dataDir, remote: p.repo.Dir, kubeconfig: p.cluster.Kubeconfig(), more: more})
	p.store = openStore(t, dataDir)
	p.web = progressiveApp{dir: "web", namespace: p.namespace, spec: spec, objects: objects}
	p.end("v1", modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	return p
}

// push commits a version of the application and returns the commit.
func (p *progressive) push(version string) string {
	p.t.Helper()
	return p.repo.Push(p.t, "web "+version, p.web.files(version))
}

// end commits a version, waits until its deployment has ended with the wanted status, and
// returns the deployment.
func (p *progressive) end(version string, want modelv1.DeploymentStatus) *modelv1.Deployment {
	p.t.Helper()
	return p.mustEnd(appID("web"), p.push(version), want)
}

// lastGood records the state of the application after its last success.
func (p *progressive) lastGood() *lastGood {
	p.t.Helper()
	return takeLastGood(p.t, p.cluster, p.store, p.web)
}

// acceptRoute makes the gateway accept the application's HTTPRoute from now on.
func (p *progressive) acceptRoute() {
	p.t.Helper()
	answerRoute(p.t, dynamicClient(p.t, p.cluster), p.namespace, "accept")
}

// answerRoute makes the gateway respond to HTTPRoute web in one of devcluster's modes.
func answerRoute(t *testing.T, client dynamic.Interface, namespace, mode string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"devcluster.piped.dev/route-status":%q}}}`, mode)
	_, err := client.Resource(httpRouteResource).Namespace(namespace).Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "gateway"})
	if err != nil {
		t.Errorf("namespace %s: %v", namespace, err)
	}
}

// progressiveCluster returns the shared cluster with the CRDs of the Gateway API and
// Istio.
func progressiveCluster(t *testing.T) *clustertest.Cluster {
	t.Helper()
	cluster := clustertest.Shared(t)
	cluster.InstallGatewayAPI(t)
	cluster.InstallIstio(t)
	return cluster
}

// openStore opens the store of an agent, which may be running.
func openStore(t *testing.T, dataDir string) *store.Store {
	t.Helper()
	key, _, err := storeKey(&config.Piped{DataDir: dataDir})
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), "sqlite://"+filepath.Join(dataDir, "piped.db"), store.Options{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// progressiveApp is an application of a Deployment with two pods, a ConfigMap that
// they use, and a Service, all named "web".
type progressiveApp struct {
	dir, namespace string
	spec           string            // further lines of its configuration
	objects        string            // further manifests
	podLabels      string            // additional labels, in flow style
	limits         map[string]string // timeouts of the deployments of versions
}

const progressiveConfig = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: %s
  input: {namespace: %s}
  service: {name: web}
%s`

const progressiveObjects = `apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {version: %[1]s}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web, pipecd.dev/variant: primary}
  ports: [{port: 80}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  progressDeadlineSeconds: %[2]d
  selector: {matchLabels: {app: web, pipecd.dev/variant: primary}}
  template:
    metadata: {labels: {app: web, pipecd.dev/variant: primary%[3]s}}
    spec:
      containers: [{name: web, image: "registry.example/web:%[1]s", envFrom: [{configMapRef: {name: web}}]}]
%[4]s`

// badVersion has an image that cannot be pulled. Its rollout fails after 30 s, in which its pods can say why.
const badVersion = "does-not-exist"

// files returns the application's files at a version, which is the tag of its image.
func (a progressiveApp) files(version string) map[string]string {
	deadline, labels := 1800, "" // longer than any test holds pods
	if version == badVersion {
		deadline = 30
	}
	if a.podLabels != "" {
		labels = ", " + a.podLabels
	}
	spec := a.spec
	if limit, ok := a.limits[version]; ok {
		spec = "  timeout: " + limit + "\n" + spec
	}
	return map[string]string{
		a.dir + "/app.pipecd.yaml": fmt.Sprintf(progressiveConfig, a.dir, a.namespace, spec),
		a.dir + "/app.yaml":        fmt.Sprintf(progressiveObjects, version, deadline, labels, a.objects),
	}
}

// patchedCanary returns a pipeline whose canary runs an image that starts, regardless of
// the primary's image, and has more time for it.
func patchedCanary(pipeline string) string {
	return strings.Replace(pipeline, "name: K8S_CANARY_ROLLOUT}", `name: K8S_CANARY_ROLLOUT, with: {patches: [
        {target: {kind: Deployment, name: web}, ops: [{op: yaml-replace, path: "$.spec.template.spec.containers[0].image", value: "registry.example/web:tried"},
          {op: yaml-replace, path: "$.spec.progressDeadlineSeconds", value: "1800"}]}]}}`, 1)
}

// filesOf returns the files of several applications at a version.
func filesOf(apps []progressiveApp, version string) map[string]string {
	files := map[string]string{}
	for _, a := range apps {
		maps.Copy(files, a.files(version))
	}
	return files
}

// The routes of the tests, for progressiveApp.objects.
const (
	httpRouteOfWeb = `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web}
spec:
  parentRefs: [{name: gateway}]
  rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      backendRefs: [{name: web, port: 80}]
    - matches: [{path: {type: PathPrefix, value: /static}}]
      backendRefs: [{name: static, port: 80}]
`
	virtualServiceOfWeb = `---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web}
spec:
  hosts: [web]
  http:
    - name: main
      route:
        - destination: {host: web, subset: primary}
          weight: 80
        - destination: {host: other}
          weight: 20
    - name: internal
      route:
        - destination: {host: web, subset: primary}
          weight: 100
`
)

// stageOf returns a stage of a deployment.
func stageOf(t *testing.T, d *modelv1.Deployment, id string) *modelv1.PipelineStage {
	t.Helper()
	for _, s := range d.GetStages() {
		if s.GetId() == id {
			return s
		}
	}
	t.Fatalf("deployment %s has no stage %s: %s", d.GetId(), id, strings.Join(stages(d), ", "))
	return nil
}
