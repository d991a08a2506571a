package app

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestChartsStaySynced deploys every application of examples/charts. All must be in sync,
// and stay so while the controllers of a cluster write to their objects. Without changes
// they must cause no requests.
func TestChartsStaySynced(t *testing.T) {
	t.Parallel()
	clustertest.Shared(t).InstallGatewayAPI(t)
	w := newDriftEnv(t)
	files, apps := examplesIn(t, "charts", w.ns)
	if len(apps) < 12 {
		t.Fatalf("there are only the applications %v", apps)
	}
	backend := serveMetricsAPI(t)
	files["metrics-server/server.yaml"], files["metrics-server/api.yaml"] = backend.stand(t, files["metrics-server/server.yaml"], files["metrics-server/api.yaml"])
	// Cluster-wide objects would affect other tests when their server is gone.
	t.Cleanup(func() {
		w.remove("APIService", "v1beta1.metrics.k8s.io")
		w.remove("ValidatingWebhookConfiguration", "ingress-controller", "cert-manager-webhook")
		w.remove("MutatingWebhookConfiguration", "cert-manager-webhook")
	})
	w.provideVolumes("data-monitoring-0", "data-postgres-0", "data-redis-0", "data-redis-1")
	commit := w.repo.Push(t, "the charts", files)
	for _, app := range apps {
		w.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	clustertest.Eventually(t, "the Job with a time to live is gone", func() bool {
		_, err := clustertest.Shared(t).Client(t).BatchV1().Jobs(w.ns).Get(w.ctx, "batch-warm-cache", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	w.wantSynced(apps...)
	w.wantNoReports("as they are deployed")
	w.wantQuiet("left alone")

	w.learnKinds()
	w.actAsControllers(backend.caBundle())
	w.annotateAll(apps)
	for _, app := range apps {
		if r := w.compare(appID(app)); r.GetStatus() != modelv1.ApplicationSyncStatus_SYNCED || r.GetIncompleteReason() != "" {
			t.Errorf("after the controllers' work: %s", describeReport(r))
		}
	}
	w.wantNoReports("after the controllers' work")
	w.wantQuiet("left alone again")
}

// wantQuiet fails the test unless the agent sends no requests to its API server for a
// while.
func (w *driftEnv) wantQuiet(what string) {
	w.t.Helper()
	var calls []string
	for end := time.Now().Add(patience); time.Now().Before(end); { // earlier changes may still have effects
		w.calls.take()
		if calls = w.calls.within(w.ctx, 3*time.Second); len(calls) == 0 {
			return
		}
	}
	w.t.Errorf("%s: in 3 s the agent makes these requests:\n%s", what, summary(calls))
}

// remove removes cluster-wide objects that may exist.
func (w *driftEnv) remove(kind string, names ...string) {
	w.learnKinds()
	group := "admissionregistration.k8s.io"
	if kind == "APIService" {
		group = "apiregistration.k8s.io"
	}
	for _, name := range names {
		err := w.resource(&modelv1.ObjectRef{Group: group, Version: "v1", Kind: kind, Name: name}).Delete(context.Background(), name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			w.t.Error(err)
		}
	}
}

// provideVolumes creates volumes for claims: the cluster has no provisioner.
func (w *driftEnv) provideVolumes(claims ...string) {
	w.t.Helper()
	volumes := clustertest.Shared(w.t).Client(w.t).CoreV1().PersistentVolumes()
	for _, claim := range claims {
		name := w.ns + "-" + claim
		_, err := volumes.Create(w.ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("100Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/" + name}},
			ClaimRef:               &corev1.ObjectReference{Namespace: w.ns, Name: claim},
		}}, metav1.CreateOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if err := volumes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
				w.t.Error(err)
			}
		})
	}
}

// actAsControllers makes the writes of the charts' controllers, and returns when the
// cluster's own controllers have finished theirs.
func (w *driftEnv) actAsControllers(caBundle string) {
	w.t.Helper()
	const admission, extensions = "admissionregistration.k8s.io", "apiextensions.k8s.io"
	in := func(group, version, kind, name string) *modelv1.ObjectRef {
		return &modelv1.ObjectRef{Group: group, Version: version, Kind: kind, Namespace: w.ns, Name: name}
	}
	inject := fmt.Sprintf(`[{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": %q}]`, caBundle)
	for _, name := range []string{"ingress-controller", "cert-manager-webhook"} {
		w.patch("cainjector", &modelv1.ObjectRef{Group: admission, Version: "v1", Kind: "ValidatingWebhookConfiguration", Name: name}, types.JSONPatchType, inject)
	}
	w.patch("cainjector", &modelv1.ObjectRef{Group: admission, Version: "v1", Kind: "MutatingWebhookConfiguration", Name: "cert-manager-webhook"}, types.JSONPatchType, inject)
	w.patch("cainjector", &modelv1.ObjectRef{Group: extensions, Version: "v1", Kind: "CustomResourceDefinition", Name: "certificates.cert-manager.io"}, types.MergePatchType,
		fmt.Sprintf(`{"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": %q}}}}}`, caBundle))

	const ready = `{"status": {"conditions": [{"type": "Ready", "status": "True"}], "revision": 7}}`
	w.patch("cert-manager", in("cert-manager.io", "v1", "Certificate", "wildcard"), types.MergePatchType, ready, "status")
	w.patch("cert-manager", in("cert-manager.io", "v1", "Certificate", "wildcard"), types.MergePatchType, `{"metadata": {"annotations": {"cert-manager.io/issued": "yes"}, "finalizers": ["cert-manager.io/revoke"]}}`)
	w.patch("cert-manager", in("cert-manager.io", "v1", "Certificate", "wildcard"), types.MergePatchType, `{"metadata": {"finalizers": null}}`)
	w.patch("operator", in("messaging.example.com", "v1beta1", "QueueCluster", "orders"), types.MergePatchType, ready, "status")
	w.patch("service-controller", in("", "v1", "Service", "ingress-controller"), types.MergePatchType, `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}`, "status")
	w.patch("ingress-controller", in("networking.k8s.io", "v1", "Ingress", "webshop"), types.MergePatchType, `{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}`, "status")
	w.patch("token-controller", in("", "v1", "ServiceAccount", "ingress-controller"), types.MergePatchType, `{"secrets": [{"name": "ingress-controller-token"}]}`)
	w.patch("sidecar-operator", in("apps", "v1", "Deployment", "cert-manager"), types.StrategicMergePatchType,
		`{"spec": {"template": {"spec": {"containers": [{"name": "added", "image": "registry.example/added:1"}, {"name": "controller", "env": [{"name": "ADDED", "value": "yes"}]}]}}}}`)

	w.patch("autoscaler", in("autoscaling", "v2", "HorizontalPodAutoscaler", "webshop"), types.MergePatchType, `{"metadata": {"annotations": {"devcluster.piped.dev/scale-to": "5"}}}`)
	w.awaitField("the autoscaler to scale", in("apps", "v1", "Deployment", "webshop"), func(u *unstructured.Unstructured) bool {
		n, _, _ := unstructured.NestedInt64(u.Object, "spec", "replicas")
		return n == 5
	})
	w.awaitField("the role to be aggregated", &modelv1.ObjectRef{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "sandbox-user"}, func(u *unstructured.Unstructured) bool {
		rules, _, _ := unstructured.NestedSlice(u.Object, "rules")
		return len(rules) > 0
	})
	w.awaitField("the Job to be removed", in("batch", "v1", "Job", "batch-warm-cache"), func(u *unstructured.Unstructured) bool { return u == nil })
}

// awaitField waits until an object, nil if it does not exist, satisfies ok.
func (w *driftEnv) awaitField(what string, o *modelv1.ObjectRef, ok func(*unstructured.Unstructured) bool) {
	w.t.Helper()
	var u *unstructured.Unstructured
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		var err error
		if u, err = w.resource(o).Get(w.ctx, o.GetName(), metav1.GetOptions{}); apierrors.IsNotFound(err) {
			u = nil
		} else if err != nil {
			w.t.Fatal(err)
		}
		if ok(u) {
			return
		}
	}
	w.t.Fatalf("waited %s for %s: %v", patience, what, u)
}

// annotateAll adds an annotation and a label to all live objects of the applications in
// these directories.
func (w *driftEnv) annotateAll(dirs []string) {
	w.t.Helper()
	n := 0
	for _, dir := range dirs {
		for _, o := range w.objects(appID(dir)) {
			w.patch("kubectl-annotate", o, types.MergePatchType, `{"metadata": {"annotations": {"example.com/seen": "yes"}, "labels": {"example.com/seen": "yes"}}}`)
			n++
		}
	}
	if n < 100 {
		w.t.Errorf("the charts have only %d objects", n)
	}
}

// metricsAPI is a server of the API that the chart metrics-server declares.
type metricsAPI struct{ *httptest.Server }

// serveMetricsAPI serves the API until the test ends.
func serveMetricsAPI(t *testing.T) metricsAPI {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.TrimSuffix(r.URL.Path, "/") != "/apis/metrics.k8s.io/v1beta1" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1", "resources": []}`) // the client may be gone
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the API server breaks connections
	server.StartTLS()
	t.Cleanup(server.Close)
	return metricsAPI{server}
}

// stand makes the chart's Service point to this server, because pods are only simulated.
func (m metricsAPI) stand(t *testing.T, service, api string) (string, string) {
	t.Helper()
	address, err := url.Parse(m.URL)
	if err != nil {
		t.Fatal(err)
	}
	const own, declared = "  type: ClusterIP\n", "    name: metrics-server\n"
	if !strings.Contains(service, own) || !strings.Contains(api, declared) {
		t.Fatal("the chart metrics-server has changed")
	}
	return strings.Replace(service, own, "  type: ExternalName\n  externalName: localhost\n", 1),
		strings.Replace(api, declared, declared+"    port: "+address.Port()+"\n", 1)
}

// caBundle is the server's certificate as a webhook configuration has it.
func (m metricsAPI) caBundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}))
}
