package app

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/git/gittest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// browse returns a browser that has signed in with the owner key.
func (i *infra) browse() browser {
	i.t.Helper()
	key, err := os.ReadFile(filepath.Join(i.s.dataDir, ownerKeyFile))
	if err != nil {
		i.t.Fatal(err)
	}
	b := newBrowser(i.t, i.c.web)
	if at, _ := b.post("/sign-in/key", url.Values{"key": {strings.TrimSpace(string(key))}, "next": {"/"}}); at != "/" {
		i.t.Fatalf("after the sign-in, the browser is at %s", at)
	}
	return b
}

// seen opens a path and returns the page as text, with its markup.
func (b browser) seen(path string) string {
	b.t.Helper()
	_, body := b.get(path)
	return html.UnescapeString(strings.Join(strings.Fields(strings.ReplaceAll(body, "<wbr>", "")), " "))
}

// attribute returns an attribute of a plan, with JSON strings for its values.
func attribute(path, before, after string) *controlv1.PlannedAttribute {
	quoted := func(text string) string {
		if text == "" {
			return ""
		}
		return fmt.Sprintf("%q", text)
	}
	return &controlv1.PlannedAttribute{Path: path, Before: quoted(before), After: quoted(after)}
}

// TestOpenTofuPlanOnThePage: the API and the page show the plan of a deployment that awaits an
// approval by resource and attribute, with its digest, what it destroys, and the live resources by
// module. No sensitive value is in any of them.
func TestOpenTofuPlanOnThePage(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	module := "module \"store\" {\n  source = \"./store\"\n}\n"
	secret := func(text string) string { return fmt.Sprintf("  secret = %q", text) }
	first := i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml":    i.app(""),
		"net/main.tf":            i.code(i.resource("a", "one", secret("old-secret-value")) + i.resource("b", "one", "") + i.resource("gone", "one", "") + module),
		"net/store/resources.tf": "terraform {\n  required_providers {\n    sample = { source = \"example.com/piped/sample\" }\n  }\n}\n" + i.resource("inner", "one", ""),
	})
	i.start()
	c, app := i.c, appID("net")
	c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	c.wantLive(app, modelv1.Health_HEALTH_HEALTHY, "sample_file a HEALTHY declared", "sample_file b HEALTHY declared", "sample_file gone HEALTHY declared", "module store HEALTHY declared 1")

	pipeline := "  pipeline:\n    stages: [{name: TERRAFORM_PLAN, id: plan}, {name: WAIT_APPROVAL, id: ok, with: {approvers: []}}, {name: TERRAFORM_APPLY, id: apply}]\n"
	moved := strings.Replace(i.resource("b", "one", ""), i.file("b"), i.file("moved"), 1)
	hostile := i.resource("evil", `<script>alert(1)</script>`, "")
	second := i.repo.Push(t, "change", map[string]string{
		"net/app.pipecd.yaml": i.app(pipeline),
		"net/main.tf":         i.code(i.resource("a", "two", secret("new-secret-value")) + moved + hostile + module + "output \"hidden\" {\n  value = sample_file.a.secret\n  sensitive = true\n}\n"),
	})
	d := c.awaitStage(app, second, "ok")
	resp, err := c.control.GetPlan(c.ctx, &controlv1.GetPlanRequest{DeploymentId: d.GetId(), Diff: true})
	if err != nil {
		t.Fatal(err)
	}
	plan := resp.GetPlan()
	digest := stageOf(t, d, "plan").GetMetadata()["planDigest"]
	if len(digest) != 64 || plan.GetChangesDigest() != digest || plan.GetChangesSummary() != "1 to create, 1 to update, 1 to delete, 1 to replace, 1 output to change" || plan.GetChangesNote() != "" {
		t.Errorf("the plan is %q, %q, %q; the stage has %q", plan.GetChangesSummary(), plan.GetChangesDigest(), plan.GetChangesNote(), digest)
	}
	got := map[string]*controlv1.PlannedChange{}
	for _, change := range plan.GetChanges() {
		got[change.GetAddress()] = change
	}
	masked := &controlv1.PlannedAttribute{Path: "secret", Before: "(sensitive value)", After: "(sensitive value)", Sensitive: true}
	path := attribute("path", i.file("b"), i.file("moved"))
	path.ForcesReplacement = true
	for address, want := range map[string]struct {
		action     controlv1.PlannedAction
		attributes []*controlv1.PlannedAttribute
	}{
		"sample_file.a":    {controlv1.PlannedAction_PLANNED_ACTION_UPDATE, []*controlv1.PlannedAttribute{attribute("content", "one", "two"), masked}},
		"sample_file.b":    {controlv1.PlannedAction_PLANNED_ACTION_REPLACE, []*controlv1.PlannedAttribute{{Path: "id", Before: fmt.Sprintf("%q", i.file("b")), After: "(known after apply)", Unknown: true}, path}},
		"sample_file.gone": {controlv1.PlannedAction_PLANNED_ACTION_DELETE, []*controlv1.PlannedAttribute{attribute("content", "one", ""), attribute("id", i.file("gone"), ""), attribute("path", i.file("gone"), "")}},
		"output.hidden":    {controlv1.PlannedAction_PLANNED_ACTION_CREATE, []*controlv1.PlannedAttribute{{After: "(sensitive value)", Sensitive: true}}},
	} {
		if change := got[address]; change.GetAction() != want.action {
			t.Errorf("%s: %v", address, change)
		} else if diff := cmp.Diff(want.attributes, change.GetAttributes(), protocmp.Transform()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}

	b := i.browse()
	page := b.seen("/deployments/" + d.GetId() + "?tab=plan")
	mustContain(t, page, digest, "An approval permits plan "+digest[:12], "1 to create, 1 to update, 1 to delete, 1 to replace", "sample_file.b", "forces replacement", i.file("moved"), "(sensitive value)", "output.hidden")
	_, raw := b.get("/deployments/" + d.GetId() + "?tab=plan")
	mustContain(t, raw, "&lt;script&gt;alert(1)&lt;/script&gt;")
	if strings.Contains(raw, "<script>alert") {
		t.Error("the page has markup of the plan")
	}
	dialog := b.seen("/actions/approve?deployment=" + d.GetId() + "&stage=ok")
	mustContain(t, dialog, "It permits plan "+digest[:12], "sample_file.b is deleted and created again", "sample_file.gone is deleted")
	log := b.seen("/deployments/" + d.GetId() + "?stage=plan")
	mustContain(t, log, "sample_file.b must be replaced", "forces replacement", "(sensitive value)", digest[:12])
	c.approve(d)
	c.mustEnd(app, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	after := b.seen("/deployments/" + d.GetId() + "?tab=plan")
	mustContain(t, after, digest, "sample_file.gone", "forces replacement")
	live := b.seen("/applications/net~" + app + "?tab=objects")
	mustContain(t, live, `<span class="kind">module</span>`, `<span class="object-name">inner</span>`, `<span class="kind">output</span>`, `<span class="object-name">hidden</span>`, "(sensitive value)")
	for name, text := range map[string]string{"plan": page, "dialog": dialog, "log": log, "plan after the apply": after, "live state": live, "API": resp.String()} {
		for _, value := range []string{"old-secret-value", "new-secret-value"} {
			if strings.Contains(text, value) {
				t.Errorf("the %s has a sensitive value", name)
			}
		}
	}
	if strings.Contains(live, ">Open<") {
		t.Error("the page offers to open a resource, which the agent cannot read")
	}
}

// TestOpenTofuPlanPreview: where the platform provider permits it, a plan preview is a plan of the
// merged files, by resource and attribute, as text, and on the page.
func TestOpenTofuPlanPreview(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.moreConfig = ", previewPlans: true"
	files := func(a, b string) map[string]string {
		return map[string]string{"net/a.tf": i.code(i.resource("a", a, "  secret = \"top-secret-value\"")), "net/b.tf": i.resource("b", b, "")}
	}
	first := i.repo.Push(t, "add", merged(files("one", "one"), map[string]string{"net/app.pipecd.yaml": i.app("")}))
	i.start()
	c, app := i.c, appID("net")
	c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	proposed := i.repo.PushOn(t, "pr", "change b", map[string]string{"net/b.tf": i.resource("b", "two", "")})
	next := i.repo.Push(t, "change a", map[string]string{"net/a.tf": files("three", "")["net/a.tf"]})
	c.mustEnd(app, next, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	commands := c.requestPreview(i.repo.Dir, gittest.Branch, proposed)
	result := c.previewed(commands[0])
	if len(result.GetResults()) != 1 {
		t.Fatalf("the preview is %v", result)
	}
	r := result.GetResults()[0]
	if r.GetNoChange() || !strings.HasPrefix(string(r.GetPlanSummary()), "0 to create, 1 to update, 0 to delete, 0 to replace (") {
		t.Errorf("the summary is %q, %v", r.GetPlanSummary(), r)
	}
	if got, want := string(r.GetPlanDetails()), "# sample_file.b will be updated\n~ content = \"one\" -> \"two\"\n"; got != want {
		t.Errorf("the details are\n%s\nwant, of the merge and not of the proposed commit alone,\n%s", got, want)
	}
	resp, err := c.control.GetPlanPreview(c.ctx, &controlv1.GetPlanPreviewRequest{CommandId: commands[0]})
	if err != nil {
		t.Fatal(err)
	}
	changes := resp.GetApplications()[0].GetChanges()
	if len(changes) != 1 || changes[0].GetAddress() != "sample_file.b" || changes[0].GetAction() != controlv1.PlannedAction_PLANNED_ACTION_UPDATE {
		t.Fatalf("the changes are %v", changes)
	}
	if diff := cmp.Diff([]*controlv1.PlannedAttribute{attribute("content", "one", "two")}, changes[0].GetAttributes(), protocmp.Transform()); diff != "" {
		t.Errorf("the attributes (-want +got):\n%s", diff)
	}
	mustContain(t, i.browse().seen("/plan-previews/"+commands[0]), "sample_file.b", `"two"`, "1 to update")

	broken := i.repo.PushOn(t, "pr", "break it", map[string]string{"net/b.tf": i.resource("b", "two", "  nonsense = 1")})
	r = c.preview(i.repo.Dir, broken).GetResults()[0]
	mustContain(t, string(r.GetPlanDetails()), "nonsense = 1")
	warnings := c.previewWarnings(i.repo.Dir, broken)
	mustContain(t, warnings, "no plan could be made", "nonsense")
	resources, err := c.control.GetPlan(c.ctx, &controlv1.GetPlanRequest{ApplicationId: app, Commit: first, Diff: true})
	if err != nil {
		t.Fatal(err)
	}
	if p := resources.GetPlan(); p.GetChangesSummary() != "0 to create, 1 to update, 0 to delete, 0 to replace" || len(p.GetChanges()) != 1 || p.GetChanges()[0].GetAddress() != "sample_file.a" {
		t.Errorf("a sync back would do %q: %v", p.GetChangesSummary(), p.GetChanges())
	}
	i.holds("a", "three")
	i.holds("b", "one")
	i.stop() // a comparison may run, which has files
	mustBeNowhere(t, i.s.dataDir, "top-secret-value")
}

// previewWarnings returns the warnings of a plan preview of one application.
func (c *client) previewWarnings(remote, commit string) string {
	c.t.Helper()
	commands := c.requestPreview(remote, gittest.Branch, commit)
	c.previewed(commands[0])
	resp, err := c.control.GetPlanPreview(c.ctx, &controlv1.GetPlanPreviewRequest{CommandId: commands[0]})
	if err != nil || len(resp.GetApplications()) != 1 {
		c.t.Fatalf("the preview is %v, %v", resp, err)
	}
	return strings.Join(resp.GetApplications()[0].GetWarnings(), "\n")
}

// TestOpenTofuPreviewOfFiles: without previewPlans no program runs for a preview, which says so.
func TestOpenTofuPreviewOfFiles(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	state := newStateServer(t)
	var asked atomic.Int32
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/proposed" {
			asked.Add(1)
		}
		state.ServeHTTP(w, r)
	}))
	t.Cleanup(counting.Close)
	code := func(path string) string {
		local := fmt.Sprintf("  backend \"local\" { path = %q }\n", i.file("state.tfstate"))
		return strings.Replace(i.code(i.resource("a", "one", "")), local, strings.ReplaceAll(state.backend(), state.URL, counting.URL+path), 1)
	}
	first := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": code("/state")})
	i.start()
	c, app := i.c, appID("net")
	c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	proposed := i.repo.PushOn(t, "pr", "change the backend and add b", map[string]string{"net/main.tf": code("/proposed"), "net/b.tf": i.resource("b", "one", "")})
	mustContain(t, c.previewWarnings(i.repo.Dir, proposed), "no plan was made, since the platform provider does not have previewPlans")
	r := c.preview(i.repo.Dir, proposed).GetResults()[0]
	mustContain(t, string(r.GetPlanSummary()), "1 added manifests, 1 changed manifests")
	mustContain(t, string(r.GetPlanDetails()), "b.tf", "/proposed")
	if n := asked.Load(); n != 0 {
		t.Errorf("for the previews, the state of the proposed change was read %d times", n)
	}
	i.repo.Push(t, "accept it", map[string]string{"net/main.tf": code("/proposed"), "net/b.tf": i.resource("b", "one", "")})
	c.mustEnd(app, i.repo.Head(), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if asked.Load() == 0 {
		t.Error("a deployment does not read the state, either")
	}
}

// TestOpenTofuConfirmDestroyOnThePage: the page shows exactly what a plan beyond the limit destroys,
// and permits it to a user who types the name.
func TestOpenTofuConfirmDestroyOnThePage(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml": i.app("  quickSync: {confirmDestroyAbove: 0}\n"),
		"net/main.tf":         i.code(i.resource("a", "one", "") + i.resource("b", "one", "") + i.resource("c", "one", "")),
	})
	i.start()
	app := appID("net")
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	b := i.browse()
	if page := b.seen("/actions/sync?application=" + app); strings.Contains(page, "confirm-prune") {
		t.Error("a sync that destroys nothing is said to need a confirmation")
	}
	moved := strings.Replace(i.resource("b", "one", ""), i.file("b"), i.file("moved"), 1)
	commit := i.repo.Push(t, "remove c and move b", map[string]string{"net/main.tf": i.code(i.resource("a", "two", "") + moved)})
	d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustContain(t, b.seen("/actions/sync?application="+app), "would have destroyed or replaced 2 resources", "/actions/confirm-prune?application="+app)
	dialog := b.seen("/actions/confirm-prune?application=" + app)
	mustContain(t, dialog, "Destroy or replace 2 resources of net?", "<li>sample_file.b is deleted and created again</li>", "<li>sample_file.c is deleted</li>", `name="refused" value="`+d.GetId()+`"`)
	form := url.Values{"application": {app}, "refused": {d.GetId()}, "confirm": {"nett"}}
	if _, body := b.post("/actions/confirm-prune", form); !strings.Contains(body, "Nothing was done") {
		t.Errorf("with another name: %s", body)
	}
	i.holds("c", "one")
	form.Set("confirm", "net")
	b.post("/actions/confirm-prune", form)
	i.c.await(app, "is deployed again", func(next *modelv1.Deployment) bool {
		return next.GetId() != d.GetId() && next.GetTrigger().GetCommit().GetHash() == commit && next.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	i.holds("a", "two")
	i.holds("moved", "one")
	if _, err := os.Stat(i.file("c")); err == nil {
		t.Error("c was not destroyed")
	}
}

// exitCode returns how OpenTofu itself ends a plan of a configuration with -detailed-exitcode: 0 if
// there is nothing to apply, 2 if there is.
func (i *infra) exitCode(code string) int {
	i.t.Helper()
	dir := i.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(code), 0o600); err != nil {
		i.t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-input=false"}, {"plan", "-input=false", "-detailed-exitcode", "-lock=false"}} {
		cmd := exec.CommandContext(i.t.Context(), i.program, args...)
		cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "TF_CLI_CONFIG_FILE=" + i.rc}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 2 {
			return 2
		}
		if err != nil {
			i.t.Fatalf("tofu %v: %v\n%s", args, err, out)
		}
	}
	return 0
}

// TestOpenTofuOnlyTheStateChanges: a plan that only moves, imports or forgets resources changes the
// state. It is shown and applied, as OpenTofu itself says with -detailed-exitcode.
func TestOpenTofuOnlyTheStateChanges(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	pipeline := "  pipeline:\n    stages: [{name: TERRAFORM_PLAN, id: plan, with: {exitOnNoChanges: true}}, {name: TERRAFORM_APPLY, id: apply}]\n"
	data := func(name string) string { return fmt.Sprintf("resource \"terraform_data\" %q {}\n", name) }
	before := i.code(data("old") + data("gone"))
	first := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(pipeline), "net/main.tf": before})
	i.start()
	app := appID("net")
	i.c.mustEnd(app, first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	b := i.browse()
	for _, step := range []struct {
		name, code, summary, address, origin string
		action                               controlv1.PlannedAction
		state                                []string
	}{
		{"remark", before + "# a remark\n", "", "", "", 0, []string{"gone", "old"}},
		{"move", i.code(data("new") + data("gone") + "moved {\n  from = terraform_data.old\n  to = terraform_data.new\n}\n"),
			"1 to move", "terraform_data.new", "moved from terraform_data.old", controlv1.PlannedAction_PLANNED_ACTION_MOVE, []string{"gone", "new"}},
		{"forget", i.code(data("new") + "removed {\n  from = terraform_data.gone\n  lifecycle {\n    destroy = false\n  }\n}\n"),
			"1 to forget", "terraform_data.gone", "", controlv1.PlannedAction_PLANNED_ACTION_FORGET, []string{"new"}},
		{"import", i.code(data("new") + data("gone") + "import {\n  to = terraform_data.gone\n  id = \"a-known-id\"\n}\n"),
			"1 to import", "terraform_data.gone", `imported as "a-known-id"`, controlv1.PlannedAction_PLANNED_ACTION_IMPORT, []string{"gone", "new"}},
	} {
		code := i.exitCode(step.code)
		if (code == 2) != (step.summary != "") {
			t.Fatalf("%s: OpenTofu itself ends with %d", step.name, code)
		}
		commit := i.repo.Push(t, step.name, map[string]string{"net/main.tf": step.code})
		d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
		if got := i.inState(); !slices.Equal(got, step.state) {
			t.Errorf("%s: the state has %v, want %v", step.name, got, step.state)
		}
		if step.summary == "" {
			if got := stageOf(t, d, "apply").GetStatus(); got != modelv1.StageStatus_STAGE_NOT_STARTED_YET {
				t.Errorf("%s: the stage after the plan is %v", step.name, got)
			}
			continue
		}
		if got, want := stageOf(t, d, "plan").GetMetadata()["plan"], "0 to create, 0 to update, 0 to delete, 0 to replace, "+step.summary; got != want {
			t.Errorf("%s: the plan is %q, want %q", step.name, got, want)
		}
		resp, err := i.c.control.GetPlan(i.c.ctx, &controlv1.GetPlanRequest{DeploymentId: d.GetId(), Diff: true})
		if err != nil {
			t.Fatal(err)
		}
		changes := resp.GetPlan().GetChanges()
		if len(changes) != 1 || changes[0].GetAction() != step.action || changes[0].GetAddress() != step.address || changes[0].GetOrigin() != step.origin {
			t.Errorf("%s: the changes are %v", step.name, changes)
		}
		mustContain(t, b.seen("/deployments/"+d.GetId()+"?tab=plan"), step.summary, step.address, step.origin)
		mustContain(t, i.c.logs(d.GetId()), "The state has "+fmt.Sprint(len(step.state))+" resources")
		if code := i.exitCode(step.code); code != 0 {
			t.Errorf("%s: after the apply OpenTofu itself ends with %d", step.name, code)
		}
	}
}
