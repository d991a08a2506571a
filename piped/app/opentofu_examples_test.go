package app

import (
	"strings"
	"testing"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestOpenTofuExamples deploys what is below examples/tofu/apps as a reader would who copies it.
func TestOpenTofuExamples(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	files, apps := examplesIn(t, "tofu/apps", "demo")
	if len(apps) != 2 {
		t.Fatalf("the examples are %v", apps)
	}
	for name, text := range files {
		files[name] = strings.ReplaceAll(text, "/var/lib/piped/states/", i.dir+"/")
	}
	commit := i.repo.Push(t, "the examples", files)
	i.start()
	i.c.approve(i.c.awaitStage(appID("approval"), commit, "stage-1"))
	for _, app := range apps {
		i.c.mustEnd(appID(app), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}
	i.c.wantLive(appID("quick"), modelv1.Health_HEALTH_HEALTHY, `terraform_data subnet["a"] HEALTHY declared`, `terraform_data subnet["b"] HEALTHY declared`, "output subnets HEALTHY declared")
}
