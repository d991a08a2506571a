package trigger

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestCommits plays commits and states the deployments that come of them.
func TestCommits(t *testing.T) {
	type files = map[string]string
	web := files{"web/app.pipecd.yaml": appFile("web"), "web/d.yaml": "1"}
	cases := []struct {
		name string
		play func(t *testing.T, l *env)
		want []string // of the application in web
	}{
		{"the first deployment", func(t *testing.T, l *env) {}, []string{"begin PENDING"}},
		{"a commit that touches it", func(t *testing.T, l *env) {
			l.push("change", files{"web/d.yaml": "2"})
		}, []string{"begin CANCELLED", "change PENDING"}},
		{"a commit elsewhere", func(t *testing.T, l *env) {
			l.push("elsewhere", files{"website/d.yaml": "2"})
		}, []string{"begin PENDING"}},
		{"several commits between two polls", func(t *testing.T, l *env) {
			l.upstream.Push(t, "change", files{"web/d.yaml": "2"})
			l.push("elsewhere", files{"x": "1"})
		}, []string{"begin CANCELLED", "elsewhere PENDING"}},
		{"a change that was taken back between two polls", func(t *testing.T, l *env) {
			l.upstream.Push(t, "change", files{"web/d.yaml": "2"})
			l.push("revert", files{"web/d.yaml": "1"})
		}, []string{"begin PENDING"}},
		{"another poll finds nothing new", func(t *testing.T, l *env) {
			l.poll()
			l.poll()
		}, []string{"begin PENDING"}},
		{"a file moved out of it", func(t *testing.T, l *env) {
			l.remove("web/d.yaml")
		}, []string{"begin CANCELLED", "remove PENDING"}},
		{"a file moved into it", func(t *testing.T, l *env) {
			l.push("elsewhere", files{"old/e.yaml": "3"})
			if err := l.upstream.Remove("old/e.yaml"); err != nil {
				t.Fatal(err)
			}
			l.push("move", files{"web/e.yaml": "3"})
		}, []string{"begin CANCELLED", "move PENDING"}},
		{"a file renamed within it", func(t *testing.T, l *env) {
			rename(t, l, "web/d.yaml", "web/e.yaml")
		}, []string{"begin CANCELLED", "rename PENDING"}},
		{"a file renamed out of it", func(t *testing.T, l *env) {
			rename(t, l, "web/d.yaml", "old/d.yaml")
		}, []string{"begin CANCELLED", "rename PENDING"}},
		{"a file renamed into it", func(t *testing.T, l *env) {
			l.push("elsewhere", files{"old/e.yaml": "3"})
			rename(t, l, "old/e.yaml", "web/e.yaml")
		}, []string{"begin CANCELLED", "rename PENDING"}},
		{"a file renamed from one that is ignored", func(t *testing.T, l *env) {
			l.push("conf", files{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommit: {ignores: ['*/*.md']}}"), "web/a.md": "4"})
			rename(t, l, "web/a.md", "web/a.yaml")
		}, []string{"begin CANCELLED", "conf CANCELLED", "rename PENDING"}},
		{"a file renamed elsewhere", func(t *testing.T, l *env) {
			l.push("elsewhere", files{"old/e.yaml": "3"})
			rename(t, l, "old/e.yaml", "older/e.yaml")
		}, []string{"begin PENDING"}},
		{"an ignored file and one that is not", func(t *testing.T, l *env) {
			l.push("conf", files{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommit: {ignores: ['*/hello.txt']}}")})
			l.push("both", files{"web/hello.txt": "x", "web/d.yaml": "2"})
			l.push("ignored", files{"web/hello.txt": "y"})
		}, []string{"begin CANCELLED", "conf CANCELLED", "both PENDING"}},
		{"a mode that changed", func(t *testing.T, l *env) {
			if err := l.upstream.SetExecutable("web/d.yaml", true); err != nil {
				t.Fatal(err)
			}
			l.push("mode", nil)
		}, []string{"begin CANCELLED", "mode PENDING"}},
		{"a force-push that takes the last change back", func(t *testing.T, l *env) {
			base := l.upstream.Head()
			l.push("change", files{"web/d.yaml": "2"})
			if err := l.upstream.Reset(base); err != nil {
				t.Fatal(err)
			}
			l.push("rewritten", files{"x": "2"})
		}, []string{"begin CANCELLED", "change CANCELLED", "rewritten PENDING"}},
		{"a force-push whose base is in the mirror", func(t *testing.T, l *env) {
			base := l.upstream.Head()
			l.push("elsewhere", files{"x": "1"})
			if err := l.upstream.Reset(base); err != nil {
				t.Fatal(err)
			}
			l.push("rewritten", files{"x": "2"})
		}, []string{"begin PENDING"}},
		{"a force-push whose base is gone", func(t *testing.T, l *env) {
			base := l.upstream.Head()
			l.push("change", files{"web/d.yaml": "2"})
			if err := l.upstream.Reset(base); err != nil {
				t.Fatal(err)
			}
			l.upstream.Push(t, "rewritten", files{"x": "2"})
			l.restart() // with a mirror that never saw the base
			l.poll()
		}, []string{"begin CANCELLED", "change CANCELLED", "rewritten PENDING"}},
		{"onCommit disabled", func(t *testing.T, l *env) {
			l.push("off", files{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommit: {disabled: true}}")})
			l.push("change", files{"web/d.yaml": "2"})
		}, []string{"begin PENDING"}},
		{"onCommit enabled again deploys what enables it", func(t *testing.T, l *env) {
			l.push("off", files{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommit: {disabled: true}}")})
			l.push("change", files{"web/d.yaml": "2"})
			l.push("on", files{"web/app.pipecd.yaml": appFile("web")})
		}, []string{"begin CANCELLED", "on PENDING"}},
		{"paths and ignores", func(t *testing.T, l *env) {
			l.push("conf", files{"web/app.pipecd.yaml": appFile("web", "  trigger: {onCommit: {paths: [lib], ignores: ['web/*.md']}}")})
			l.push("docs", files{"web/a.md": "x"})
			l.push("lib", files{"lib/a": "x"})
		}, []string{"begin CANCELLED", "conf CANCELLED", "lib PENDING"}},
		{"a disabled application deploys after it is enabled again", func(t *testing.T, l *env) {
			if err := l.store.SetDisabled(t.Context(), appID("web"), true); err != nil {
				t.Fatal(err)
			}
			l.push("change", files{"web/d.yaml": "2"})
			if diff := cmp.Diff([]string{"begin FAILURE"}, l.deployments("web")); diff != "" {
				t.Errorf("while disabled (-want +got):\n%s", diff)
			}
			if err := l.store.SetDisabled(t.Context(), appID("web"), false); err != nil {
				t.Fatal(err)
			}
			l.poll()
		}, []string{"begin FAILURE", "change PENDING"}},
		{"what waited when an application was disabled is deployed after it is enabled again", func(t *testing.T, l *env) {
			l.finish("web", deploy.Success)
			l.push("change", files{"web/d.yaml": "2"})
			must(t, l.store.SetDisabled(t.Context(), appID("web"), true))
			l.poll()
			must(t, l.store.SetDisabled(t.Context(), appID("web"), false))
			l.poll()
		}, []string{"begin SUCCESS", "change FAILURE", "change PENDING"}},
		{"a restart deploys nothing twice", func(t *testing.T, l *env) {
			l.restart()
			l.poll()
		}, []string{"begin PENDING"}},
		{"a commit made while the agent was away", func(t *testing.T, l *env) {
			l.upstream.Push(t, "change", files{"web/d.yaml": "2"})
			l.restart()
			l.poll()
		}, []string{"begin CANCELLED", "change PENDING"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newEnv(t)
			l.push("begin", web)
			c.play(t, l)
			if diff := cmp.Diff(c.want, l.deployments("web")); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
			if got := l.app("web").EvaluatedCommit; got != l.upstream.Head() {
				t.Errorf("evaluated %s, the head is %s", got, l.upstream.Head())
			}
		})
	}
}

// rename commits that a file has another name and polls.
func rename(t *testing.T, l *env, from, to string) {
	t.Helper()
	if err := l.upstream.Remove(from); err != nil {
		t.Fatal(err)
	}
	content := map[string]string{"web/d.yaml": "1", "old/e.yaml": "3", "web/a.md": "4"}[from]
	l.push("rename", map[string]string{to: content})
}

// TestPlaces: applications may be anywhere, under any name.
func TestPlaces(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{
		"app.pipecd.yaml": appFile("root"), "apps/größe デモ/app.pipecd.yaml": appFile("unicode"), "apps/two/app.pipecd.yaml": appFile("two"),
	})
	if diff := cmp.Diff([]string{".", "apps/größe デモ", "apps/two"}, l.registered()); diff != "" {
		t.Fatalf("registered (-want +got):\n%s", diff)
	}
	l.push("unicode", map[string]string{"apps/größe デモ/設定.yaml": "1"})
	for dir, want := range map[string][]string{
		".":             {"begin CANCELLED", "unicode PENDING"}, // all of the repository is the root's
		"apps/größe デモ": {"begin CANCELLED", "unicode PENDING"},
		"apps/two":      {"begin PENDING"},
	} {
		if diff := cmp.Diff(want, l.deployments(dir)); diff != "" {
			t.Errorf("deployments of %s (-want +got):\n%s", dir, diff)
		}
	}
}

// TestRenamedApplication: in a new place, under another name, it is a new application,
// and the old one says what is the matter.
func TestRenamedApplication(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web"), "web/d.yaml": "1"})
	if err := l.upstream.Remove("web"); err != nil {
		t.Fatal(err)
	}
	l.push("move", map[string]string{"shop/app.pipecd.yaml": appFile("shop"), "shop/d.yaml": "1"})
	l.wantInvalid("web", "no longer exists")
	if diff := cmp.Diff([]string{"move PENDING"}, l.deployments("shop")); diff != "" {
		t.Errorf("deployments in the new place (-want +got):\n%s", diff)
	}
}

// TestWhatADeploymentIsMadeWith states what a commit's deployment says of itself.
func TestWhatADeploymentIsMadeWith(t *testing.T) {
	l := newEnv(t)
	hash := l.push("add web\n\nwith a body", map[string]string{"web/app.pipecd.yaml": appFile("web", "  labels: {team: a}")})
	d := l.all("web")[0]
	got := deploy.Deployment{
		ApplicationID: d.ApplicationID, ApplicationName: d.ApplicationName, Provider: d.Provider, Labels: d.Labels, Status: d.Status,
		Trigger: deploy.Trigger{
			Kind: d.Trigger.Kind, Strategy: d.Trigger.Strategy, Commander: d.Trigger.Commander,
			Commit: deploy.Commit{Hash: d.Trigger.Commit.Hash, Message: d.Trigger.Commit.Message, Branch: d.Trigger.Commit.Branch},
		},
	}
	want := deploy.Deployment{
		ApplicationID: appID("web"), ApplicationName: "web", Provider: "local", Labels: map[string]string{"team": "a"}, Status: deploy.Pending,
		Trigger: deploy.Trigger{
			Kind: deploy.OnCommit, Strategy: deploy.StrategyAuto, Commit: deploy.Commit{Hash: hash, Message: "add web", Branch: "main"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deployment (-want +got):\n%s", diff)
	}
	if ref := l.app("web").LastTriggered; ref == nil || ref.DeploymentID != d.ID {
		t.Errorf("the application remembers %+v", ref)
	}
}

// TestQueues states what a newer commit does to deployments that wait and run.
func TestQueues(t *testing.T) {
	cases := []struct {
		queue   string
		waiting []string // after two commits while nothing runs
		cancels []string // of a running deployment
	}{
		{"newest", []string{"one CANCELLED", "two PENDING"}, nil},
		{"all", []string{"one PENDING", "two PENDING"}, nil},
		{"replace", []string{"one CANCELLED", "two PENDING"}, []string{"running"}},
	}
	config := func(queue string) string { return appFile("web", "  trigger: {queue: "+queue+"}") }
	for _, c := range cases {
		t.Run(c.queue+" while one waits", func(t *testing.T) {
			l := newEnv(t)
			l.push("one", map[string]string{"web/app.pipecd.yaml": config(c.queue)})
			l.push("two", map[string]string{"web/d.yaml": "1"})
			if diff := cmp.Diff(c.waiting, l.deployments("web")); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
			if ds := l.all("web"); ds[0].Status == deploy.Cancelled && !strings.Contains(ds[0].StatusReason, ds[1].ID) {
				t.Errorf("the superseded one does not name the newer: %q", ds[0].StatusReason)
			}
		})
		t.Run(c.queue+" while one runs", func(t *testing.T) {
			l := newEnv(t)
			l.push("running", map[string]string{"web/app.pipecd.yaml": config(c.queue)})
			running := l.run("web")
			l.push("newer", map[string]string{"web/d.yaml": "1"})
			if diff := cmp.Diff([]string{"running RUNNING", "newer PENDING"}, l.deployments("web")); diff != "" {
				t.Errorf("deployments (-want +got):\n%s", diff)
			}
			open, err := l.store.OpenCommands(t.Context(), deploy.CommandCancel)
			if err != nil {
				t.Fatal(err)
			}
			var cancels []string
			for _, command := range open {
				if command.DeploymentID == running.ID && command.ForceNoRollback && strings.Contains(command.Commander, "queue: replace") {
					cancels = append(cancels, "running")
				}
			}
			if diff := cmp.Diff(c.cancels, cancels); diff != "" {
				t.Errorf("asked to cancel (-want +got):\n%s", diff)
			}
		})
	}
}

// TestManualSyncIsLeftAlone: no commit supersedes or replaces what a person
// asked for.
func TestManualSyncIsLeftAlone(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  trigger: {queue: replace}")})
	cancelled := l.all("web")[0].ID
	if _, err := l.store.UpdateDeployment(t.Context(), cancelled, func(d *deploy.Deployment) error {
		return d.Complete(deploy.Cancelled, "out of the way", l.clock())
	}); err != nil {
		t.Fatal(err)
	}
	for _, run := range []bool{true, false} {
		l.askSync("web")
		l.poll()
		if run {
			l.run("web")
		}
	}
	l.push("change", map[string]string{"web/d.yaml": "1"})
	want := []string{"begin CANCELLED", "begin RUNNING", "begin PENDING", "change PENDING"}
	if diff := cmp.Diff(want, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	l.wantNoneOpen()
}

// TestOneFailureKeepsNoOther: an application whose deployment cannot be made
// delays no other of its repository, nor a sync of it; it is retried, and
// notified once.
func TestOneFailureKeepsNoOther(t *testing.T) {
	var log bytes.Buffer
	taken := 3
	l := newEnv(t, func(l *env, c *Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		c.NewID = func() string {
			if taken > 0 {
				taken--
				return "taken"
			}
			return l.newID()
		}
	})
	l.push("begin", map[string]string{"a/app.pipecd.yaml": appFile("a"), "b/app.pipecd.yaml": appFile("b")})
	made, failing := "a", "b"
	if len(l.all("a")) == 0 {
		made, failing = "b", "a"
	}
	id := l.askSync(made)
	l.push("elsewhere", map[string]string{"x": "1"})
	if c := l.command(id); c.Status != deploy.CommandSucceeded {
		t.Errorf("the sync of the other is %s because %q", c.Status, c.Metadata[deploy.MetaReason])
	}
	if got := len(l.all(failing)); got != 0 {
		t.Fatalf("%d deployments of the failing one, the test wants none yet", got)
	}
	if p := l.trigger.Problem("apps"); p == nil || p.Err == nil || p.Since.IsZero() {
		t.Errorf("while it fails the problem is %v", p)
	}
	l.poll()
	if p := l.trigger.Problem("apps"); p != nil {
		t.Errorf("afterwards the problem is still %v", p)
	}
	if got := l.deployments(failing); len(got) != 1 {
		t.Errorf("later its deployments are %v", got)
	}
	if n := strings.Count(log.String(), "cannot follow the repository"); n != 2 { // one for each head
		t.Errorf("the failure was logged %d times:\n%s", n, log.String())
	}
	if n := strings.Count(log.String(), "can be followed again"); n != 1 {
		t.Errorf("the end of the failure was logged %d times:\n%s", n, log.String())
	}
}
