package script

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestForbiddenScriptsDoNotRun: the current rules apply, also to scripts that were
// planned under other rules and to scripts of a rollback. The result of a completed
// script stands.
func TestForbiddenScriptsDoNotRun(t *testing.T) {
	f := newFixture(t)
	count := "printf x >> " + f.count
	f.deployment(options{Run: count}, map[string]string{deploy.MetaBaseStage: "s", deploy.MetaOnRollback: count})
	f.startStage("s")
	var asked deploy.GitPath
	forbid := func(at deploy.GitPath) config.Tenant {
		asked = at
		return config.Tenant{{Name: "team"}}
	}
	wantForbidden := func(stage string) {
		t.Helper()
		asked, f.executor.Tenant = deploy.GitPath{}, forbid
		result := f.executor.Execute(t.Context(), f.stageRun(stage, false))
		if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, `tenancy "team" does not allow scripts, which stage `+stage+" runs") {
			t.Errorf("got %s: %s", result.Status, result.Reason)
		}
		if asked.RepoID != "r" || asked.Dir != "apps/web" {
			t.Errorf("asked about %+v", asked)
		}
	}
	wantForbidden("s")
	f.wantRuns(0)
	for _, tenant := range []Tenant{nil, forbid} {
		f.executor.Tenant = tenant
		wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", false)), deploy.StageSuccess, "")
		f.wantRuns(1)
	}
	wantForbidden("back")
	f.wantRuns(1)
}

// TestRefusedWithoutIsolation: without isolation no script runs, and the stage's reason
// says what to do. With isolation none it runs.
func TestRefusedWithoutIsolation(t *testing.T) {
	f := newFixture(t)
	f.executor.Isolation.Modes = nil // like on a machine without isolation
	f.executor.choose()
	got := f.runScript("printf x >> " + f.count)
	if got.Status != deploy.StageFailure || !strings.Contains(got.Reason, "scripts cannot be isolated on this machine") || !strings.Contains(got.Reason, "scripts.isolation: none") {
		t.Errorf("the stage ended as %+v", got)
	}
	f.wantRuns(0)
	f.executor.Isolation.Modes = []sandbox.Mode{sandbox.None}
	f.executor.choose()
	wantResult(t, f.executor.Execute(t.Context(), f.stageRun("s", false)), deploy.StageSuccess, "")
	f.wantRuns(1)
}
