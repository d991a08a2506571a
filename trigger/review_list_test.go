package trigger

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestPermissionCountsForItsList: until the first success, what was not on the list that
// was permitted is asked for, by a commit and by hand; what was is not asked for again.
func TestPermissionCountsForItsList(t *testing.T) {
	l, c := newReviewEnv(t)
	_, token := l.awaited()
	if got := l.decide(true, token); got.Status != deploy.CommandSucceeded {
		t.Fatalf("the decision was answered %+v", got)
	}
	l.poll()
	l.end("web", deploy.Failure)
	c.foreign["web"] = theirs("two")
	l.push("fewer", map[string]string{"web/x.yaml": "1"})
	if diff := cmp.Diff([]string{"begin FAILURE", "fewer PENDING"}, l.deployments("web")); diff != "" {
		t.Fatalf("of what was permitted (-want +got):\n%s", diff)
	}
	l.end("web", deploy.Failure)

	c.foreign["web"] = theirs("four", "two")
	l.push("more", map[string]string{"web/x.yaml": "2"})
	names, token := l.awaited()
	if diff := cmp.Diff([]string{"four", "two"}, names); diff != "" {
		t.Errorf("awaited with one more object (-want +got):\n%s", diff)
	}
	if notice := l.application("web").Notice; !strings.Contains(notice, "ConfigMap n/four") {
		t.Errorf("the notice is %q", notice)
	}
	id := l.newID()
	_, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: id, Type: deploy.CommandSync, ApplicationID: appID("web")})
	must(t, err)
	l.poll()
	if got := l.command(id); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "ConfigMap n/four") {
		t.Errorf("a sync was answered %+v", got)
	}
	if diff := cmp.Diff([]string{"begin FAILURE", "fewer FAILURE"}, l.deployments("web")); diff != "" {
		t.Errorf("before the second decision (-want +got):\n%s", diff)
	}
	if got := l.decide(true, token); got.Status != deploy.CommandSucceeded {
		t.Fatalf("the second decision was answered %+v", got)
	}
	l.poll()
	if diff := cmp.Diff([]string{"begin FAILURE", "fewer FAILURE", "more PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("after the second decision (-want +got):\n%s", diff)
	}
	l.end("web", deploy.Failure)

	c.foreign["web"] = theirs("two")
	c.foreign["web"][0].OwnerApplicationID = "another"
	l.push("theirs by now", map[string]string{"web/x.yaml": "3"})
	if names, _ := l.awaited(); len(names) != 1 {
		t.Errorf("awaited of what has changed hands: %v", names)
	}
}

// locked is a Live that cannot list what is live of some directories.
type locked struct {
	*clusterOf
	why map[string]error
}

func (c *locked) Foreign(ctx context.Context, provider string, app deploy.Application, commit string) ([]deploy.AdoptedObject, error) {
	if err := c.why[app.Git.Dir]; err != nil {
		return nil, err
	}
	return c.clusterOf.Foreign(ctx, provider, app, commit)
}

// TestReviewOfWhatMayNotBeRead: an application is held, with the reason, as long as what
// it would take over cannot be listed; others of the cluster are not.
func TestReviewOfWhatMayNotBeRead(t *testing.T) {
	c := &locked{&clusterOf{}, map[string]error{"web": deploy.Errorf(deploy.Invalid, "secrets is forbidden")}}
	l := newEnv(t, func(_ *env, cfg *Config) { cfg.Live, cfg.Review = c, true })
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.push("more", map[string]string{"web/x.yaml": "1", "new/app.pipecd.yaml": appFile("new")})
	if got := l.deployments("web"); got != nil {
		t.Errorf("deployed unseen: %v", got)
	}
	if notice := l.application("web").Notice; !strings.Contains(notice, "could not be found out: secrets is forbidden") {
		t.Errorf("the notice is %q", notice)
	}
	if diff := cmp.Diff([]string{"more PENDING"}, l.deployments("new")); diff != "" {
		t.Errorf("of another application (-want +got):\n%s", diff)
	}
	id := l.newID()
	_, err := l.store.CreateCommand(t.Context(), deploy.Command{ID: id, Type: deploy.CommandSync, ApplicationID: appID("web")})
	must(t, err)
	l.poll()
	if got := l.command(id); got.Status != deploy.CommandFailed || !strings.Contains(got.Metadata[deploy.MetaReason], "secrets is forbidden") {
		t.Errorf("a sync was answered %+v", got)
	}
	c.why = nil
	l.pass(reviewEvery)
	l.poll()
	if diff := cmp.Diff([]string{"more PENDING"}, l.deployments("web")); diff != "" || l.application("web").Notice != "" {
		t.Errorf("once it may be read, with the notice %q (-want +got):\n%s", l.application("web").Notice, diff)
	}
}
