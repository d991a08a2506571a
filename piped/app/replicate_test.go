package app

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestFromSQLiteToReplicas: the commands of docs/operations.md make three replicas that share the work of
// an agent on SQLite. They know what it has deployed, take its API keys, and go on.
func TestFromSQLiteToReplicas(t *testing.T) {
	t.Parallel()
	cluster, repo, web, dir := clustertest.Shared(t), newRepo(t), appID("web"), t.TempDir()
	ns := cluster.Namespace(t)
	o := agenttest.Options{Binary: buildAgent(t), ID: "moved", Dir: t.TempDir(), Remote: repo.Dir, Kubeconfig: cluster.Kubeconfig(), Interval: 200 * time.Millisecond}
	old := startProcess(t, o)
	c := &client{t: t, ctx: t.Context(), api: old.API, control: old.Control}
	commit := repo.Push(t, "first", webApp(ns, "v1", ""))
	before := c.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	if err := old.Stop(); err != nil {
		t.Fatal(err)
	}

	o.DSN, o.StoreKey, o.Share = pgtest.Start(t).NewDSN(t), filepath.Join(dir, "shared.key"), true
	text, err := os.ReadFile(old.Config)
	if err != nil {
		t.Fatal(err)
	}
	data, replicated := filepath.Join(o.Dir, "piped"), filepath.Join(dir, "replicated.yaml")
	replaceFile(t, replicated, strings.ReplaceAll(string(text), data, filepath.Join(dir, "piped"))+
		fmt.Sprintf("  store: {dsn: %q, keyFile: %q, replicas: share}\n", o.DSN, o.StoreKey))
	if err := os.Symlink(o.Binary, filepath.Join(dir, "piped-program")); err != nil {
		t.Fatal(err)
	}
	commands := strings.NewReplacer("piped backup", "./piped-program backup", "piped restore", "./piped-program restore",
		"replicated.yaml", replicated, "piped.yaml", old.Config, "DATA_DIR", data, "STORE_KEY", o.StoreKey).Replace(commandsOf(t, "### From SQLite to replicas"))
	shell := exec.CommandContext(t.Context(), "sh", "-e", "-c", commands)
	shell.Dir = dir
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%s\n%v: %s", commands, err, out)
	}

	f := &sharingFleet{replicas: &replicas{t: t}, db: storetest.Raw(t, o.DSN)}
	for range 3 {
		a, err := agenttest.StartReplica(old, o, t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := a.Close(); err != nil {
				t.Errorf("a replica: %v", err)
			}
		})
		f.answers(a)
		c.api, c.control = a.API, a.Control
	}
	f.awaitShares(3)
	if d := c.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS); d.GetId() != before.GetId() {
		t.Errorf("commit %s was deployed by %s before, and is by %s", commit, before.GetId(), d.GetId())
	}
	c.mustEnd(web, repo.Push(t, "second", webApp(ns, "v2", "")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}

// commandsOf returns the first commands below a heading of docs/operations.md.
func commandsOf(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), heading+"\n")
	_, block, begun := strings.Cut(section, "```sh\n")
	commands, _, ended := strings.Cut(block, "```")
	if !found || !begun || !ended {
		t.Fatalf("docs/operations.md has no commands below %q", heading)
	}
	return commands
}
