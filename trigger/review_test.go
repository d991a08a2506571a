package trigger

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// clusterOf is a Live of what others have in a cluster, by directory.
type clusterOf struct {
	foreign map[string][]deploy.AdoptedObject
	running []string
	err     error
}

func (c *clusterOf) RunningCommits(context.Context, string, deploy.GitPath, string) ([]string, error) {
	return c.running, c.err
}

func (c *clusterOf) Foreign(_ context.Context, _ string, app deploy.Application, _ string) ([]deploy.AdoptedObject, error) {
	return c.foreign[app.Git.Dir], c.err
}

func theirs(names ...string) (out []deploy.AdoptedObject) {
	for _, name := range names {
		out = append(out, deploy.AdoptedObject{Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "n", Name: name}, Managers: []string{"kubectl"}})
	}
	return out
}

// newReviewEnv has an application "web" whose objects one, two and three are live and
// are not its own, and that is to be reviewed.
func newReviewEnv(t *testing.T, more ...string) (*env, *clusterOf) {
	t.Helper()
	c := &clusterOf{foreign: map[string][]deploy.AdoptedObject{"web": theirs("one", "two", "three")}}
	l := newEnv(t, func(_ *env, cfg *Config) { cfg.Live, cfg.Review = c, true })
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web", more...)})
	return l, c
}

func (l *env) application(dir string) deploy.Application {
	l.t.Helper()
	app, err := l.store.Application(l.t.Context(), appID(dir))
	must(l.t, err)
	return app
}

// awaited returns the names of the objects that await a decision, and its token.
func (l *env) awaited() (names []string, token string) {
	l.t.Helper()
	list, err := l.store.Adoptions(l.t.Context())
	must(l.t, err)
	for _, a := range list {
		token = a.Token
		for _, o := range a.Objects {
			names = append(names, o.Object.Name)
		}
	}
	return names, token
}

// decide asks for a decision, polls, and returns the answer.
func (l *env) decide(accept bool, token string) deploy.Command {
	l.t.Helper()
	id := l.newID()
	_, err := l.store.CreateCommand(l.t.Context(), deploy.Command{
		ID: id, Type: deploy.CommandDecideAdoption, ApplicationID: appID("web"), Commander: "ann", Accept: accept, Token: token,
	})
	must(l.t, err)
	l.poll()
	return l.command(id)
}

// TestReview: nothing is deployed, by a commit or by hand, before what it takes over is
// permitted; the list is that of the last poll.
func TestReview(t *testing.T) {
	l, c := newReviewEnv(t, "  trigger: {onChain: {disabled: false}}")
	names, first := l.awaited()
	if diff := cmp.Diff([]string{"one", "two", "three"}, names); diff != "" {
		t.Fatalf("awaited (-want +got):\n%s", diff)
	}
	if notice := l.application("web").Notice; !strings.HasPrefix(notice, "Not deployed yet: 3 live objects are not the application's") || !strings.Contains(notice, "ConfigMap n/one") {
		t.Errorf("the notice is %q", notice)
	}
	l.push("more", map[string]string{"web/x.yaml": "1", "new/app.pipecd.yaml": appFile("new")})
	for _, kind := range []deploy.CommandType{deploy.CommandSync, deploy.CommandChainSync, deploy.CommandRetry} {
		id := l.newID()
		_, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: id, Type: kind, ApplicationID: appID("web"), Commander: "ann"})
		must(t, err)
		l.poll()
		if got := l.command(id); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "pipectl application adopt --app-id="+appID("web")) {
			t.Errorf("%s was answered %+v", kind, got)
		}
	}
	if got := l.deployments("web"); got != nil {
		t.Fatalf("deployed: %v", got)
	}
	if diff := cmp.Diff([]string{"more PENDING"}, l.deployments("new")); diff != "" {
		t.Errorf("of the application with nothing live (-want +got):\n%s", diff)
	}

	c.foreign["web"] = theirs("one", "other")
	if got := l.decide(true, first); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "has changed since it was listed") {
		t.Errorf("a decision on what has changed was answered %+v", got)
	}
	names, second := l.awaited()
	if diff := cmp.Diff([]string{"one", "other"}, names); diff != "" || first == second {
		t.Errorf("awaited after the change (-want +got):\n%s", diff)
	}
	c.foreign["web"] = theirs("one")
	l.pass(reviewEvery)
	l.poll()
	if names, _ := l.awaited(); len(names) != 1 {
		t.Errorf("a later poll awaits %v", names)
	}

	_, third := l.awaited()
	if got := l.decide(true, third); got.Status != deploy.CommandSucceeded {
		t.Fatalf("the decision was answered %+v", got)
	}
	l.poll() // that the decision has asked for
	if diff := cmp.Diff([]string{"more PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployed after the decision (-want +got):\n%s", diff)
	}
	if app := l.application("web"); app.Notice != "" {
		t.Errorf("it still says %q", app.Notice)
	}
	l.end("web", deploy.Failure)
	l.push("again", map[string]string{"web/x.yaml": "2"})
	if names, _ := l.awaited(); len(names) != 0 {
		t.Errorf("what was permitted is asked for again: %v", names)
	}
}

// TestReviewGoesOnAsAutoDoes: what is permitted to be taken over is taken over from the
// commit that runs.
func TestReviewGoesOnAsAutoDoes(t *testing.T) {
	l, c := newReviewEnv(t)
	c.running = []string{l.application("web").EvaluatedCommit}
	older := l.upstream.Push(t, "runs", map[string]string{"web/x.yaml": "1"})
	c.running = []string{older}
	l.push("head", map[string]string{"web/x.yaml": "2"})
	list, err := l.store.Adoptions(t.Context())
	must(t, err)
	if len(list) != 1 || list[0].RunningCommit != older {
		t.Fatalf("awaited: %+v", list)
	}
	if got := l.decide(true, list[0].Token); got.Status != deploy.CommandSucceeded {
		t.Fatalf("answered %+v", got)
	}
	l.poll()
	if diff := cmp.Diff([]string{"runs PENDING"}, l.deployments("web")); diff != "" || !l.all("web")[0].Trigger.TakeOver {
		t.Errorf("deployed (-want +got):\n%s", diff)
	}
}

// TestRejectedReview: a rejected application is disabled, and asked for again when it is
// enabled.
func TestRejectedReview(t *testing.T) {
	l, _ := newReviewEnv(t)
	_, token := l.awaited()
	if got := l.decide(false, "another"); got.Status != deploy.CommandFailed {
		t.Errorf("a decision on another list was answered %+v", got)
	}
	if got := l.decide(false, token); got.Status != deploy.CommandSucceeded {
		t.Fatalf("answered %+v", got)
	}
	if app := l.application("web"); !app.Disabled || app.Notice != "" {
		t.Errorf("the application is %+v", app)
	}
	l.poll()
	if names, _ := l.awaited(); len(names) != 0 {
		t.Errorf("awaited of a disabled application: %v", names)
	}
	must(t, l.store.SetDisabled(t.Context(), appID("web"), false))
	l.pass(reconcileRest * 3)
	l.poll()
	if names, again := l.awaited(); len(names) != 3 || again != token {
		t.Errorf("enabled again, it awaits %v", names)
	}
	if got := l.decide(true, again(l)); got.Status != deploy.CommandSucceeded {
		t.Errorf("answered %+v", got)
	}
}

// TestReviewOfADisabledApplication: a list that was made before stays, and is decided on
// as any other; what is permitted is deployed once the application is enabled.
func TestReviewOfADisabledApplication(t *testing.T) {
	l, _ := newReviewEnv(t)
	must(t, l.store.SetDisabled(t.Context(), appID("web"), true))
	l.poll()
	names, token := l.awaited()
	if len(names) != 3 {
		t.Fatalf("awaited of a disabled application: %v", names)
	}
	if got := l.decide(true, token); got.Status != deploy.CommandSucceeded {
		t.Fatalf("the decision was answered %+v", got)
	}
	l.poll()
	if got := l.deployments("web"); got != nil {
		t.Errorf("deployed while it is disabled: %v", got)
	}
	must(t, l.store.SetDisabled(t.Context(), appID("web"), false))
	l.poll()
	if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployed once it is enabled (-want +got):\n%s", diff)
	}
}

func again(l *env) string {
	_, token := l.awaited()
	return token
}

// TestReviewOfASilentCluster: an application whose cluster does not answer is not
// deployed by hand either, nor is a decision carried out that cannot be checked.
func TestReviewOfASilentCluster(t *testing.T) {
	l, c := newReviewEnv(t)
	_, token := l.awaited()
	c.err = deploy.Errorf(deploy.Unavailable, "the cluster is down")
	if got := l.decide(true, token); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "the cluster is down") {
		t.Errorf("answered %+v", got)
	}
	id := l.newID()
	_, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: id, Type: deploy.CommandSync, ApplicationID: appID("web")})
	must(t, err)
	l.poll()
	if got := l.command(id); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "could not be found out: the cluster is down") {
		t.Errorf("a sync was answered %+v", got)
	}
	if names, still := l.awaited(); len(names) != 3 || still != token {
		t.Errorf("awaited: %v", names)
	}
	c.err = nil
	l.pass(maxSilence)
	if got := l.decide(true, token); got.Status != deploy.CommandSucceeded {
		t.Errorf("once it answers, the decision was answered %+v", got)
	}
}

// TestNothingToReviewAnyMore: what is the application's by now, or what the
// configuration does not ask for any more, awaits nothing.
func TestNothingToReviewAnyMore(t *testing.T) {
	t.Run("gone", func(t *testing.T) {
		l, c := newReviewEnv(t)
		_, token := l.awaited()
		c.foreign["web"] = nil
		if got := l.decide(true, token); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "nothing to take over any more") {
			t.Errorf("answered %+v", got)
		}
		l.pass(reviewEvery)
		l.poll()
		if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("web")); diff != "" || l.application("web").Notice != "" {
			t.Errorf("deployed (-want +got):\n%s", diff)
		}
	})
	t.Run("not asked for", func(t *testing.T) {
		l, c := newReviewEnv(t)
		l.restart(func(_ *env, cfg *Config) { cfg.Live = c })
		l.poll()
		if names, _ := l.awaited(); len(names) != 0 || l.application("web").Notice != "" {
			t.Errorf("awaited: %v, notice %q", names, l.application("web").Notice)
		}
		if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments("web")); diff != "" {
			t.Errorf("deployed (-want +got):\n%s", diff)
		}
	})
	t.Run("synced by hand alone", func(t *testing.T) {
		l, _ := newReviewEnv(t, "  trigger: {onCommit: {disabled: true}}")
		if names, _ := l.awaited(); len(names) != 3 {
			t.Errorf("awaited: %v", names)
		}
		if got := l.decide(true, again(l)); got.Status != deploy.CommandSucceeded {
			t.Errorf("answered %+v", got)
		}
		l.poll()
		if got := l.deployments("web"); got != nil {
			t.Errorf("deployed without being asked to: %v", got)
		}
	})
}
