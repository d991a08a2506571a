package app

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestModulesOf: modules are nested as their addresses say, also those whose keys have dots and
// quotes, and a module without resources of its own is there with what it calls.
func TestModulesOf(t *testing.T) {
	resource := func(module, name string, health deploy.Health) liveResource {
		return liveResource{deploy.LiveObject{Object: deploy.ObjectRef{Kind: "net", Name: name}, Health: health}, module}
	}
	tree := modulesOf("tofu", deploy.GitPath{RepoID: "r", Dir: "infra"}, []liveResource{
		resource("", "a", deploy.Healthy), resource("module.net", "b", deploy.Healthy), resource(`module.net["x.module.y\"z"].module.dns[0]`, "c", deploy.HealthMissing),
		resource("module.net", "d", deploy.HealthDegraded),
	})
	var lines []string
	var walk func(indent string, list []deploy.LiveObject)
	walk = func(indent string, list []deploy.LiveObject) {
		for _, o := range list {
			lines = append(lines, fmt.Sprintf("%s%s %s %s", indent, o.Object.Kind, o.Object.Name, o.Health))
			walk(indent+"  ", o.Children)
		}
	}
	walk("", tree)
	want := []string{
		"net a HEALTHY", "module net DEGRADED", "  net b HEALTHY", "  net d DEGRADED", `module net["x.module.y\"z"] MISSING`, "  module dns[0] MISSING", "    net c MISSING",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("the tree (-want +got):\n%s", diff)
	}
}
