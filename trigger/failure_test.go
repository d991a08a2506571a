package trigger

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// failures returns the commits that were reported as not deployable, and checks the
// reasons.
func (l *env) failures(dir, reason string) (commits []string) {
	l.t.Helper()
	events, err := l.store.Events(l.t.Context(), 0, 0)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range events {
		if e.Type != deploy.EventTriggerFailed || e.ApplicationID != l.app(dir).ID {
			continue
		}
		d := e.Details()
		commits = append(commits, d.Commit.Message)
		if d.Application != dir || !strings.Contains(d.Reason, reason) {
			l.t.Errorf("event of %q: %q, want %q", d.Application, d.Reason, reason)
		}
	}
	return commits
}

// TestTriggerFailed: an unusable configuration is reported once for each commit
// that changes the application's directory and leaves it so, also when it is the same
// that is wrong, and of an application that is new; not for other commits.
func TestTriggerFailed(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{"web/app.pipecd.yaml": appFile("web"), "new/app.pipecd.yaml": appFile("new", "  timeout: nonsense")})
	l.push("break", map[string]string{"web/app.pipecd.yaml": appFile("web", "  timeout: nonsense")})
	l.push("elsewhere", map[string]string{"readme.md": "hello"})
	l.push("worse", map[string]string{"web/app.pipecd.yaml": appFile("web", "  more: true", "  timeout: nonsense")})
	l.push("fix", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.push("break again", map[string]string{"web/app.pipecd.yaml": appFile("web", "  timeout: nonsense")})
	l.push("change next to it", map[string]string{"web/service.yaml": "# nothing yet"})
	l.push("elsewhere again", map[string]string{"readme.md": "hello again"})
	if diff := cmp.Diff([]string{"break", "worse", "break again", "change next to it"}, l.failures("web", "nonsense")); diff != "" {
		t.Errorf("events of web (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"begin"}, l.failures("new", "nonsense")); diff != "" {
		t.Errorf("events of a new application (-want +got):\n%s", diff)
	}
}

// TestDeploymentsNameWhomToMention: the users that the configuration mentions are on the
// deployment, as in PipeCD; without mentions there are none.
func TestDeploymentsNameWhomToMention(t *testing.T) {
	l := newEnv(t)
	l.push("begin", map[string]string{
		"web/app.pipecd.yaml": appFile("web", "  notification: {mentions: [{event: DEPLOYMENT_FAILED, slackusers: [U1], slackgroups: [S1]}]}"),
		"db/app.pipecd.yaml":  appFile("db"),
	})
	got := map[string]map[string]string{}
	ds, err := l.store.DeploymentsIn(t.Context(), deploy.Pending)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range ds {
		got[d.ApplicationName] = d.Metadata
	}
	want := map[string]map[string]string{
		"web": {deploy.MetaNotification: `{"mentions":[{"event":"DEPLOYMENT_FAILED","slackUsers":["U1"],"slackGroups":["S1"]}]}`},
		"db":  nil,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
}
