package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestOnlySignedCommitsAreDeployed: an agent that requires signed commits deploys only
// those, reports why it refuses the others, and deploys a head commit once the key that
// verifies it is added.
func TestOnlySignedCommitsAreDeployed(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo, web := newRepo(t), appID("web")
	ann, bob := gittest.NewSSHSigner(t, "ann"), gittest.NewOpenPGPSigner(t, "bob", time.Now().Add(-time.Hour), 0, time.Now)
	annKeys, bobKeys := gittest.KeyFile(t, ann), filepath.Join(t.TempDir(), "bob.asc")
	s := spec{
		dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig()},
		more: fmt.Sprintf("  tenancy: [{name: signed, paths: [web], verifyCommits: {ssh: [%q]}}]\n", annKeys),
	}
	agent := runReloading(t, s, 10*time.Millisecond)
	repo.Sign = ann.Sign
	first := agent.mustEnd(web, repo.Push(t, "add web", webApp(ns, "v1", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, agent.logs(first.GetId()), "is signed by ann (SSH key SHA256:")

	repo.Sign = bob.Sign
	second := repo.Push(t, "v2", webApp(ns, "v2", ""))
	agent.awaitLog("the head does not count for an application")
	mustContain(t, agent.application(web).GetNotice(), "The head is not deployed", `tenancy "signed" does not allow commit `+second[:7], "is not one of those given")
	refused := agent.sync(web)
	if refused.GetStatus() != modelv1.CommandStatus_COMMAND_FAILED {
		t.Errorf("a sync by hand is %s", refused.GetStatus())
	}
	mustContain(t, refused.GetMetadata()[deploy.MetaReason], `tenancy "signed"`)

	s.more = fmt.Sprintf("  tenancy: [{name: signed, paths: [web], verifyCommits: {ssh: [%q], openPGP: [%q]}}]\n", annKeys, bobKeys)
	agent.write(s, "the changed configuration is rejected", `tenancy \"signed\": read the OpenPGP keys in`)
	replaceFile(t, bobKeys, bob.Public)
	agent.awaitLog(inEffect, "changed=tenancy", "the head counts again")
	d := agent.mustEnd(web, second, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, agent.logs(d.GetId()), "is signed by bob <bob@example.com> (OpenPGP key ")
	if notice := agent.application(web).GetNotice(); notice != "" {
		t.Errorf("the notice stays: %s", notice)
	}
}

// TestTenancyFollowsTheConfiguration: rules that are added while the agent runs refuse
// the next deployment, and the refusal names the rule.
func TestTenancyFollowsTheConfiguration(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo, web := newRepo(t), appID("web")
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": repo.Dir}, providers: map[string]string{"local": cluster.Kubeconfig(), "other": cluster.Kubeconfig()}}
	agent := runReloading(t, s, 10*time.Millisecond)
	files := webApp(ns, "v1", "")
	files["web/app.pipecd.yaml"] += "  platformProvider: local\n"
	agent.mustEnd(web, repo.Push(t, "add web", files), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)

	for rule, want := range map[string]string{
		"deniedKinds: [ConfigMap]": `tenancy "team" does not allow kind ConfigMap: ConfigMap ` + ns + "/web (web/app.yaml:1)",
		"namespaces: [elsewhere]":  `tenancy "team" does not allow namespace "` + ns + `"`,
		"providers: [other]":       `Cannot be planned: tenancy "team" does not allow the platform provider "local" (allowed: other)`,
	} {
		s.more = "  tenancy: [{name: team, repositories: [apps], " + rule + "}]\n"
		agent.write(s, inEffect, "changed=tenancy")
		files["web/more.yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %q}\n", "m"+fmt.Sprint(len(rule)))
		d := agent.mustEnd(web, repo.Push(t, rule, files), modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
		mustContain(t, d.GetStatusReason(), want)
	}
}

func TestTenancyOfUnreadableKeysEndsTheStart(t *testing.T) {
	t.Parallel()
	_, err := planTenancy(config.Tenancy{{Name: "signed", VerifyCommits: &config.VerifyCommits{SSH: []string{filepath.Join(t.TempDir(), "none")}}}})
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), `tenancy "signed": read the SSH keys in`) {
		t.Errorf("got %v", err)
	}
}

// TestVerdictsAreRemembered: each commit is read and verified once per rule, and only for
// applications that have a rule. A failed read is repeated.
func TestVerdictsAreRemembered(t *testing.T) {
	t.Parallel()
	ann := gittest.NewSSHSigner(t, "ann")
	object := "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\ncommitter A <a@x> 1000000000 +0000\n\nm\n"
	armored, err := ann.Sign([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	signed := strings.Replace(object, "\n\n", "\ngpgsig "+strings.ReplaceAll(strings.TrimSpace(armored), "\n", "\n ")+"\n\n", 1)
	objects, reads := map[string]string{"good": signed, "bad": object}, map[string]int{}
	tenants := newTenants(func(repoID, commit string) ([]byte, error) {
		reads[repoID+" "+commit]++
		if text, ok := objects[commit]; ok {
			return []byte(text), nil
		}
		return nil, os.ErrNotExist
	})
	ctx, at := t.Context(), func(dir string) deploy.GitPath {
		return deploy.GitPath{RepoID: "apps", Dir: dir, ConfigFile: "app.pipecd.yaml"}
	}
	if signer, err := tenants.Signer(ctx, at("web"), "good"); signer != "" || err != nil {
		t.Errorf("before there are rules: %q, %v", signer, err)
	}
	rules := config.Tenancy{{Name: "signed", VerifyCommits: &config.VerifyCommits{SSH: []string{gittest.KeyFile(t, ann)}}}}
	plan, err := planTenancy(rules)
	if err != nil {
		t.Fatal(err)
	}
	tenants.use(plan)
	for _, dir := range []string{"a", "b", "c"} {
		if signer, err := tenants.Signer(ctx, at(dir), "good"); !strings.HasPrefix(signer, "ann (SSH") || err != nil {
			t.Errorf("good: %q, %v", signer, err)
		}
		if _, err := tenants.Signer(ctx, at(dir), "bad"); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("bad: %v", err)
		}
		if _, err := tenants.Signer(ctx, at(dir), "missing"); err == nil || deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("missing: %v", err)
		}
	}
	if reads["apps good"] != 1 || reads["apps bad"] != 1 || reads["apps missing"] != 3 {
		t.Errorf("reads: %v", reads)
	}
	stopped, stop := context.WithCancel(ctx)
	stop()
	if _, err := tenants.Signer(stopped, at("a"), "good"); err == nil {
		t.Error("after a stop there was an answer")
	}
	again, err := planTenancy(rules)
	if err != nil || !again.same(plan) || again.same(&tenancy{}) {
		t.Errorf("equal rules compare as different, or different ones as equal: %v", err)
	}
}
