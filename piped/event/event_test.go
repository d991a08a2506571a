package event

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestEventBecomesACommit(t *testing.T) {
	l := newEnv(t)
	up, _ := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	_, err := l.store.RegisterEvent(t.Context(), deploy.RegisteredEvent{
		ID: "0123456789", Name: "image-pushed", Data: "v2", Labels: appWeb, Contexts: map[string]string{"Build": "7\nx", "Author": "ada"},
		Trigger: deploy.TriggerCommit{Hash: "c0ffee", URL: "https://example.com/c0ffee"},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.run(l.ended("0123456789"))
	head := gitOutput(t, up, "rev-parse", "main")
	e := l.want("0123456789", deploy.EventHandled, "committed "+head[:7]+" to branch main of apps")
	if h := e.Handling("apps", false); h.Commit != head {
		t.Errorf("handling: %+v, head %s", h, head)
	}
	if got := content(t, up, "web/values.yaml"); got != "# of the shop\ntag: v2 # by events" {
		t.Errorf("file: %q", got)
	}
	want := `piped <piped@example.com>
Replace values with "v2" set by Event "image-pushed"

Author: ada
Build: 7 x
Pipecd-Dev-Trace-Trigger-Commit-Hash: c0ffee
Piped-Event-Id: 0123456789`
	if diff := cmp.Diff(want, gitOutput(t, up, "log", "-1", "--format=%an <%ae>%n%B")); diff != "" {
		t.Errorf("commit (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"apps"}, l.polled); diff != "" {
		t.Errorf("polled at (-want +got):\n%s", diff)
	}
}

func TestWhatBecomesOfAnEvent(t *testing.T) {
	with := func(more ...map[string]string) map[string]string {
		files := web("web", "v1")
		for _, m := range more {
			maps.Copy(files, m)
		}
		return files
	}
	appFile := func(text string) map[string]string { return map[string]string{"web/app.pipecd.yaml": text} }
	const legacy = "apiVersion: pipecd.dev/v1beta1\nkind: EventWatcher\nspec:\n  events:\n    - name: image-pushed\n      labels: {app: web}\n      replacements: [{file: env.sh, regex: 'TAG=(.*)'}]\n"
	for name, c := range map[string]struct {
		files   map[string]string
		prepare func(l *env)
		status  deploy.EventStatus
		says    string
		commits string
		file    string // that contains v2 afterwards
		message string
	}{
		"nothing to commit": {files: web("web", "v2"), status: deploy.EventHandled, says: "nothing to commit: the files of apps already have the value", commits: "1", file: "web/values.yaml"},
		"no such field": {
			files: with(appFile(appConfig("", "{file: values.yaml, yamlField: $.image.tag}"))), commits: "1",
			status: deploy.EventFailure, says: "web/app.pipecd.yaml: web/values.yaml: yamlField $.image.tag is not in the file",
		},
		"no such file": {
			files: with(appFile(appConfig("", "{file: other.yaml, yamlField: $.tag}"))), commits: "1",
			status: deploy.EventFailure, says: "web/other.yaml: there is no such file",
		},
		"one of two replacements fails": {
			files: with(appFile(appConfig("", setTag, "{file: values.yaml, regex: 'none(.*)'}"))), commits: "1",
			status: deploy.EventFailure, says: "regex none(.*) matches nothing in the file",
		},
		"message of the rule": {
			files:  with(appFile(appConfig("commitMessage: '{{ .EventName }} is {{ .Value }}'", setTag))),
			status: deploy.EventHandled, commits: "2", file: "web/values.yaml", message: "image-pushed is v2",
		},
		"message with a field that events do not have": {
			files: with(appFile(appConfig("commitMessage: '{{ .Other }}'", setTag))), commits: "1",
			status: deploy.EventFailure, says: "web/app.pipecd.yaml: commitMessage: ",
		},
		"older form, next to a broken one": {
			files: with(map[string]string{
				"web/app.pipecd.yaml": "broken: [", "env.sh": "TAG=v1\n", ".pipe/a.yaml": strings.Replace(legacy, "events", "evnts", 1), ".pipe/deep/b.yaml": legacy, ".pipe/c.txt": "",
			}),
			status: deploy.EventHandled, commits: "2", file: "env.sh",
		},
		"older form with a message, only of files that are read": {
			files: with(appFile("none"), map[string]string{"env.sh": "TAG=v1\n", ".pipe/old/b.yaml": strings.ReplaceAll(legacy, "env.sh", "none.sh"), ".pipe/b.yaml": legacy}),
			prepare: func(l *env) {
				l.settings.Repositories[0].Files = config.EventWatcherRepository{CommitMessage: "Tag {{ .Value }}"}
				var p config.Pattern
				if err := p.UnmarshalText([]byte("old/**")); err != nil {
					l.t.Fatal(err)
				}
				l.settings.Repositories[0].Files.Excludes = config.Patterns{p}
			},
			status: deploy.EventHandled, commits: "2", file: "env.sh", message: "Tag v2",
		},
		"only signed commits count": {
			files: web("web", "v1"), prepare: func(l *env) { l.tenant = config.Tenant{{Name: "prod", VerifyCommits: &config.VerifyCommits{}}} },
			status: deploy.EventFailure, says: "application web in repository apps requires signed commits", commits: "1",
		},
		"pull request without an API": {
			files: with(appFile(appConfig("makePullRequest: true", setTag))), commits: "1",
			status: deploy.EventHandled, says: "pushed branch image-pushed-e1; open a pull request from it to main",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			up, _ := l.repository("apps", "", c.files)
			l.application("apps", "web")
			if c.prepare != nil {
				c.prepare(l)
			}
			l.register("e1", "v2", appWeb)
			l.run(l.ended("e1"))
			l.want("e1", c.status, c.says)
			if got := commits(t, up); got != c.commits {
				t.Errorf("%s commits, want %s", got, c.commits)
			}
			if c.file != "" && !strings.Contains(content(t, up, c.file), "v2") {
				t.Errorf("%s: %s", c.file, content(t, up, c.file))
			}
			if got := gitOutput(t, up, "log", "-1", "--format=%s"); c.message != "" && got != c.message {
				t.Errorf("message %q, want %q", got, c.message)
			}
		})
	}
}

// TestSymbolicLinksAreNotFollowed: a link could lead out of the application's directory.
func TestSymbolicLinksAreNotFollowed(t *testing.T) {
	l := newEnv(t)
	up := gittest.New(t)
	if err := up.Symlink("web/linked", "../secret"); err != nil {
		t.Fatal(err)
	}
	up.Push(t, "first", map[string]string{"secret/values.yaml": "tag: v1\n", "web/app.pipecd.yaml": appConfig("", "{file: linked/values.yaml, yamlField: $.tag}")})
	l.watch("apps", up.Dir)
	l.application("apps", "web")
	l.register("e1", "v2", appWeb)
	l.run(l.ended("e1"))
	l.want("e1", deploy.EventFailure, "web/linked is a symbolic link")
	if got := content(t, up, "secret/values.yaml"); got != "tag: v1" {
		t.Errorf("the file behind the link holds %s", got)
	}
}

// TestEventsWaitForTheirRule: events without a rule, and those of disabled applications,
// stay open; a rule that is added within the hour applies.
func TestEventsWaitForTheirRule(t *testing.T) {
	l := newEnv(t)
	l.config.Interval = 20 * time.Millisecond
	files := web("web", "v1")
	maps.Copy(files, web("off", "v1"))
	up, mirror := l.repository("apps", "", files)
	off := l.application("apps", "off")
	if err := l.store.SetDisabled(t.Context(), off.ID, true); err != nil {
		t.Fatal(err)
	}
	l.register("more-labels", "v2", map[string]string{"app": "web", "env": "prod"})
	l.register("disabled", "v3", appWeb)
	passes := 0
	l.run(func() bool { passes++; return passes > 20 })
	l.want("more-labels", deploy.EventOpen, "")
	l.want("disabled", deploy.EventOpen, "")
	if got := commits(t, up); got != "1" {
		t.Errorf("%s commits", got)
	}
	l.application("apps", "web")
	l.run(l.ended("disabled"))
	if got := content(t, up, "off/values.yaml") + content(t, up, "web/values.yaml"); strings.Contains(got, "v2") || strings.Count(got, "v3") != 1 {
		t.Errorf("files: %s", got)
	}
	up.Pull(t)
	head := up.Push(t, "a rule", map[string]string{"web/app.pipecd.yaml": strings.Replace(appConfig("", setTag), "{app: web}", "{app: web, env: prod}", 1)})
	if c, _, err := mirror.Sync(t.Context()); err != nil || c.Hash != head {
		t.Fatal(c, err)
	}
	l.run(l.ended("more-labels"))
	if got := content(t, up, "web/values.yaml"); !strings.Contains(got, "v2") {
		t.Errorf("file: %s", got)
	}
}

func TestADisabledAgentWritesNothing(t *testing.T) {
	l := newEnv(t)
	up, _ := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	disable := func(off bool) {
		t.Helper()
		if _, err := l.store.UpdateAgent(t.Context(), func(a *deploy.AgentRecord) { a.Disabled = off }); err != nil {
			t.Fatal(err)
		}
	}
	disable(true)
	l.register("e1", "v2", appWeb)
	polls := 0
	l.run(func() bool {
		if polls++; polls == 10 {
			if got := commits(t, up); got != "1" {
				t.Errorf("%s commits while the agent is disabled", got)
			}
			disable(false)
		}
		return polls > 10 && l.ended("e1")()
	})
	l.want("e1", deploy.EventHandled, "committed")
}

func TestOnlyTheNewestEventOfAKeyCounts(t *testing.T) {
	l := newEnv(t)
	up, _ := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	l.register("e1", "v2", appWeb)
	l.register("e2", "v3", appWeb)
	l.register("other", "v4", nil)
	l.run(l.ended("e1", "e2"))
	l.want("e1", deploy.EventOutdated, "superseded by a newer event of the same name and labels: e2")
	l.want("e2", deploy.EventHandled, "committed")
	if got := content(t, up, "web/values.yaml"); commits(t, up) != "2" || !strings.Contains(got, "v3") {
		t.Errorf("%s commits, file %s", commits(t, up), got)
	}
	// An older open event is outdated also if the newer one was handled before a restart.
	if err := l.store.FinishEvent(t.Context(), "other", deploy.EventHandled, ""); err != nil {
		t.Fatal(err)
	}
	l.register("e3", "v5", appWeb)
	l.register("e4", "v6", appWeb)
	if err := l.store.FinishEvent(t.Context(), "e4", deploy.EventHandled, "by hand"); err != nil {
		t.Fatal(err)
	}
	l.run(l.ended("e3"))
	l.want("e3", deploy.EventOutdated, "e4")
}

func TestEventsCountForAnHour(t *testing.T) {
	l := newEnv(t)
	// The clock of the store is behind the component's by an hour and a second, however long
	// registering takes.
	l.store = storetest.New(t, func() time.Time { return time.Now().Add(-time.Hour - time.Second) })
	l.config.Store = l.store
	up, _ := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	l.register("e1", "v2", appWeb)
	l.register("e2", "v2", nil)
	for id, h := range map[string][]deploy.EventHandling{
		"tried":  {{RepoID: "apps", Status: deploy.EventOpen, Description: "the remote is down"}},
		"half":   {{RepoID: "apps", Status: deploy.EventHandled, Description: "done"}, {RepoID: "more", Status: deploy.EventOpen, Description: "the remote is down"}},
		"whole":  {{RepoID: "apps", Status: deploy.EventHandled, Description: "done"}},
		"failed": {{RepoID: "apps", Status: deploy.EventFailure, Description: "no such field"}, {RepoID: "more", Status: deploy.EventOpen, Description: "down"}},
	} {
		l.register(id, "v", map[string]string{"id": id})
		for _, one := range h {
			if err := l.store.SaveEventHandling(t.Context(), id, one); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.run(l.ended("e1", "e2", "tried", "half", "whole", "failed"))
	l.want("e1", deploy.EventOutdated, "not handled within an hour: no rule")
	l.want("e2", deploy.EventOutdated, "no rule")
	l.want("tried", deploy.EventOutdated, "not handled within an hour: the remote is down")
	l.want("half", deploy.EventFailure, "not handled within an hour: done; the remote is down")
	l.want("whole", deploy.EventHandled, "done")
	l.want("failed", deploy.EventFailure, "no such field; down")
	if got := commits(t, up); got != "1" {
		t.Errorf("%s commits", got)
	}
}

// TestOneCommitInEachRepository: an event that concerns several repositories makes one
// commit in each, and fails if one of them fails.
func TestOneCommitInEachRepository(t *testing.T) {
	l := newEnv(t)
	files := web("a", "v1")
	maps.Copy(files, web("b", "v1"))
	first, _ := l.repository("first", "", files)
	second, _ := l.repository("second", "", map[string]string{"c/app.pipecd.yaml": appConfig("", "{file: values.yaml, yamlField: $.none}"), "c/values.yaml": "tag: v1\n"})
	third, _ := l.repository("third", "", map[string]string{"README": ""})
	l.application("first", "a")
	l.application("first", "b")
	l.application("second", "c")
	l.register("e1", "v2", appWeb)
	l.run(l.ended("e1"))
	e := l.want("e1", deploy.EventFailure, "yamlField $.none is not in the file")
	if !strings.Contains(e.StatusDescription, "committed") || len(e.Handlings) != 2 {
		t.Errorf("%+v", e)
	}
	if commits(t, first) != "2" || commits(t, second) != "1" || commits(t, third) != "1" {
		t.Errorf("commits: %s, %s, %s", commits(t, first), commits(t, second), commits(t, third))
	}
	if got := gitOutput(t, first, "diff", "--stat", "main~1", "main"); !strings.Contains(got, "2 files changed") {
		t.Errorf("the commit changed %s", got)
	}
}

// TestAnotherPushComesFirst: a concurrent push is kept, and the rules are applied again.
func TestAnotherPushComesFirst(t *testing.T) {
	const rounds = 3
	l := newEnv(t)
	up, mirror := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	round := 0
	l.settings.Repositories[0].Git = &racing{mirror, func() {
		if round++; round <= rounds {
			up.Push(t, "theirs", map[string]string{"theirs": strings.Repeat("x", round), "web/values.yaml": "tag: theirs" + strings.Repeat("x", round) + "\nmore: 1\n"})
		}
	}}
	l.register("e1", "v2", appWeb)
	l.run(l.ended("e1"))
	l.want("e1", deploy.EventHandled, "committed")
	if got := content(t, up, "web/values.yaml"); got != "tag: v2\nmore: 1" {
		t.Errorf("file: %q", got)
	}
	if commits(t, up) != "5" || content(t, up, "theirs") != "xxx" {
		t.Errorf("%s commits, theirs %s", commits(t, up), content(t, up, "theirs"))
	}
}

// TestOthersPushWithoutEnd: an event stays open, with the reason, while every push is
// preceded by another one.
func TestOthersPushWithoutEnd(t *testing.T) {
	l := newEnv(t)
	up, mirror := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	busy := true
	l.settings.Repositories[0].Git = &racing{mirror, func() {
		if e, err := l.store.RegisteredEvent(context.Background(), "e1"); busy && err == nil && e.StatusDescription == "" {
			up.Push(t, "theirs", nil)
		} else {
			busy = false
		}
	}}
	l.register("e1", "v2", appWeb)
	l.run(l.ended("e1"))
	l.want("e1", deploy.EventHandled, "committed")
	if got := gitOutput(t, up, "log", "--format=%s", "--grep=Piped-Event-Id"); strings.Count(got, "Replace") != 1 {
		t.Errorf("commits of the event: %s", got)
	}
}

// TestANewerEventComesMeanwhile: a newer event that is registered during a retry
// supersedes the older one.
func TestANewerEventComesMeanwhile(t *testing.T) {
	l := newEnv(t)
	up, mirror := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	var once sync.Once
	l.settings.Repositories[0].Git = &racing{mirror, func() {
		once.Do(func() {
			l.register("e2", "v3", appWeb)
			up.Push(t, "theirs", nil)
		})
	}}
	l.register("e1", "v2", appWeb)
	l.run(func() bool { return l.ended("e1")() && l.ended("e2")() })
	l.want("e1", deploy.EventOutdated, "e2")
	l.want("e2", deploy.EventHandled, "committed")
	if got := content(t, up, "web/values.yaml"); !strings.Contains(got, "v3") || commits(t, up) != "3" {
		t.Errorf("file %s, %s commits", got, commits(t, up))
	}
}

// forgetful is a store that drops handlings, as if the agent had been killed before.
type forgetful struct {
	Store
	kill context.CancelFunc
}

func (f *forgetful) SaveEventHandling(context.Context, string, deploy.EventHandling) error {
	f.kill()
	return errors.New("killed")
}

// TestKilledAfterThePush: an agent that was killed after its push finds its commit again,
// also if the file was changed since.
func TestKilledAfterThePush(t *testing.T) {
	for name, since := range map[string]map[string]string{"nothing since": nil, "changed since": {"web/values.yaml": "tag: by-hand\n"}} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			up, mirror := l.repository("apps", "", web("web", "v1"))
			l.application("apps", "web")
			l.register("e1", "v2", appWeb)
			ctx, kill := context.WithCancel(t.Context())
			first := l.config
			first.Store = &forgetful{l.store, kill}
			if err := New(first).Run(ctx); err != nil {
				t.Fatal(err)
			}
			l.want("e1", deploy.EventOpen, "")
			pushed := gitOutput(t, up, "rev-parse", "main")
			up.Pull(t)
			up.Push(t, "since", since)
			// The mirror of a killed agent may lack its own push.
			_ = mirror
			l.run(l.ended("e1"))
			if e := l.want("e1", deploy.EventHandled, "committed "+pushed[:7]); e.Handling("apps", false).Commit != pushed {
				t.Errorf("%+v, pushed %s", e, pushed)
			}
			if got := commits(t, up); got != "3" {
				t.Errorf("%s commits", got)
			}
			if got := content(t, up, "web/values.yaml"); since != nil && got != "tag: by-hand" {
				t.Errorf("what was changed since was overwritten: %s", got)
			}
		})
	}
}

func TestTheRemoteIsAway(t *testing.T) {
	l := newEnv(t)
	up := gittest.New(t)
	up.Push(t, "first", web("web", "v1"))
	server := up.HTTP(t, gittest.HTTPOptions{Push: true})
	l.watch("apps", server.URL)
	l.application("apps", "web")
	other, _ := l.repository("other", "", web("web", "v1"))
	l.application("other", "web")
	server.SetFault(gittest.Fail(http.StatusBadGateway))
	l.register("e1", "v2", appWeb)
	fixed := false
	l.run(func() bool {
		e := l.event("e1")
		if h := e.Handling("apps", false); !fixed && h.Description != "" && e.Handling("other", false).Status == deploy.EventHandled {
			if e.Status != deploy.EventOpen || !strings.Contains(h.Description, "push to branch main") {
				t.Errorf("while it is away: %+v", e)
			}
			server.SetFault(nil)
			fixed = true
		}
		return e.Status != deploy.EventOpen
	})
	l.want("e1", deploy.EventHandled, "committed")
	if commits(t, up) != "2" || commits(t, other) != "2" {
		t.Errorf("commits: %s, %s", commits(t, up), commits(t, other))
	}
}

// host is a fake PullRequests that opens pull requests or returns an error.
type host struct {
	errs []error
	got  []string
}

func (h *host) Open(_ context.Context, head, base, title, body string) (string, error) {
	h.got = append(h.got, strings.Join([]string{head, base, title, body}, "|"))
	if len(h.errs) > 0 {
		err := h.errs[0]
		h.errs = h.errs[1:]
		return "", err
	}
	return "https://host/1", nil
}

func TestPullRequests(t *testing.T) {
	const asked = "image-pushed-e1|main|Set v2|Piped-Event-Id: e1"
	for name, c := range map[string]struct {
		errs   []error
		status deploy.EventStatus
		says   string
		calls  int
	}{
		"opened":  {nil, deploy.EventHandled, "opened pull request https://host/1", 1},
		"refused": {[]error{deploy.Errorf(deploy.Invalid, "no token")}, deploy.EventFailure, "pushed branch image-pushed-e1, but: no token", 1},
		"later":   {[]error{deploy.Errorf(deploy.Unavailable, "down")}, deploy.EventHandled, "opened pull request", 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newEnv(t)
			files := web("web", "v1")
			files["web/app.pipecd.yaml"] = appConfig("makePullRequest: true\n          commitMessage: Set {{ .Value }}", setTag)
			up, _ := l.repository("apps", "", files)
			l.application("apps", "web")
			h := &host{errs: c.errs}
			l.settings.Repositories[0].PullRequests = h
			// The user who merges signs.
			l.tenant = config.Tenant{{Name: "prod", VerifyCommits: &config.VerifyCommits{}}}
			l.register("e1", "v2", appWeb)
			l.run(l.ended("e1"))
			e := l.want("e1", c.status, c.says)
			branch := gitOutput(t, up, "rev-parse", "image-pushed-e1")
			if got := e.Handling("apps", true); got.Commit != branch || c.status == deploy.EventHandled && got.PullRequestURL != "https://host/1" {
				t.Errorf("handling %+v, branch %s", got, branch)
			}
			for _, got := range h.got {
				if got != asked {
					t.Errorf("asked for %q, want %q", got, asked)
				}
			}
			if len(h.got) != c.calls || commits(t, up) != "1" {
				t.Errorf("%d calls, %s commits", len(h.got), commits(t, up))
			}
		})
	}
}

// TestAHostThatIsAway: an unreachable host's API delays pull requests only.
func TestAHostThatIsAway(t *testing.T) {
	l := newEnv(t)
	files := web("web", "v1")
	files["web/app.pipecd.yaml"] = appConfig("makePullRequest: true", setTag)
	for name, text := range web("api", "v1") {
		files[name] = strings.ReplaceAll(text, "{app: web}", "{app: api}")
	}
	up, _ := l.repository("apps", "", files)
	l.application("apps", "web")
	l.application("apps", "api")
	h := &host{errs: slices.Repeat([]error{deploy.Errorf(deploy.Unavailable, "down")}, 100)}
	l.settings.Repositories[0].PullRequests = h
	now := time.Now()
	l.config.Now = func() time.Time { return now } // a pause does not end on a busy machine either
	l.register("e1", "v2", appWeb)
	l.register("e2", "v2", map[string]string{"app": "api"})
	l.run(l.ended("e2"))
	l.want("e2", deploy.EventHandled, "committed")
	l.want("e1", deploy.EventOpen, "down")
	if got := content(t, up, "api/values.yaml"); !strings.Contains(got, "tag: v2") || len(h.got) > 2 {
		t.Errorf("it holds %q; the host was asked %d times", got, len(h.got))
	}
	h.errs = nil
	l.run(l.ended("e1"))
	l.want("e1", deploy.EventHandled, "opened pull request")
}

// TestUnsignedRulesDoNotCount: rules of a rejected commit are ignored.
func TestUnsignedRulesDoNotCount(t *testing.T) {
	l := newEnv(t)
	up, _ := l.repository("apps", "", web("web", "v1"))
	l.application("apps", "web")
	l.refused = deploy.Errorf(deploy.Invalid, "not signed")
	l.config.Interval = 10 * time.Millisecond
	l.register("e1", "v2", appWeb)
	polls := 0
	l.run(func() bool { polls++; return polls > 20 })
	l.want("e1", deploy.EventOpen, "")
	if got := commits(t, up); got != "1" {
		t.Errorf("%s commits", got)
	}
}

// TestRulesOfAnOlderCommitDoNotCount: rules of a head that does not descend from the
// evaluated commit are ignored if the tenancy rules require it.
func TestRulesOfAnOlderCommitDoNotCount(t *testing.T) {
	for _, required := range []bool{false, true} {
		l := newEnv(t)
		files := web("web", "v1")
		files["web/app.pipecd.yaml"] = appConfig("makePullRequest: true", setTag)
		up, mirror := l.repository("apps", "", files)
		app, first := l.application("apps", "web"), up.Head()
		second := up.Push(t, "second", map[string]string{"other": "x"})
		if err := l.store.SetEvaluatedCommit(t.Context(), second, map[string]string{app.ID: ""}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := mirror.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := up.Reset(first); err != nil {
			t.Fatal(err)
		}
		if _, _, err := mirror.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		l.settings.Repositories[0].PullRequests = &host{}
		l.tenant = config.Tenant{{Name: "prod", VerifyCommits: &config.VerifyCommits{RequireDescendant: required}}}
		l.config.Interval = 10 * time.Millisecond
		l.register("e1", "v2", appWeb)
		if !required {
			l.run(l.ended("e1"))
			l.want("e1", deploy.EventHandled, "opened pull request")
			continue
		}
		polls := 0
		l.run(func() bool { polls++; return polls > 20 })
		l.want("e1", deploy.EventOpen, "")
	}
}
