package app

import (
	"net/http"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestSameRepository: a repository is watched anew only if its configuration has changed,
// however often it is read.
func TestSameRepository(t *testing.T) {
	t.Parallel()
	read := func(more, git string) repository {
		t.Helper()
		text := "apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec:\n  repositories: [{repoId: apps, remote: \"/apps.git\", " + more + "}]\n" + git
		cfg, _, err := Kinds().ParsePiped("/piped.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		r := newRepositories(t.TempDir(), nil, Options{}.withDefaults())
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
		planned, _ := r.plan(cfg)
		return planned[0]
	}
	const whole = `branch: main, discover: {paths: ["a/**", "!a/b"], labels: {team: one}}`
	first := read(whole, "")
	if !first.same(read(whole, "")) {
		t.Error("read twice, it differs")
	}
	for name, other := range map[string]repository{
		"branch": read(`branch: other, discover: {paths: ["a/**", "!a/b"], labels: {team: one}}`, ""),
		"paths":  read(`branch: main, discover: {paths: ["a/**", "!a/c"], labels: {team: one}}`, ""),
		"labels": read(`branch: main, discover: {paths: ["a/**", "!a/b"], labels: {team: two}}`, ""),
		"none":   read(`branch: main`, ""),
		"broken": read(`branch: "a..b", discover: {paths: ["a/**", "!a/b"], labels: {team: one}}`, ""),
		"hosts":  read(whole, "  git: {knownHostsFile: /known_hosts}\n"),
	} {
		if first.same(other) {
			t.Errorf("%s: a change is not seen", name)
		}
	}
}

// TestSilentRemoteHoldsUpNoReload: a reload does not wait for a remote that does not
// answer.
func TestSilentRemoteHoldsUpNoReload(t *testing.T) {
	t.Parallel()
	cluster := clustertest.Shared(t)
	ns := cluster.Namespace(t)
	repo := newRepo(t)
	commit := repo.Push(t, "add web", webApp(ns, "v1", ""))
	server := repo.HTTP(t, gittest.HTTPOptions{})
	asked := make(chan struct{}, 100)
	hang := gittest.Hang()
	server.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		asked <- struct{}{}
		hang(w, r, next)
	})
	s := spec{dataDir: t.TempDir(), repositories: map[string]string{"apps": server.URL}, providers: map[string]string{"local": cluster.Kubeconfig()}}
	agent := runReloading(t, s, 10*time.Millisecond)
	<-asked
	s.repositories = map[string]string{"apps": repo.Dir}
	begin := time.Now()
	agent.write(s, inEffect)
	if took := time.Since(begin); took > 50*time.Second { // the timeout of the remote is a minute
		t.Errorf("the reload took %s", took)
	}
	agent.mustEnd(appID("web"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
}
