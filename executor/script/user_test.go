package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/executor/script/sandbox/sandboxtest"
	"github.com/c785c783/piped/piped/deploy"
)

// asRoot reports whether this user may run scripts as others. If not, it checks that
// scripts are rejected with the reason.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	f := &fixture{t: t, log: &lines{}, mode: sandbox.OtherUser, count: filepath.Join(sandboxtest.PublicDir(t), "count")}
	f.users = sandbox.Users{UID: 1 << 28, Count: 1, Dir: filepath.Join(sandboxtest.PublicDir(t), "scripts")}
	if got := f.newExecutor(filepath.Join(t.TempDir(), "scripts")).State(); !strings.Contains(got.Error, "only root can run scripts as another user") {
		t.Errorf("an agent that is not root: %+v", got)
	}
	return false
}

// TestOtherUserReadsNoSecret: a script that runs as another user can read neither the
// files of an agent's data directory, whatever their modes, nor the agent's
// environment.
func TestOtherUserReadsNoSecret(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Setenv("GIT_PASSWORD", "hunter2")
	f := newFixtureIn(t, sandbox.OtherUser)
	data := filepath.Join(sandboxtest.PublicDir(t), "data") // a path that all users can enter
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(sandboxtest.PublicDir(t), "git-password")
	var attacks []string
	for path, mode := range map[string]os.FileMode{
		filepath.Join(data, "owner.key"): 0o644, filepath.Join(data, "store.key"): 0o600, password: 0o600,
	} {
		if err := os.WriteFile(path, []byte("hunter2\n"), mode); err != nil {
			t.Fatal(err)
		}
		f.users.Hidden = append(f.users.Hidden, path)
		attacks = append(attacks, "cat "+path, fmt.Sprintf("cat /proc/%d/root%s", os.Getpid(), path))
	}
	f.users.Hidden = append(f.users.Hidden, data)
	f.executor = f.newExecutor(f.executor.Dir)
	for _, process := range []string{fmt.Sprint(os.Getpid()), "$PPID", "self/../$PPID"} {
		attacks = append(attacks, "cat /proc/"+process+"/environ /proc/"+process+"/mem")
	}
	wantResult(t, f.runScript("exec 2>&1\n"+strings.Join(attacks, "\n")+"\nid -u; id -G; umask"), deploy.StageSuccess, "")
	printed := strings.Join(f.log.printed(), "\n")
	if strings.Contains(printed, "hunter2") || !strings.Contains(printed, fmt.Sprintf("\n%d\n%[1]d\n", f.users.UID)) {
		t.Errorf("the script printed %s", printed)
	}
}

// TestUsersAreOneScripts: no two scripts run as one user at once. A script that waits
// for a user can be stopped.
func TestUsersAreOneScripts(t *testing.T) {
	if !asRoot(t) {
		return
	}
	f := newFixtureIn(t, sandbox.OtherUser)
	f.deployment(options{Run: "echo x >> " + f.count + "; echo ready; sleep 1000"}, map[string]string{deploy.MetaBaseStage: "s", deploy.MetaOnRollback: "printf x >> " + f.count})
	f.startStage("s")
	stop, first := f.begin("s")
	f.log.await(t, "ready")

	second := f.stageRun("s", false)
	second.Log = &lines{}
	second.Stage.Metadata = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan deploy.StageResult, 1)
	go func() { ended <- f.executor.Execute(ctx, second) }()
	second.Log.(*lines).await(t, "Waiting until another script ends: scripts.user.count permits 1 at once")
	cancel(deploy.StopCancelled)
	wantResult(t, <-ended, deploy.StageCancelled, "the script was not started: it waited for the end of another")
	f.wantRuns(1)

	stop(deploy.StopCancelled)
	<-first
	if got := f.executor.Execute(t.Context(), f.stageRun("back", false)); got.Status != deploy.StageSuccess {
		t.Errorf("the next script ended as %+v", got)
	}
	f.wantRuns(2)
	f.wantNothingLeft()
}

// TestState: the isolation and the reason of a rejection are reported.
func TestState(t *testing.T) {
	f := newFixture(t)
	if got := f.executor.State(); got != (deploy.ScriptsState{Isolation: "namespaces", EndedBy: "PID namespace", Holds: sandbox.Namespaces.Holds()}) {
		t.Errorf("isolated: %+v", got)
	}
	f.executor.refused = errors.New("no way")
	if got := f.executor.State(); got != (deploy.ScriptsState{Error: "no way"}) {
		t.Errorf("refused: %+v", got)
	}
}
