package app

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// The number of applications that nothing changes. Autoscalers repeatedly scale the first
// few, and a controller writes the objects of the next ones.
const (
	quietApps  = 50
	scaledApps = 4
	workedApps = 12
)

// quietFor returns the duration of the test: PIPED_QUIET, else a minute.
func quietFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("PIPED_QUIET")
	if text == "" {
		return time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("PIPED_QUIET: %v", err)
	}
	return d
}

// TestQuietFleet observes applications whose autoscalers flap, whose ConfigMaps a
// mutating webhook rewrites at every write, and whose statuses and annotations a
// controller writes. No drift is reported. Unchanged objects cost no request, each
// foreign write at most one; there is no dry run.
func TestQuietFleet(t *testing.T) {
	t.Parallel()
	clustertest.Shared(t).Define(t, documents(t, "testdata/drift/definitions-of-custom-kinds.yaml")...)
	w := newDriftEnv(t)
	w.learnKinds()
	w.rewriteConfigMaps()
	apps := w.deployQuiet()

	ctx, cancel := context.WithTimeout(w.ctx, quietFor(t))
	defer cancel()
	w.calls.take()
	var calls []string
	worked := make(chan int, 1)
	go func() { worked <- w.work(ctx) }()
	for ctx.Err() == nil {
		calls = append(calls, w.calls.within(ctx, time.Second)...)
		if reports := w.reports(); len(reports) > 0 {
			break // it is reported below
		}
	}
	cancel()
	writes := <-worked
	w.wantNoReports("left alone")
	w.wantSynced(apps...)

	untouched := regexp.MustCompile(fmt.Sprintf(`/app-(%s)\b`, strings.Join(numbers(scaledApps+workedApps, quietApps), "|")))
	for _, c := range calls {
		if untouched.MatchString(c) || !strings.HasPrefix(c, "GET ") {
			t.Errorf("an unexpected request: %s", c)
		}
	}
	scalings := int(quietFor(t)/flapEvery+1) * scaledApps * scalingWrites
	t.Logf("%d requests; %d writes by a controller, up to %d by autoscalers", len(calls), writes, scalings)
	if writes == 0 || len(calls) > writes+scalings {
		t.Errorf("%d requests, more than there were writes:\n%s", len(calls), summary(calls))
	}
}

// numbers returns the numbers of a range as two digits.
func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%02d", i))
	}
	return out
}

// flapEvery is the interval at which an autoscaler scales, and scalingWrites the number
// of resulting writes: to the Deployment, its status, and the status of the autoscaler.
const (
	flapEvery     = 2 * time.Second
	scalingWrites = 6
)

// deployQuiet deploys the applications and waits until they are in sync.
func (w *driftEnv) deployQuiet() (apps []string) {
	w.t.Helper()
	files := map[string]string{}
	for i, n := range numbers(0, quietApps) {
		app := "app-" + n
		apps = append(apps, app)
		files[app+"/app.pipecd.yaml"] = fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  input: {namespace: %s}\n", app, w.ns)
		text := `{apiVersion: v1, kind: ConfigMap, metadata: {name: NAME}, data: {color: blue}}
---
{apiVersion: v1, kind: Secret, metadata: {name: NAME}, stringData: {password: swordfish}}
---
{apiVersion: v1, kind: Service, metadata: {name: NAME}, spec: {selector: {app: NAME}, ports: [{port: 80, targetPort: http}]}}
---
{apiVersion: drift.example.com/v1, kind: Widget, metadata: {name: NAME}, spec: {color: red, parts: [{name: wheel}]}}
`
		if i < scaledApps {
			text += `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {containers: [{name: web, image: "registry.example/web:v1", resources: {requests: {cpu: 1m}}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: NAME, annotations: {devcluster.piped.dev/scale-flap: "1,2,2s"}}
spec: {minReplicas: 1, maxReplicas: 4, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: NAME}}
`
		}
		files[app+"/objects.yaml"] = strings.ReplaceAll(text, "NAME", app)
	}
	commit := w.repo.Push(w.t, "applications to be left alone", files)
	for _, app := range apps {
		w.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	w.wantSynced(apps...)
	w.wantNoReports("as they are deployed")
	return apps
}

// work performs writes of controllers until ctx ends, and returns their number.
func (w *driftEnv) work(ctx context.Context) (writes int) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return writes
		case <-ticker.C:
		}
		name := fmt.Sprintf("app-%02d", scaledApps+rand.IntN(workedApps))
		widget := &modelv1.ObjectRef{Group: "drift.example.com", Version: "v1", Kind: "Widget", Namespace: w.ns, Name: name}
		target, patch, subresources := widget, fmt.Sprintf(`{"status": {"turns": %d}}`, writes), []string{"status"}
		if kind := []string{"ConfigMap", "Secret", "Service", "Widget", ""}[writes%5]; kind != "" {
			target, patch, subresources = &modelv1.ObjectRef{Version: "v1", Kind: kind, Namespace: w.ns, Name: name}, fmt.Sprintf(`{"metadata": {"annotations": {"example.com/seen": "%d"}}}`, writes), nil
			if kind == "Widget" {
				target = widget
			}
		}
		_, err := w.resource(target).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "controller"}, subresources...)
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("write %s %s: %v", target.GetKind(), name, err)
			return writes
		}
		writes++
	}
}

// rewriteConfigMaps installs a mutating webhook that rewrites the ConfigMaps of the
// test's namespace until the test ends.
func (w *driftEnv) rewriteConfigMaps() {
	w.t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(rewriteConfigMap))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // the API server breaks connections
	server.StartTLS()
	w.t.Cleanup(server.Close)
	client := clustertest.Shared(w.t).Client(w.t)
	text := fmt.Sprintf(`
metadata: {name: %[1]s}
webhooks:
- name: rewrite.example.com
  clientConfig: {caBundle: %[2]s, url: %[3]q}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  failurePolicy: Fail
  timeoutSeconds: 30 # the server runs in this process, on a busy machine
  sideEffects: None
  admissionReviewVersions: [v1]
`, w.ns, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})), server.URL)
	hook := &admissionv1.MutatingWebhookConfiguration{}
	if err := yaml.Unmarshal([]byte(text), hook); err != nil {
		w.t.Fatal(err)
	}
	hooks := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if _, err := hooks.Create(w.ctx, hook, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := hooks.Delete(context.Background(), w.ns, metav1.DeleteOptions{}); err != nil {
			w.t.Error(err)
		}
	})
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		trial, err := client.CoreV1().ConfigMaps(w.ns).Create(w.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "trial-"}, Data: map[string]string{"color": "blue"}}, metav1.CreateOptions{})
		if err == nil && trial.Data["color"] == "BLUE" {
			return
		}
	}
	w.t.Fatal("the API server does not call the webhook")
}

// rewriteConfigMap is a mutating webhook that upper-cases a ConfigMap's data and adds the
// hour of the write.
func rewriteConfigMap(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID    string
			Object runtime.RawExtension
		}
	}
	var object corev1.ConfigMap
	err := json.NewDecoder(r.Body).Decode(&review)
	if err == nil {
		err = json.Unmarshal(review.Request.Object.Raw, &object)
	}
	ops := []map[string]any{}
	for key, value := range object.Data {
		ops = append(ops, map[string]any{"op": "replace", "path": "/data/" + key, "value": strings.ToUpper(value)})
	}
	ops = append(ops, map[string]any{"op": "add", "path": "/data/injected", "value": time.Now().Format(time.RFC3339Nano)})
	patch, patchErr := json.Marshal(ops)
	if err != nil || patchErr != nil {
		http.Error(w, fmt.Sprint(err, patchErr), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{ // the API server may be gone
		"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
		"response": map[string]any{"uid": review.Request.UID, "allowed": true, "patchType": "JSONPatch", "patch": patch},
	})
}
