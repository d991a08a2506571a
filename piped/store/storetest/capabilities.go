package storetest

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/google/go-cmp/cmp"
)

func testCapabilities(t *testing.T, e *env) {
	ctx := t.Context()
	known := func(want map[string]deploy.Capabilities) {
		t.Helper()
		got, err := e.store.Capabilities(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("capabilities (-want +got):\n%s", diff)
		}
	}
	save := func(provider string, c deploy.Capabilities) {
		t.Helper()
		if err := e.store.SaveCapabilities(ctx, provider, c); err != nil {
			t.Fatal(err)
		}
	}
	known(map[string]deploy.Capabilities{})
	first := deploy.Capabilities{KubeVersion: "v1.36.1", APIVersions: []string{"apps/v1", "apps/v1/Deployment", "v1"}}
	save("local", first)
	save("far", deploy.Capabilities{KubeVersion: "v1.30.0", APIVersions: []string{"v1"}})
	known(map[string]deploy.Capabilities{"local": first, "far": {KubeVersion: "v1.30.0", APIVersions: []string{"v1"}}})
	again := deploy.Capabilities{KubeVersion: "v1.36.2", APIVersions: []string{"v1"}}
	save("local", again)
	known(map[string]deploy.Capabilities{"local": again, "far": {KubeVersion: "v1.30.0", APIVersions: []string{"v1"}}})
}
