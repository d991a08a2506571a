package app

import (
	"encoding/base64"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// requestPreview asks for a plan preview of a commit on branch pr and returns the
// commands.
func (c *client) requestPreview(remote, base, commit string) []string {
	c.t.Helper()
	resp, err := c.api.RequestPlanPreview(c.ctx, &apiservice.RequestPlanPreviewRequest{
		RepoRemoteUrl: remote, HeadBranch: "pr", HeadCommit: commit, BaseBranch: base, Timeout: int64(patience.Seconds()),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.GetCommands()
}

// preview returns the result of a plan preview of a commit on branch pr.
func (c *client) preview(remote, commit string) *modelv1.PlanPreviewCommandResult {
	c.t.Helper()
	commands := c.requestPreview(remote, gittest.Branch, commit)
	if len(commands) != 1 {
		c.t.Fatalf("commands: %q", commands)
	}
	return c.previewed(commands[0])
}

// previewed waits for a plan preview as pipectl does: NotFound means to poll again.
func (c *client) previewed(command string) *modelv1.PlanPreviewCommandResult {
	c.t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var resp *apiservice.GetPlanPreviewResultsResponse
		resp, err = c.api.GetPlanPreviewResults(c.ctx, &apiservice.GetPlanPreviewResultsRequest{Commands: []string{command}, CommandHandleTimeout: int64(patience.Seconds())})
		if err == nil && len(resp.GetResults()) == 1 {
			return resp.GetResults()[0]
		}
		if status.Code(err) != codes.NotFound || !strings.HasPrefix(status.Convert(err).Message(), "Waiting for result of command "+command+" from piped ") {
			break
		}
	}
	c.t.Fatalf("plan preview %s: %v", command, err)
	return nil
}

// simple returns the files of an application with only a ConfigMap.
func simple(dir, namespace, greeting string) map[string]string {
	return map[string]string{
		dir + "/app.pipecd.yaml": fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  labels: {env: test}\n  input: {namespace: %s}\n", dir, namespace),
		dir + "/map.yaml":        fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {greeting: %s}\n", dir, greeting),
	}
}

func merged(files ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, f := range files {
		maps.Copy(out, f)
	}
	return out
}

// TestPlanPreview previews pull requests of a repository that is served over HTTP:
// changed, added, removed and broken applications, conflicts, and unwatched branches.
func TestPlanPreview(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	cluster := clustertest.Shared(t)
	ns, repo, own := cluster.Namespace(t), newRepo(t), ageIdentity(t)
	server := repo.HTTP(t, gittest.HTTPOptions{})
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: server.URL, kubeconfig: cluster.Kubeconfig(), more: fmt.Sprintf(
		"  secretManagement: {type: AGE, config: {identityData: %s, recipient: %s}}\n  planPreview: {workerNum: 2}\n",
		base64.StdEncoding.EncodeToString([]byte(own.String())), own.Recipient())})
	secret := map[string]string{}
	for name, content := range encryptedApp(t, ns, own, password) {
		secret[strings.Replace(name, "web/", "secret/", 1)] = strings.ReplaceAll(content, "name: web", "name: secret")
	}
	secret["secret/web.yaml"] += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: leak}\n"
	begin := repo.Push(t, "begin", merged(webApp(ns, "v1", ""), simple("gone", ns, "bye"), simple("broken", ns, "hi"), simple("quiet", ns, "hi"), secret))
	for _, dir := range []string{"web", "gone", "broken", "quiet", "secret"} {
		agent.mustEnd(appID(dir), begin, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	}

	files := merged(webApp(ns, "v2", ""), simple("new", ns, "hello"))
	files["broken/app.pipecd.yaml"] = "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  timeout: nonsense\n"
	// The author of a pull request can make the agent decrypt the secret, and might try
	// to read it in the preview.
	files["secret/web.yaml"] = `apiVersion: v1
kind: Secret
metadata: {name: secret, annotations: {copy: "{{ .encryptedSecrets.password }}"}}
stringData: {password: "{{ .encryptedSecrets.password }}", more: "plain-in-git"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: leak}
data:
  plain: "{{ .encryptedSecrets.password }}"
  twice: "{{ .encryptedSecrets.password | b64enc | b64enc }}"
  reversed: "{{ range .encryptedSecrets.password | splitList "" }}{{ . }}-{{ end }}"
`
	commit, err := repo.CommitOn("pr", "a pull request", func(r *gittest.Repo) error {
		if err := r.Write(files); err != nil {
			return err
		}
		return r.Remove("gone")
	})
	if err != nil {
		t.Fatal(err)
	}
	main := repo.Push(t, "meanwhile", map[string]string{"quiet/map.yaml": simple("quiet", ns, "meanwhile")["quiet/map.yaml"]})
	agent.mustEnd(appID("quiet"), main, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	commands := agent.requestPreview(server.URL, gittest.Branch, commit)
	if len(commands) != 1 {
		t.Fatalf("commands: %q", commands)
	}
	result := agent.previewed(commands[0])
	if result.GetError() != "" || result.GetPipedId() != testID(t.Name()) || result.GetPipedName() == "" {
		t.Fatalf("the preview: %v", result)
	}
	byDir := map[string]*modelv1.ApplicationPlanPreviewResult{}
	for _, a := range result.GetResults() {
		byDir[a.GetApplicationDirectory()] = a
		if a.GetApplicationId() != appID(a.GetApplicationDirectory()) || a.GetHeadCommit() != commit || a.GetHeadBranch() != "pr" || a.GetCreatedAt() == 0 {
			t.Errorf("incomplete: %v", a)
		}
	}
	if len(byDir) != 5 || byDir["quiet"] != nil {
		t.Fatalf("applications: %v", result)
	}
	web := byDir["web"]
	if web.GetSyncStrategy() != modelv1.SyncStrategy_QUICK_SYNC || web.GetNoChange() || web.GetError() != "" {
		t.Errorf("web: %v", web)
	}
	mustContain(t, string(web.GetPlanSummary()), "0 added manifests, 1 changed manifests, 0 deleted manifests", "Quick sync")
	mustContain(t, string(web.GetPlanDetails()), fmt.Sprintf(`# 1. name="web", kind="Deployment", namespace=%q`, ns), "-      - image: registry.example/web:v1\n", "+      - image: registry.example/web:v2\n")
	if fresh := byDir["new"]; fresh.GetApplicationName() != "new" || fresh.GetLabels()["env"] != "test" {
		t.Errorf("new: %v", fresh)
	}
	mustContain(t, string(byDir["new"].GetPlanSummary()), "1 added manifests", "first deployment")
	mustContain(t, string(byDir["new"].GetPlanDetails()), fmt.Sprintf(`+ 1. name="new", kind="ConfigMap", namespace=%q`, ns))
	mustContain(t, string(byDir["gone"].GetPlanSummary()), "removes the configuration", "what it has in the cluster stays")
	mustContain(t, byDir["broken"].GetError(), "broken/app.pipecd.yaml:4", "nonsense")
	mustContain(t, string(byDir["secret"].GetPlanDetails()), "+  more: (secret)\n", "+    copy: (secret)\n", "+  plain: redacted-")
	wantNoSecret(t, result.String()+string(byDir["secret"].GetPlanDetails()), password)

	agent.seesChanges(commands[0], ns, password)

	if commands := agent.requestPreview(server.URL+"/", gittest.Branch, commit); len(commands) != 0 {
		t.Errorf("for a remote with another spelling: %q", commands)
	}
	if commands := agent.requestPreview(server.URL, "develop", commit); len(commands) != 0 {
		t.Errorf("for an unwatched base branch: %q", commands)
	}
	mustContain(t, agent.preview(server.URL, main).GetError(), "is not on branch pr")

	clash := repo.PushOn(t, "pr", "a conflict", map[string]string{"quiet/map.yaml": simple("quiet", ns, "of the pull request")["quiet/map.yaml"]})
	conflict := agent.preview(server.URL, clash)
	mustContain(t, conflict.GetError(), "there are conflicts: quiet/map.yaml has lines that both sides changed", "resolve them and push")
	if len(conflict.GetResults()) != 0 {
		t.Errorf("a conflict has results: %v", conflict)
	}
	if again := agent.preview(server.URL, commit); len(again.GetResults()) != 5 {
		t.Errorf("an earlier commit of the branch: %v", again)
	}
	agent.refusesOtherPreviews()
}

// seesChanges checks the changes of the plan preview by object: created ones whole, changed ones
// as a diff, and nothing of a secret.
func (c *client) seesChanges(command, namespace, password string) {
	c.t.Helper()
	resp, err := c.control.GetPlanPreview(c.ctx, &controlv1.GetPlanPreviewRequest{CommandId: command})
	if err != nil {
		c.t.Fatal(err)
	}
	text := resp.String()
	byDir := map[string]*controlv1.PreviewedApplication{}
	for _, a := range resp.GetApplications() {
		byDir[a.GetDirectory()] = a
		for _, change := range a.GetChanges() {
			text += change.GetDiff()
		}
	}
	wantNoSecret(c.t, text, password)
	one := func(dir string) *controlv1.PlannedChange {
		if n := len(byDir[dir].GetChanges()); n != 1 {
			c.t.Fatalf("%s has %d changes: %v", dir, n, byDir[dir])
		}
		return byDir[dir].GetChanges()[0]
	}
	if o := one("web").GetObject(); one("web").GetAction() != controlv1.PlannedAction_PLANNED_ACTION_UPDATE || o.GetKind() != "Deployment" || o.GetNamespace() != namespace || !byDir["web"].GetExists() {
		c.t.Errorf("web: %v", byDir["web"])
	}
	mustContain(c.t, one("web").GetDiff(), "-      - image: registry.example/web:v1\n", "+      - image: registry.example/web:v2\n")
	if one("new").GetAction() != controlv1.PlannedAction_PLANNED_ACTION_CREATE || byDir["new"].GetExists() {
		c.t.Errorf("new: %v", byDir["new"])
	}
	mustContain(c.t, one("new").GetDiff(), "+  greeting: hello\n")
	mustContain(c.t, byDir["broken"].GetError(), "broken/app.pipecd.yaml:4")
}

// refusesOtherPreviews checks that requests for unknown plan previews are refused, and
// never reported as pending.
func (c *client) refusesOtherPreviews() {
	c.t.Helper()
	for name, id := range map[string]string{"another command": c.sync(appID("web")).GetId(), "no command": "nobody"} {
		_, err := c.api.GetPlanPreviewResults(c.ctx, &apiservice.GetPlanPreviewResultsRequest{Commands: []string{id}})
		if status.Code(err) != codes.FailedPrecondition {
			c.t.Errorf("%s: %v", name, err)
		}
	}
}

// wantNoSecret fails the test when a text contains a secret, in any encoding that a
// template can easily produce.
func wantNoSecret(t *testing.T, said, secret string) {
	t.Helper()
	once := base64.StdEncoding.EncodeToString([]byte(secret))
	letters := strings.Join(strings.Split(secret, ""), "-")
	for _, form := range []string{secret, once, base64.StdEncoding.EncodeToString([]byte(once)), letters} {
		if strings.Contains(said, form) {
			t.Errorf("the secret is shown as %q:\n%s", form, said)
		}
	}
}

// TestGetPlanReturnsDifferences: the differences of a sync and of a deployment are
// returned object by object and without secrets.
func TestGetPlanReturnsDifferences(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	cluster := clustertest.Shared(t)
	ns, repo, own := cluster.Namespace(t), newRepo(t), ageIdentity(t)
	agent := runAgent(t, settings{dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(), more: fmt.Sprintf(
		"  secretManagement: {type: AGE, config: {identityData: %s, recipient: %s}}\n", base64.StdEncoding.EncodeToString([]byte(own.String())), own.Recipient())})
	files := encryptedApp(t, ns, own, password)
	first := repo.Push(t, "begin", merged(files, map[string]string{"web/old.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: old}\n"}))
	agent.mustEnd(appID("web"), first, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	files["web/web.yaml"] += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: leak}\ndata: {x: \"{{ .encryptedSecrets.password | b64enc | b64enc }}\"}\n"
	if err := repo.Remove("web/old.yaml"); err != nil {
		t.Fatal(err)
	}
	d := agent.mustEnd(appID("web"), repo.Push(t, "more", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	for name, req := range map[string]*controlv1.GetPlanRequest{
		"a deployment": {DeploymentId: d.GetId(), Diff: true},
		"a sync back":  {ApplicationId: appID("web"), Commit: first, Diff: true},
	} {
		resp, err := agent.control.GetPlan(agent.ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]*controlv1.PlannedChange{}
		for _, change := range resp.GetPlan().GetChanges() {
			got[change.GetObject().GetName()] = change
		}
		leak, old := controlv1.PlannedAction_PLANNED_ACTION_CREATE, controlv1.PlannedAction_PLANNED_ACTION_LEAVE
		if name == "a sync back" {
			leak, old = old, leak
		}
		if len(got) != 2 || got["leak"].GetAction() != leak || got["old"].GetAction() != old {
			t.Errorf("%s: %v", name, resp.GetPlan().GetChanges())
		}
		mustContain(t, got["leak"].GetDiff(), fmt.Sprintf("--- ConfigMap %[1]s/leak\n+++ ConfigMap %[1]s/leak\n@@", ns), "name: leak\n")
		wantNoSecret(t, resp.String(), password)
	}
}

// TestPlanPreviewSurvivesAKill: a preview that is being built when the agent is
// killed is built after its next start.
func TestPlanPreviewSurvivesAKill(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns, repo := cluster.Namespace(t), newRepo(t)
	server := repo.HTTP(t, gittest.HTTPOptions{})
	p := startProcess(t, agenttest.Options{Remote: server.URL, Kubeconfig: cluster.Kubeconfig()})
	agent := dial(t, p.Address, filepath.Dir(p.KeyFile))
	agent.mustEnd(appID("web"), repo.Push(t, "begin", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	commit := repo.PushOn(t, "pr", "a pull request", webApp(ns, "v2", ""))

	packs := server.Packs()
	server.SetFault(gittest.StallPack(100)) // in the middle of fetching the branch
	commands := agent.requestPreview(server.URL, gittest.Branch, commit)
	for end := time.Now().Add(patience); server.Packs() == packs && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
	}
	if got, err := agent.api.GetCommand(agent.ctx, &apiservice.GetCommandRequest{CommandId: commands[0]}); err != nil ||
		got.GetCommand().GetStatus() != modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET || got.GetCommand().GetBuildPlanPreview().GetHeadCommit() != commit {
		t.Fatalf("%v, %v", got, err)
	}
	p.Kill()
	server.SetFault(nil)
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	result := agent.previewed(commands[0])
	if len(result.GetResults()) != 1 || result.GetError() != "" {
		t.Fatalf("after the restart: %v", result)
	}
	mustContain(t, string(result.GetResults()[0].GetPlanDetails()), "registry.example/web:v2")
	if leftovers, err := filepath.Glob(filepath.Join(filepath.Dir(p.KeyFile), "git", "*.merge-*")); err != nil || len(leftovers) != 0 {
		t.Errorf("left next to the mirror: %q, %v", leftovers, err)
	}
}
