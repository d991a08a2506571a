package browsertest_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/executor/opentofu/opentofutest"
	"github.com/c785c783/piped/piped/web/page/browsertest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// shownPlan returns the changes of a plan as a person sees them: a line for each object, and one for
// each attribute that is in sight.
const shownPlan = `[...document.querySelectorAll("details.change")].map((change) => {
	const text = (e) => e.innerText.replace(/\s+/g, " ").trim()
	const rows = [...change.querySelectorAll("tbody tr")].filter((row) => row.checkVisibility())
	return [text(change.querySelector("summary")), ...rows.map((row) => [...row.cells].map(text).join(" | "))].join("\n")
}).join("\n")`

// approvePlan: a plan of OpenTofu is read by resource and attribute, without sensitive values, and
// approved with what it destroys in sight. It destroys more than is permitted, so it fails; a user
// types the name, approves the plan again, and then it is applied.
func approvePlan(t *testing.T, e *env) {
	const name, old, fresh = "net", "old-sensitive-value", "new-sensitive-value"
	push := func(message, spec, resources string) string {
		e.pushing.Lock()
		defer e.pushing.Unlock()
		return e.repo.Push(t, message, map[string]string{
			name + "/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: OpenTofuApp\nspec:\n  name: " + name + "\n" + spec,
			name + "/main.tf":         resources,
		})
	}
	dir := t.TempDir()
	file := func(name, path, content, more string) string {
		return fmt.Sprintf("resource \"sample_file\" %q {\n  path = %q\n  content = %q\n%s}\n", name, filepath.Join(dir, path), content, more)
	}
	head := fmt.Sprintf("terraform {\n  required_providers {\n    sample = { source = %q }\n  }\n  backend \"local\" { path = %q }\n}\n", opentofutest.Source, filepath.Join(dir, "state.tfstate"))
	region := func(value, secret string) string {
		return file("region", "region", value, fmt.Sprintf("  secret = %q\n", secret))
	}
	push("Add the network", "", head+region("eu", old)+file("gone", "gone", "1", "")+file("key", "key", "1", ""))
	e.await(t, name, stateSynced)
	before := e.last(t, name).Id
	pipeline := "  pipeline:\n    stages:\n      - {id: plan, name: TERRAFORM_PLAN}\n      - {id: gate, name: WAIT_APPROVAL}\n      - {id: apply, name: TERRAFORM_APPLY, with: {confirmDestroyAbove: 0}}\n"
	commit := push("Change the network", pipeline, head+region("us", fresh)+file("key", "moved", "1", ""))
	waiting := e.awaitStage(t, name, before, "gate")

	tab := e.signIn(t, e.ownerKey(t), "/deployments/"+waiting.Id+"?tab=plan")
	tab.Permit("status of 422")
	tab.AwaitText("main", "0 to create, 1 to update, 1 to delete, 1 to replace")
	want := []string{
		"Delete sample_file.gone", `content | "1" | not set`, `id | "DIR/gone" | not set`, `path | "DIR/gone" | not set`,
		"Replace sample_file.key", `id | "DIR/key" | (known after apply)`, `path forces replacement | "DIR/key" | "DIR/moved"`,
		"Update sample_file.region", `content | "eu" | "us"`, "secret | (sensitive value) | (sensitive value)",
	}
	shown := browsertest.Eval[string](tab, shownPlan)
	if diff := gocmp.Diff(want, strings.Split(strings.ReplaceAll(shown, dir, "DIR"), "\n")); diff != "" {
		t.Errorf("the plan (-want +got):\n%s", diff)
	}
	checkView(t, tab, "deployment-plan-opentofu")
	tab.Show(1280, false)

	approve := func() {
		t.Helper()
		openDialog(tab, ".button", "Approve", "Approve net?")
		tab.AwaitText("dialog", "sample_file.gone is deleted")
		tab.AwaitText("dialog", "sample_file.key is deleted and created again")
		tab.Click("dialog button", "Approve")
		tab.AwaitText("dialog", "You have approved net")
		closeDialog(tab)
	}
	approve()
	failed := e.awaitLast(t, name, before, deploymentFailure)
	tab.Open("/applications/" + name)
	tab.AwaitReady()
	openDialog(tab, ".summary .button", "Sync", "Sync net?")
	tab.Click("dialog a", "Confirm deletions")
	tab.AwaitText("dialog h1", "Destroy or replace 2 resources of net?")
	tab.AwaitText("dialog .consequences", "sample_file.gone is deleted")
	tab.AwaitText("dialog .consequences", "sample_file.key is deleted and created again")
	fill(tab, "Type net to confirm", "another")
	tab.Click("dialog button", "Destroy and deploy")
	tab.AwaitText("dialog [role=alert]", "Nothing was done")
	fill(tab, "Type net to confirm", name)
	tab.Click("dialog button", "Destroy and deploy")
	tab.AwaitText("dialog #command", "Done")
	again := e.awaitStage(t, name, failed.Id, "gate")
	tab.Open("/deployments/" + again.Id + "?tab=plan")
	tab.AwaitReady()
	approve()
	d := e.awaitLast(t, name, failed.Id, deploymentSuccess)
	if d.Id != again.Id || d.Trigger.Commit.Hash != commit {
		t.Errorf("the deployment %s of %s has succeeded, want %s of %s", d.Id, d.Trigger.Commit.Hash, again.Id, commit)
	}
	for _, s := range d.Stages {
		if s.Id == "apply" && s.Status != modelv1.StageStatus_STAGE_SUCCESS {
			t.Errorf("the apply is %v", s)
		}
	}
	tab.Open("/applications/" + name + "?tab=objects")
	tab.AwaitText("main", "region")
	for _, value := range []string{old, fresh} {
		if html := browsertest.Eval[string](tab, "document.documentElement.outerHTML"); strings.Contains(shown+html, value) {
			t.Errorf("the page has the sensitive value %q", value)
		}
	}
}
