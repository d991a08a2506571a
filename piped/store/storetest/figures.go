package storetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testOutcomes: the outcomes of a time range contain the input of the delivery figures.
func testOutcomes(t *testing.T, e *env) {
	web, api := e.putApp(t, "web"), e.putApp(t, "api")
	end := func(id string, a deploy.Application, kind deploy.TriggerKind, takeOver bool, to deploy.Status) deploy.DeploymentOutcome {
		t.Helper()
		n := e.deployment(id, a, kind)
		n.Trigger.TakeOver = takeOver
		n.Trigger.Commit.At = epoch.Add(-time.Hour)
		if _, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: n}); err != nil {
			t.Fatal(err)
		}
		var d deploy.Deployment
		switch to {
		case deploy.Success:
			e.run(t, id)
			d = e.succeed(t, id)
		default:
			d = e.update(t, id, func(d *deploy.Deployment) error { return d.Complete(to, "", e.clock.now()) })
		}
		return deploy.DeploymentOutcome{ApplicationID: a.ID, ApplicationName: a.Name, Status: to, CompletedAt: d.CompletedAt}
	}
	committed := func(o deploy.DeploymentOutcome) deploy.DeploymentOutcome {
		o.CommittedAt = epoch.Add(-time.Hour).UTC().Truncate(time.Millisecond)
		return o
	}
	first := committed(end("1", web, deploy.OnCommit, false, deploy.Failure))
	second := committed(end("2", web, deploy.OnCommit, false, deploy.Failure))
	other := end("3", api, deploy.OnCommit, true, deploy.Success)
	none := committed(end("4", web, deploy.OnCommit, false, deploy.Cancelled))
	restored := end("5", web, deploy.OnCommand, false, deploy.Success)
	later := end("6", web, deploy.OnOutOfSync, false, deploy.Success)
	open := committed(end("7", api, deploy.OnCommit, false, deploy.Failure))
	e.create(t, "8", api) // has not ended
	preview := api
	preview.Git.PullRequest, preview.Name, preview.Labels = 7, "api-pr-7", map[string]string{"team": "core", "name": "api", "pullRequest": "x"}
	preview.ID = deploy.ApplicationID(preview.Git)
	if _, err := e.store.PutApplication(t.Context(), preview); err != nil {
		t.Fatal(err)
	}
	previewed := committed(end("9", preview, deploy.OnCommit, false, deploy.Failure))
	labelled := web
	labelled.Labels = map[string]string{"pullRequest": "7", "team": "core", "name": "web"} // no preview
	if _, err := e.store.PutApplication(t.Context(), labelled); err != nil {
		t.Fatal(err)
	}
	first.RestoredAt, second.RestoredAt = restored.CompletedAt, restored.CompletedAt

	all := []deploy.DeploymentOutcome{first, second, other, none, restored, later, open}
	for name, c := range map[string]struct {
		q    deploy.FiguresQuery
		want []deploy.DeploymentOutcome
	}{
		"all":                            {deploy.FiguresQuery{}, all},
		"from, that moment too":          {deploy.FiguresQuery{From: restored.CompletedAt}, all[4:]},
		"to, without that moment":        {deploy.FiguresQuery{To: other.CompletedAt}, all[:2]},
		"restored after the range":       {deploy.FiguresQuery{From: second.CompletedAt, To: other.CompletedAt}, all[1:2]},
		"of an application":              {deploy.FiguresQuery{ApplicationIDs: []string{api.ID}}, []deploy.DeploymentOutcome{other, open}},
		"of a preview":                   {deploy.FiguresQuery{ApplicationIDs: []string{preview.ID}}, []deploy.DeploymentOutcome{previewed}},
		"of several":                     {deploy.FiguresQuery{ApplicationIDs: []string{api.ID, "nobody", web.ID}}, all},
		"by labels":                      {deploy.FiguresQuery{Labels: map[string]string{"team": "core", "name": "api"}}, []deploy.DeploymentOutcome{other, open}},
		"by an unused label":             {deploy.FiguresQuery{Labels: map[string]string{"team": "none"}}, nil},
		"by a label, of one without it":  {deploy.FiguresQuery{Labels: map[string]string{"name": "api"}, ApplicationIDs: []string{web.ID}}, nil},
		"in a range in which none ended": {deploy.FiguresQuery{From: epoch.Add(-2 * time.Hour), To: epoch.Add(-time.Hour)}, nil},
	} {
		if c.q.To.IsZero() {
			c.q.To = epoch.Add(time.Hour)
		}
		got, err := e.store.Outcomes(t.Context(), c.q)
		slices.SortFunc(got, func(a, b deploy.DeploymentOutcome) int {
			return cmp.Compare(a.CompletedAt.UnixMilli(), b.CompletedAt.UnixMilli())
		})
		if diff := gocmp.Diff(c.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s: (-want +got), %v:\n%s", name, err, diff)
		}
	}
}
