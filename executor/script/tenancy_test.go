package script

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestForbiddenScriptsDoNotRun: the rules of the moment count, also for a script
// that was planned when they were others, and for one that undoes another. One that
// has run keeps its end.
func TestForbiddenScriptsDoNotRun(t *testing.T) {
	l := newLab(t)
	count := "printf x >> " + l.count
	l.deployment(options{Run: count}, map[string]string{deploy.MetaBaseStage: "s", deploy.MetaOnRollback: count})
	l.startStage("s")
	var asked deploy.GitPath
	forbid := func(at deploy.GitPath) config.Tenant {
		asked = at
		return config.Tenant{{Name: "team"}}
	}
	wantForbidden := func(stage string) {
		t.Helper()
		asked, l.executor.Tenant = deploy.GitPath{}, forbid
		result := l.executor.Execute(t.Context(), l.stageRun(stage, false))
		if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, `tenancy "team" does not allow scripts, which stage `+stage+" runs") {
			t.Errorf("got %s: %s", result.Status, result.Reason)
		}
		if asked.RepoID != "r" || asked.Dir != "apps/web" {
			t.Errorf("asked about %+v", asked)
		}
	}
	wantForbidden("s")
	l.wantRuns(0)
	for _, tenant := range []Tenant{nil, forbid} {
		l.executor.Tenant = tenant
		wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", false)), deploy.StageSuccess, "")
		l.wantRuns(1)
	}
	wantForbidden("back")
	l.wantRuns(1)
}

// TestRefusedWithoutIsolation: where scripts cannot be isolated none runs, and the
// stage says what to do. With isolation none it runs.
func TestRefusedWithoutIsolation(t *testing.T) {
	l := newLab(t)
	l.executor.Launcher = sandbox.Launcher{} // what a machine without isolation comes to
	l.executor.choose()
	got := l.runScript("printf x >> " + l.count)
	if got.Status != deploy.StageFailure || !strings.Contains(got.Reason, "scripts cannot be isolated on this machine") || !strings.Contains(got.Reason, "scripts.isolation: none") {
		t.Errorf("the stage ended as %+v", got)
	}
	l.wantRuns(0)
	l.executor.Isolation.Modes = []sandbox.Mode{sandbox.None}
	l.executor.choose()
	wantResult(t, l.executor.Execute(t.Context(), l.stageRun("s", false)), deploy.StageSuccess, "")
	l.wantRuns(1)
}
