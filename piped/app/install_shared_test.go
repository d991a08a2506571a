package app

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestInstalledReplicasThatShare: the API server accepts the variant whose replicas share the work. It
// is the variant with standbys, but for the configuration, which is valid, and for the time in which a
// new pod takes its share before the next pod ends.
func TestInstalledReplicasThatShare(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	namespace := cluster.Namespace(t)
	shared, standby := installManifests(t, "shared", namespace), installManifests(t, "replicated", namespace)
	installDryRun(t, cluster, shared)
	differs := map[string]bool{"Deployment": false, "ConfigMap": false}
	for i, o := range shared {
		switch o.GetKind() {
		case "Deployment":
			wait, found, err := unstructured.NestedInt64(o.Object, "spec", "minReadySeconds")
			if err != nil || !found || wait < 10 { // two renewals of the right to partitions
				t.Errorf("the next pod ends after %d s, %v", wait, err)
			}
			unstructured.RemoveNestedField(o.Object, "spec", "minReadySeconds")
			differs["Deployment"] = true
		case "ConfigMap":
			text, _, _ := unstructured.NestedString(o.Object, "data", "piped.yaml")
			cfg, warnings, err := Kinds().ParsePiped("piped.yaml", []byte(text))
			if err != nil || len(warnings) > 0 || !shares(cfg) {
				t.Errorf("the configuration shares the work: %v, %v, warnings %q", err == nil && shares(cfg), err, warnings)
			}
			for _, o := range []*unstructured.Unstructured{o, standby[i]} {
				unstructured.RemoveNestedField(o.Object, "data")
			}
			differs["ConfigMap"] = true
		}
		if diff := cmp.Diff(standby[i].Object, o.Object); diff != "" {
			t.Errorf("%s (-replicated +shared):\n%s", o.GetKind(), diff)
		}
	}
	if len(shared) != len(standby) || !differs["Deployment"] || !differs["ConfigMap"] {
		t.Errorf("there are %d objects, and %d in the variant with standbys: %v", len(shared), len(standby), differs)
	}
}
