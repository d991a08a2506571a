package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// parsed parses the objects of a YAML text.
func parsed(t *testing.T, text string) []Object {
	t.Helper()
	objects, err := Parse("a.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

const deploymentText = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: %s
  template: {spec: {containers: [{name: web, image: "web:%s"}]}}
`

// TestCompare: the differing objects of two states, and their text.
func TestCompare(t *testing.T) {
	before := fmt.Sprintf(deploymentText, "2", "v1") + `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: gone}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: same}, data: {a: b}}
---
{apiVersion: policy/v1beta1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 1}}
`
	after := fmt.Sprintf(deploymentText, "2.0", "v2") + `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: new, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: same, namespace: default}, data: {a: b}}
---
{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 1}}
`
	ds := Compare(parsed(t, before), parsed(t, after))
	var got []string
	for _, d := range ds {
		got = append(got, d.Ref().String())
	}
	if diff := cmp.Diff([]string{"ConfigMap gone", "ConfigMap default/same", "ConfigMap shop/new", "Deployment shop/web", "PodDisruptionBudget web"}, got); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	if a, c, r := Count(ds); a != 1 || c != 3 || r != 1 {
		t.Errorf("%d added, %d changed, %d removed", a, c, r)
	}
	want := `--- Last Deploy
+++ Head Commit

- 1. name="gone", kind="ConfigMap", namespace="default", apiVersion="v1"

+ 2. name="new", kind="ConfigMap", namespace="shop", apiVersion="v1"

# 3. name="same", kind="ConfigMap", namespace="default", apiVersion="v1"

@@ -4,3 +4,4 @@
 kind: ConfigMap
 metadata:
   name: same
+  namespace: default

# 4. name="web", kind="Deployment", namespace="shop", apiVersion="apps/v1"

@@ -8,5 +8,5 @@
   template:
     spec:
       containers:
-      - image: web:v1
+      - image: web:v2
         name: web

# 5. name="web", kind="PodDisruptionBudget", namespace="default", apiVersion="policy/v1"

@@ -1,4 +1,4 @@
-apiVersion: policy/v1beta1
+apiVersion: policy/v1
 kind: PodDisruptionBudget
 metadata:
   name: web

`
	if diff := cmp.Diff(want, Text(ds)); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	if ds := Compare(parsed(t, before), parsed(t, before)); ds != nil {
		t.Errorf("a state differs from itself: %v", ds)
	}
}

// TestHunksHideSecrets: values of Secrets are masked everywhere; changes of them are
// visible.
func TestHunksHideSecrets(t *testing.T) {
	text := func(indent, password, more string) string {
		return strings.ReplaceAll(fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata:
  name: web
  annotations: {copy: "%[1]s"}
  labels: {shown: "yes"}
type: Opaque
stringData: {password: "%[1]s", same: hunter2-same%[2]s}
data: {blob: aHVudGVyMg==, list: [hunter2, {deep: hunter2-%[1]s}]}
`, password, more), "\n", "\n"+indent)
	}
	nested := func(password string) string {
		return "apiVersion: example.com/v1\nkind: Wrapper\nmetadata: {name: w}\nspec:\n  shown: " + fmt.Sprintf("%q", "not "+password[:3]) + "\n  objects:\n  - " + text("    ", password, "")
	}
	cases := map[string]struct{ before, after string }{
		"changed":           {text("", "hunter2-old", ""), text("", "hunter2-new", "")},
		"added":             {"", text("", "hunter2", "")},
		"removed":           {text("", "hunter2", ""), ""},
		"a key is added":    {text("", "hunter2", ""), text("", "hunter2", ", more: hunter2-more")},
		"in another object": {nested("hunter2-old"), nested("hunter2-new")},
		"becomes a Secret": {"apiVersion: example.com/v1\nkind: Wrapper\nmetadata: {name: w}\nspec: {objects: [{kind: Other, a: {b: c}}]}\n",
			nested("hunter2-new")},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			ds := Compare(parsed(t, c.before), parsed(t, c.after))
			if len(ds) != 1 {
				t.Fatalf("%d differences", len(ds))
			}
			hunks := ds[0].Hunks()
			if strings.Contains(hunks, "hunter2") || strings.Contains(hunks, "aHVudGVyMg") {
				t.Errorf("a secret is shown:\n%s", hunks)
			}
			if !strings.Contains(hunks, "(secret") {
				t.Errorf("the diff is empty:\n%s", hunks)
			}
			if name == "changed" && !(strings.Contains(hunks, "-  password: (secret, as it was)\n") && strings.Contains(hunks, "+  password: (secret, changed)\n")) {
				t.Errorf("the change is missing:\n%s", hunks)
			}
		})
	}
}
