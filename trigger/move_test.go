package trigger

import (
	"slices"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// mv moves files in one commit and polls.
func (l *env) mv(message string, moved map[string]string, more map[string]string) {
	l.t.Helper()
	files := map[string]string{}
	for from, to := range moved {
		text := more[from]
		delete(more, from)
		must(l.t, l.upstream.Remove(from))
		files[to] = text
	}
	for name, text := range more {
		files[name] = text
	}
	l.push(message, files)
}

// at returns the application whose configuration is in a directory, and whether there is
// one.
func (l *env) at(dir string) (deploy.Application, bool) {
	l.t.Helper()
	app, err := l.store.ApplicationAt(l.t.Context(), deploy.GitPath{RepoID: "apps", Dir: dir, ConfigFile: "app.pipecd.yaml"})
	if deploy.IsKind(err, deploy.NotFound) {
		return app, false
	}
	must(l.t, err)
	return app, true
}

const moving = "  trigger: {onOutOfSync: {disabled: false, minWindow: 5m}}"

// newMoveEnv begins with an application in web that was deployed.
func newMoveEnv(t *testing.T) *env {
	t.Helper()
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", moving), "web/d.yaml": "1"})
	l.finish("web", deploy.Success)
	return l
}

// TestMovedApplication: a commit that removes an application's configuration and brings
// it elsewhere leaves it the same application, in a new place.
func TestMovedApplication(t *testing.T) {
	l := newMoveEnv(t)
	first := l.upstream.Head()
	must(t, l.store.SetDisabled(t.Context(), appID("web"), false))
	l.mv("move", map[string]string{"web/app.pipecd.yaml": "store/app.pipecd.yaml", "web/d.yaml": "store/d.yaml"},
		map[string]string{"web/app.pipecd.yaml": appFile("web", moving), "web/d.yaml": "1"})
	app, ok := l.at("store")
	if !ok || app.ID != appID("web") || app.Sync.Status == deploy.SyncInvalidConfig || app.LastSuccessful == nil || app.LastSuccessful.Dir != "web" {
		t.Fatalf("in the new place there is %v %+v", ok, app)
	}
	if dirs := l.registered(); !slices.Equal(dirs, []string{"store"}) {
		t.Errorf("registered: %v", dirs)
	}
	ds := l.all("web")
	if last := ds[len(ds)-1]; len(ds) != 2 || last.Git.Dir != "store" || last.Trigger.Commit.Message != "move" {
		t.Errorf("deployments: %v, the last one of %s", l.deployments("web"), last.Git.Dir)
	}
	l.finish("web", deploy.Success)

	// What is asked for at a commit from before the move is found where it was.
	l.rollBack(first)
	back := l.all("web")[2]
	if back.Git.Dir != "web" || back.Trigger.Commit.Hash != first {
		t.Errorf("the rollback deploys %s at commit %s", back.Git.ConfigPath(), back.Trigger.Commit.Message)
	}
	l.finish("web", deploy.Success)
	l.drift("web")
	if healed := l.all("web"); len(healed) != 4 || healed[3].Git.Dir != "web" || healed[3].Trigger.Kind != deploy.OnOutOfSync {
		t.Errorf("after the rollback drift makes %v", l.deployments("web"))
	}

	// The old place is free for another application.
	l.restart()
	l.push("another", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	other, ok := l.at("web")
	if !ok || other.ID == app.ID {
		t.Errorf("in the old place there is %v %s, the moved application is %s", ok, other.ID, app.ID)
	}
	l.poll()
	if dirs := l.registered(); !slices.Equal(dirs, []string{"store", "web"}) {
		t.Errorf("registered: %v", dirs)
	}
}

// TestMovedApplicationWithoutAName: what has no name is recognized by its directory, which
// must be the same. The name of the directory follows, one that was given stays.
func TestMovedApplicationWithoutAName(t *testing.T) {
	for name, c := range map[string]struct {
		given, file string // the name it was added with, and what its directory holds afterwards
		want        string // the name afterwards; "": it is not moved
	}{
		"called after its directory": {"", "1", "store"},
		"added with a name":          {"orders", "1", "orders"},
		"another file":               {"", "2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			if c.given != "" {
				must(t, l.store.AddApplication(t.Context(), deploy.Application{
					ID: appID("web"), Name: c.given, Kind: deploy.KindKubernetes,
					Git:          deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"},
					Sync:         deploy.SyncState{Status: deploy.SyncUnknown},
					Registration: deploy.Registration{By: "ann", Name: c.given},
				}))
			}
			l.push("begin", map[string]string{"web/app.pipecd.yaml": nameless, "web/d.yaml": "1"})
			l.finish("web", deploy.Success)
			l.mv("move", map[string]string{"web/app.pipecd.yaml": "store/app.pipecd.yaml", "web/d.yaml": "store/d.yaml"},
				map[string]string{"web/app.pipecd.yaml": nameless, "web/d.yaml": c.file})
			app, ok := l.at("store")
			if moved := ok && app.ID == appID("web"); moved != (c.want != "") || moved && app.Name != c.want {
				t.Errorf("in the new place there is %v %s, named %q", ok, app.ID, app.Name)
			}
		})
	}
}

// TestWhatIsNoMove states what is another application in a new place.
func TestWhatIsNoMove(t *testing.T) {
	type files = map[string]string
	cases := []struct {
		name string
		play func(l *env)
		want string // where the application is
		same bool   // whether nothing else was registered
	}{
		{"another name", func(l *env) {
			l.mv("move", files{"web/app.pipecd.yaml": "store/app.pipecd.yaml"}, files{"web/app.pipecd.yaml": appFile("store")})
		}, "web", false},
		{"two commits, the new file first", func(l *env) {
			l.upstream.Push(l.t, "copy", files{"store/app.pipecd.yaml": appFile("web")})
			l.remove("web/app.pipecd.yaml")
		}, "web", false},
		{"two commits, the old file first", func(l *env) {
			must(l.t, l.upstream.Remove("web/app.pipecd.yaml"))
			l.upstream.Push(l.t, "remove", nil)
			l.push("bring", files{"store/app.pipecd.yaml": appFile("web")})
		}, "web", false},
		{"a copy", func(l *env) {
			l.push("copy", files{"store/app.pipecd.yaml": appFile("web")})
		}, "web", false},
		{"two of the name with other contents", func(l *env) {
			l.push("second", files{"api/app.pipecd.yaml": appFile("web")})
			l.mv("move", files{"web/app.pipecd.yaml": "a/app.pipecd.yaml", "api/app.pipecd.yaml": "b/app.pipecd.yaml"},
				files{"web/app.pipecd.yaml": appFile("web"), "api/app.pipecd.yaml": appFile("web")})
		}, "web", false},
		{"to where the agent's configuration does not select it", func(l *env) {
			l.config.Discover = &config.Discover{Labels: map[string]string{"team": "a"}}
			l.restart()
			l.poll()
			l.mv("move", files{"web/app.pipecd.yaml": "store/app.pipecd.yaml"}, files{"web/app.pipecd.yaml": appFile("web")})
		}, "web", true},
		{"a move among other commits", func(l *env) {
			l.upstream.Push(l.t, "elsewhere", files{"x": "1"})
			must(l.t, l.upstream.Remove("web/app.pipecd.yaml"))
			l.upstream.Push(l.t, "move", files{"store/app.pipecd.yaml": appFile("web")})
			l.push("elsewhere", files{"x": "2"})
		}, "store", true},
		{"two of the name whose directories stay as they are", func(l *env) {
			l.push("second", files{"api/app.pipecd.yaml": appFile("web", moving), "api/other.yaml": "1"})
			l.mv("move", files{"web/app.pipecd.yaml": "b/app.pipecd.yaml", "web/d.yaml": "b/d.yaml", "api/app.pipecd.yaml": "a/app.pipecd.yaml", "api/other.yaml": "a/other.yaml"},
				files{"web/app.pipecd.yaml": appFile("web", moving), "web/d.yaml": "1", "api/app.pipecd.yaml": appFile("web", moving), "api/other.yaml": "1"})
		}, "b", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := newMoveEnv(t)
			c.play(l)
			if app := l.app("web"); app.Git.Dir != c.want {
				t.Errorf("the application is in %s, want %s", app.Git.Dir, c.want)
			}
			if n := len(l.registered()); (n == 1) != c.same {
				t.Errorf("registered: %v", l.registered())
			}
		})
	}
}

// TestAdviceForAMove: where the new place is not known to be the application's, what to
// do is said.
func TestAdviceForAMove(t *testing.T) {
	l := newMoveEnv(t)
	l.push("copy", map[string]string{"store/app.pipecd.yaml": appFile("web")})
	l.remove("web/app.pipecd.yaml")
	l.wantInvalid("web", "it is not known that the application was moved to store/app.pipecd.yaml, which has its name")
}

// TestMoveByACommitThatDoesNotCount: what a head may not remove from a place, or bring to
// it, it does not move from or to there.
func TestMoveByACommitThatDoesNotCount(t *testing.T) {
	type files = map[string]string
	for name, play := range map[string]func(l *env, first string){
		"unsigned, out of the directory": func(l *env, _ string) {
			l.upstream.Sign = nil
			l.mv("move", files{"team/app.pipecd.yaml": "free/app.pipecd.yaml"}, files{"team/app.pipecd.yaml": appFile("web")})
		},
		"rewritten": func(l *env, first string) {
			l.push("two", files{"team/x.yaml": "2"})
			must(l.t, l.upstream.Reset(first))
			l.mv("move", files{"team/app.pipecd.yaml": "team-b/app.pipecd.yaml"}, files{"team/app.pipecd.yaml": appFile("web")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ann, _ := newSignedEnv(t, func(s *signedBy) { s.descend = true })
			l.upstream.Sign = ann.Sign
			first := l.push("one", files{"team/app.pipecd.yaml": appFile("web"), "team/x.yaml": "1"})
			play(l, first)
			if app := l.app("team"); app.Git.Dir != "team" {
				t.Errorf("the application was moved to %s", app.Git.Dir)
			}
			l.wantNotice("team", "The head is not deployed")
		})
	}
}

// TestMoveWithAKeptID: an application whose ID does not derive from its place keeps it in
// the next place, and the place that it left is free.
func TestMoveWithAKeptID(t *testing.T) {
	l := newEnv(t)
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	const id = "0b4e5f6a-1111-4222-8333-444455556666"
	must(t, l.store.AddApplication(t.Context(), deploy.Application{
		ID: id, Name: "web", Kind: deploy.KindKubernetes, Sync: deploy.SyncState{Status: deploy.SyncUnknown}, Registration: deploy.Registration{By: "ann"},
		Git: deploy.GitPath{RepoID: "apps", Remote: l.upstream.Dir, Branch: "main", Dir: "web", ConfigFile: "app.pipecd.yaml"},
	}))
	l.poll()
	l.mv("move", map[string]string{"web/app.pipecd.yaml": "store/app.pipecd.yaml"}, map[string]string{"web/app.pipecd.yaml": appFile("web")})
	if app, _ := l.at("store"); app.ID != id {
		t.Errorf("in the new place is %q", app.ID)
	}
	l.push("another", map[string]string{"web/app.pipecd.yaml": appFile("other")})
	if app, _ := l.at("web"); app.ID != appID("web") {
		t.Errorf("in the old place is %q", app.ID)
	}
}
