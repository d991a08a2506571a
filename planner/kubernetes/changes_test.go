package kubernetes

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// TestChanges: the effect on changed objects by the prune settings.
func TestChanges(t *testing.T) {
	load := func(spec, objects string) *source.Source {
		cfg, err := config.Kinds{config.Kubernetes()}.ParseApplication("app.pipecd.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web, "+spec+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := manifest.Parse("a.yaml", []byte(objects))
		if err != nil {
			t.Fatal(err)
		}
		return &source.Source{Config: cfg, Objects: parsed}
	}
	const before = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: gone}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}}
`
	const after = `{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: "2"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: new}}
`
	sync := func(options string) deploy.Deployment {
		return deploy.Deployment{Stages: []deploy.Stage{{Name: deploy.StageWait}, {Name: deploy.StageK8sSync, Options: []byte(options)}}}
	}
	cases := map[string]struct {
		deployment deploy.Deployment
		spec       string
		gone, data deploy.PlannedAction
	}{
		"a stage that prunes":         {sync(`{"prune":true}`), "", deploy.PlannedDelete, deploy.PlannedLeave},
		"one that does not":           {sync(`{"prune":false}`), "quickSync: {prune: true}", deploy.PlannedLeave, deploy.PlannedLeave},
		"every kind":                  {sync(`{"prune":true}`), "pruneKinds: [PersistentVolumeClaim]", deploy.PlannedDelete, deploy.PlannedDelete},
		"not planned yet":             {deploy.Deployment{}, "quickSync: {prune: true}", deploy.PlannedDelete, deploy.PlannedLeave},
		"not planned, without prunes": {deploy.Deployment{}, "", deploy.PlannedLeave, deploy.PlannedLeave},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			spec := c.spec
			if spec != "" {
				spec += ", "
			}
			got := map[string]deploy.PlannedAction{}
			for _, change := range Changes(c.deployment, load("", before), load(spec+"labels: {}", after)) {
				got[change.Object.Name] = change.Action
			}
			want := map[string]deploy.PlannedAction{
				"a": deploy.PlannedUpdate, "new": deploy.PlannedCreate, "gone": c.gone, "kept": deploy.PlannedLeave, "data": c.data,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	first := Changes(deploy.Deployment{}, nil, load("", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"))
	want := []deploy.PlannedChange{{
		Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: "a"}, Action: deploy.PlannedCreate,
		Diff: "--- ConfigMap a\n+++ ConfigMap a\n@@ -0,0 +1,4 @@\n+apiVersion: v1\n+kind: ConfigMap\n+metadata:\n+  name: a\n",
	}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("a first deployment (-want +got):\n%s", diff)
	}
}
