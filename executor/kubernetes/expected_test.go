package kubernetes

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// TestExpected: a cluster should hold what the last success applied, with the shares of
// the traffic that are in force: its own, unless a rollback came after it.
func TestExpected(t *testing.T) {
	ended := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	stored := storedSet{
		Spec: setSpec{
			VariantKey: "pipecd.dev/variant", PrimaryValue: "main", HealthChecks: []kubernetes.HealthCheck{{Kind: "Queue"}},
			Drift: config.DriftDetection{IgnoreFields: []string{"v1:Service:shop:web#spec.ports"}},
		},
		Secrets: map[string]string{"password": "hunter22"},
	}
	for _, o := range objects(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}}\n---\n"+
		"{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web, pipecd.dev/variant: main}}}\n") {
		stored.Objects = append(stored.Objects, o.Unstructured)
	}
	data, err := json.Marshal(stored)
	if err != nil {
		t.Fatal(err)
	}
	set := deploy.AppliedSet{Commit: "c0ffee1234", Objects: data}
	routing := traffic.Routing{Method: kubernetes.PodSelector, Label: kubernetes.VariantLabel{Key: "pipecd.dev/variant", PrimaryValue: "main", CanaryValue: "canary"}}
	sharing := func(shares ...traffic.Shares) (d deploy.Deployment) {
		d = deploy.Deployment{ID: "last", CompletedAt: ended}
		for _, s := range shares {
			text, err := json.Marshal(trafficState{Routing: routing, Shares: s})
			if err != nil {
				t.Fatal(err)
			}
			d.Stages = append(d.Stages, deploy.Stage{Metadata: map[string]string{deploy.MetaTraffic: string(text)}})
		}
		return d
	}
	toCanary := traffic.Shares{Canary: 100}
	written := func(by, name string, after time.Duration) []deploy.InventoryItem {
		return []deploy.InventoryItem{{DeploymentID: by, UpdatedAt: ended.Add(after), Object: deploy.ObjectRef{Version: "v1", Kind: "Service", Namespace: "shop", Name: name}}}
	}
	for name, c := range map[string]struct {
		last      deploy.Deployment
		inventory []deploy.InventoryItem
		want      string
	}{
		"nothing shared":                  {sharing(), nil, "main"},
		"all of it given back":            {sharing(toCanary, traffic.Stable()), nil, "main"},
		"left with the canary":            {sharing(traffic.Stable(), toCanary), written("last", "web", -time.Second), "canary"},
		"and written by one before":       {sharing(toCanary), written("earlier", "web", -time.Minute), "canary"},
		"put back by one that came after": {sharing(toCanary), written("later", "web", time.Minute), "main"},
		"which wrote something else":      {sharing(toCanary), written("later", "other", time.Minute), "canary"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Expected(set, c.last, c.inventory)
			if err != nil || len(got.Objects) != 2 {
				t.Fatalf("%d objects, %v", len(got.Objects), err)
			}
			variant, _, _ := unstructured.NestedString(got.Objects[1].Object, "spec", "selector", "pipecd.dev/variant")
			if variant != c.want {
				t.Errorf("the traffic goes to %q, want %q", variant, c.want)
			}
			if got.Commit != set.Commit || got.VariantKey != "pipecd.dev/variant" || got.VariantValue != "main" || got.Redactor.Text("hunter22") == "hunter22" {
				t.Errorf("expected %+v", got)
			}
			if diff := cmp.Diff([]any{stored.Spec.HealthChecks, stored.Spec.Drift}, []any{got.Checks, got.Ignore}); diff != "" {
				t.Errorf("what is kept (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := Expected(deploy.AppliedSet{Commit: "c0ffee1234", Objects: []byte("nonsense")}, sharing(), nil); err == nil {
		t.Error("a set that cannot be read is one")
	}
}
