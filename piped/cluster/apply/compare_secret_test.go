package apply

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

const vault = `
apiVersion: v1
kind: Secret
metadata: {name: keys, labels: {team: shop}}
stringData: {password: hunter2-in-secret, other: plain-in-secret}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {url: "https://robot:hunter2@db", encoded: cm9ib3Q6aHVudGVyMkBkYg==, color: blue, limit: "10"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", env: [{name: PASSWORD, value: hunter2}, {name: COLOR, value: blue}]}]}
`

// TestSecretsAreRedacted: no part of a report may contain the content of Secrets, or
// either value of a field where Git has a decrypted secret.
func TestSecretsAreRedacted(t *testing.T) {
	l := newEnv(t)
	l.apply(t, vault)
	l.as("thief").patch(t, "v1", "Secret", "keys", `{"data":{"password":"c3RvbGVuLWxpdmU="},"metadata":{"labels":{"team":"thief"}}}`)
	l.as("thief").patch(t, "v1", "ConfigMap", "settings", `{"data":{"url":"https://robot:stolen-live@db","encoded":"cm9ib3Q6c3RvbGVuLWxpdmVAZGI=","color":"red"}}`)
	l.as("thief").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/env","value":[{"name":"PASSWORD","value":"stolen-live"}]}]`)
	results := l.compare(t, vault, func(r *CompareRequest) { r.Conceal, r.Diff = hider("hunter2"), true })
	want := []string{
		`Secret keys data.password: "***" -> "***" by thief`,
		`Secret keys metadata.labels.team: "shop" -> "thief" by thief`,
		`ConfigMap settings data.color: "blue" -> "red" by thief`,
		`ConfigMap settings data.encoded: "***" -> "***" by thief`,
		`ConfigMap settings data.url: "***" -> "***" by thief`,
		`Deployment web spec.template.spec.containers[name=web].env[name=COLOR]: {"name":"COLOR","value":"blue"} -> `,
		`Deployment web spec.template.spec.containers[name=web].env[name=PASSWORD].value: "***" -> "***" by thief`,
	}
	if diff := cmp.Diff(want, l.found(results)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	var diffs strings.Builder
	for _, c := range results {
		if c.Drift == nil || c.Drift.Diff == "" {
			t.Fatalf("no diff of %+v", c)
		}
		diffs.WriteString(c.Drift.Diff)
	}
	for _, secret := range []string{"hunter2", "stolen", "aHVudGVy", "c3RvbGVu", "plain-in-secret", "cm9ib3Q6"} {
		if strings.Contains(diffs.String(), secret) {
			t.Errorf("%q is in the diffs:\n%s", secret, diffs.String())
		}
	}
	for _, line := range []string{"-  color: blue\n", "+  color: red\n", "(secret, as in Git)", "(secret, as it is live)", "-    team: shop\n", "+    team: thief\n"} {
		if !strings.Contains(diffs.String(), line) {
			t.Errorf("%q is not in the diffs:\n%s", line, diffs.String())
		}
	}
}

// TestDiffOfAnObject: the diff shows the declared and the live values, and leaves out
// fields not managed by Git.
func TestDiffOfAnObject(t *testing.T) {
	l := newEnv(t)
	l.apply(t, shop)
	l.as("kubectl-edit").patch(t, "v1", "Service", "web", `[{"op":"remove","path":"/spec/ports/1"},{"op":"replace","path":"/spec/ports/0/targetPort","value":9090}]`)
	l.drop(t, "v1", "ConfigMap", "settings")
	results := l.compare(t, shop, func(r *CompareRequest) { r.Diff = true })
	want := `   - name: http
     port: 80
     protocol: TCP
-    targetPort: 8080
-  - name: admin
-    port: 81
-    protocol: TCP
+    targetPort: 9090
   selector:
     app: web
`
	_, got, _ := strings.Cut(results[1].Drift.Diff, "\n")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s\nof\n%s", diff, results[1].Drift.Diff)
	}
	if missing := results[0].Drift.Diff; !strings.Contains(missing, "-  color: blue\n") || strings.Contains(missing, "\n+ ") {
		t.Errorf("diff of the missing object:\n%s", missing)
	}
	if results[2].Drift != nil {
		t.Errorf("the Deployment differs: %+v", results[2].Drift)
	}
}

// TestLongValuesAreCut: values are cut between two characters, with a sign that they were
// cut.
func TestLongValuesAreCut(t *testing.T) {
	long := strings.Repeat("ä<", 1000)
	got := display(long, false)
	if len(got) > longestDriftValue+len("…") || !strings.HasPrefix(got, `"ä<ä<`) || !strings.HasSuffix(got, "…") || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("got %d bytes: %s", len(got), got)
	}
}

// TestExtraObjects: what is live and marked as the application's is described; what is
// not, is gone, or asks not to be compared is not.
func TestExtraObjects(t *testing.T) {
	l := newEnv(t)
	const extra = `
apiVersion: v1
kind: ConfigMap
metadata: {name: left}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {password: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: quiet, annotations: {pipecd.dev/ignore-drift-detection: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: taken}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: gone}
`
	l.apply(t, extra)
	l.as("somebody").patch(t, "v1", "ConfigMap", "taken", `{"metadata":{"annotations":{"`+manifest.AnnotationPiped+`":"other"}}}`)
	l.drop(t, "v1", "ConfigMap", "gone")
	req := CompareRequest{ApplicationID: l.app, PipedID: "piped-1", Diff: true}
	for _, obj := range l.request(t, extra).Objects {
		req.Only = append(req.Only, manifest.Ref(obj.Unstructured))
	}
	req.Only = append(req.Only, deploy.ObjectRef{Group: "nobody.example.com", Version: "v1", Kind: "Thing", Namespace: l.ns, Name: "x"})
	results, err := l.DescribeExtra(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ConfigMap left EXTRA", "Secret keys EXTRA"}, l.found(results)); diff != "" {
		t.Errorf("found (-want +got):\n%s", diff)
	}
	// The color may have been decrypted for a commit that is no longer known.
	if got := results[0].Drift.Diff; !strings.Contains(got, "+  color: (redacted)\n") && !strings.Contains(got, "+  color: '(redacted)'\n") || strings.Contains(got, "blue") {
		t.Errorf("diff:\n%s", got)
	}
	if got := results[1].Drift.Diff; strings.Contains(got, "aHVudGVyMg") || !strings.Contains(got, "+  password: (secret)\n") {
		t.Errorf("diff:\n%s", got)
	}
	if !results[2].Ignored || !results[4].Missing || !results[5].Missing {
		t.Errorf("got %+v", results)
	}
}

// TestWhatTheClusterAlwaysWrites: placeholders of what is injected are not sent.
func TestWhatTheClusterAlwaysWrites(t *testing.T) {
	for name, c := range map[string]struct {
		object string
		path   []string
		sent   bool
	}{
		"an API service": {"apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.example.com}\nspec: {group: example.com, caBundle: \"\"}\n", []string{"spec", "caBundle"}, false},
		"an API service with a certificate": {"apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {name: v1.example.com}\nspec: {group: example.com, caBundle: QUJD}\n",
			[]string{"spec", "caBundle"}, true},
		"a definition": {"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: a.example.com}\nspec: {conversion: {strategy: Webhook, webhook: {clientConfig: {caBundle: Cg==}}}}\n",
			[]string{"spec", "conversion", "webhook", "clientConfig", "caBundle"}, false},
		"an aggregated role": {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\naggregationRule: {clusterRoleSelectors: [{}]}\nrules: []\n", []string{"rules"}, false},
		"a role":             {"apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: a}\nrules: []\n", []string{"rules"}, true},
	} {
		sent := desired(declared(t, c.object), manifest.Ownership{})
		if _, found, _ := unstructured.NestedFieldNoCopy(sent.Object, c.path...); found != c.sent {
			t.Errorf("%s: %s is sent: %t, want %t", name, strings.Join(c.path, "."), found, c.sent)
		}
	}
}
