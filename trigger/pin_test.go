package trigger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestLastSuccessIsPinned: a reference of the mirror holds the commit of the last
// success, and follows it.
func TestLastSuccessIsPinned(t *testing.T) {
	l := newEnv(t)
	for _, version := range []string{"one", "two"} {
		commit := l.push(version, map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/version": version})
		d := l.run("web")
		_, err := l.store.UpdateDeployment(t.Context(), d.ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Success, "", l.clock()) })
		must(t, err)
		l.poll()
		if got := l.pinned("web"); got != commit {
			t.Errorf("after version %s, commit %q is pinned, want %s", version, got, commit)
		}
	}
}

// pinned returns the commit the mirror keeps for an application, "" for none.
func (l *env) pinned(dir string) string {
	l.t.Helper()
	found, err := filepath.Glob(filepath.Join(l.mirrors, "*", "refs", "piped", "pins", "success", appID(dir)))
	must(l.t, err)
	if len(found) == 0 {
		return ""
	}
	text, err := os.ReadFile(found[0])
	must(l.t, err)
	return strings.TrimSpace(string(text))
}
