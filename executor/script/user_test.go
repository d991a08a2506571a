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

// asRoot reports whether this user may run scripts as others. It checks that one who may
// not gets no script, and why.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	l := &lab{t: t, log: &lines{}, mode: sandbox.OtherUser, count: filepath.Join(sandboxtest.PublicDir(t), "count")}
	l.users = sandbox.Users{UID: 1 << 28, Count: 1, Dir: filepath.Join(sandboxtest.PublicDir(t), "scripts")}
	if got := l.newExecutor(filepath.Join(t.TempDir(), "scripts")).State(); !strings.Contains(got.Error, "only root can run scripts as another user") {
		t.Errorf("an agent that is not root: %+v", got)
	}
	return false
}

// TestOtherUserReadsNoSecret: a script that runs as another user reads neither the files
// of an agent's data directory, whatever their own modes are, nor the agent's environment.
func TestOtherUserReadsNoSecret(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Setenv("GIT_PASSWORD", "hunter2")
	l := newLabIn(t, sandbox.OtherUser)
	data := filepath.Join(sandboxtest.PublicDir(t), "data") // all users can enter what is above it
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
		l.users.Hidden = append(l.users.Hidden, path)
		attacks = append(attacks, "cat "+path, fmt.Sprintf("cat /proc/%d/root%s", os.Getpid(), path))
	}
	l.users.Hidden = append(l.users.Hidden, data)
	l.executor = l.newExecutor(l.executor.Dir)
	for _, process := range []string{fmt.Sprint(os.Getpid()), "$PPID", "self/../$PPID"} {
		attacks = append(attacks, "cat /proc/"+process+"/environ /proc/"+process+"/mem")
	}
	wantResult(t, l.runScript("exec 2>&1\n"+strings.Join(attacks, "\n")+"\nid -u; id -G; umask"), deploy.StageSuccess, "")
	printed := strings.Join(l.log.printed(), "\n")
	if strings.Contains(printed, "hunter2") || !strings.Contains(printed, fmt.Sprintf("\n%d\n%[1]d\n", l.users.UID)) {
		t.Errorf("the script printed %s", printed)
	}
}

// TestUsersAreOneScripts: no two scripts run as one user at once. One that waits for a
// user can be stopped.
func TestUsersAreOneScripts(t *testing.T) {
	if !asRoot(t) {
		return
	}
	l := newLabIn(t, sandbox.OtherUser)
	l.deployment(options{Run: "echo x >> " + l.count + "; echo ready; sleep 1000"}, map[string]string{deploy.MetaBaseStage: "s", deploy.MetaOnRollback: "printf x >> " + l.count})
	l.startStage("s")
	stop, first := l.begin("s")
	l.log.await(t, "ready")

	second := l.stageRun("s", false)
	second.Log = &lines{}
	second.Stage.Metadata = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan deploy.StageResult, 1)
	go func() { ended <- l.executor.Execute(ctx, second) }()
	second.Log.(*lines).await(t, "Waiting until another script ends: scripts.user.count permits 1 at once")
	cancel(deploy.StopCancelled)
	wantResult(t, <-ended, deploy.StageCancelled, "the script was not started: it waited for the end of another")
	l.wantRuns(1)

	stop(deploy.StopCancelled)
	<-first
	if got := l.executor.Execute(t.Context(), l.stageRun("back", false)); got.Status != deploy.StageSuccess {
		t.Errorf("the next script ended as %+v", got)
	}
	l.wantRuns(2)
	l.wantNothingLeft()
}

// TestState: what isolates scripts, and why they are refused, can be asked for.
func TestState(t *testing.T) {
	l := newLab(t)
	if got := l.executor.State(); got != (deploy.ScriptsState{Isolation: "namespaces", EndedBy: "PID namespace", Holds: sandbox.Namespaces.Holds()}) {
		t.Errorf("isolated: %+v", got)
	}
	l.executor.refused = errors.New("no way")
	if got := l.executor.State(); got != (deploy.ScriptsState{Error: "no way"}) {
		t.Errorf("refused: %+v", got)
	}
}
