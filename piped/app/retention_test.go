package app

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// TestOldDeploymentsGo: an agent removes deployments beyond its configured retention, and
// counts them.
func TestOldDeploymentsGo(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir(), more: "  retention: {deployments: 168h, keepPerApplication: 2}\n"}
	fillWithOld(t, "sqlite://"+filepath.Join(s.dataDir, "piped.db"), 5)
	agent := runReloadingWith(t, s, Options{RemoveAfter: time.Millisecond})
	agent.awaitLog("removed old data\" component=retention deployments=3 rollouts=0 commands=0 lines=5")
	if got := scrape(t, "http://"+agent.app.WebAddr()+"/metrics")["piped_retention_removed_deployments_total{}"]; got != 3 {
		t.Errorf("%v deployments were counted, want 3", got)
	}
}

// fillWithOld creates a store with deployments that ended a month ago, each with a log
// line, and whose notifications were all delivered.
func fillWithOld(t *testing.T, dsn string, n int) {
	t.Helper()
	ctx, at := t.Context(), time.Now().Add(-30*24*time.Hour)
	st, err := store.Open(ctx, dsn, store.Options{Now: func() time.Time { at = at.Add(time.Millisecond); return at }})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	app := deploy.Application{ID: "web", Name: "web", Kind: deploy.KindKubernetes}
	_, err = st.PutApplication(ctx, app)
	must(err)
	for i := range n {
		d := deploy.Deployment{ID: fmt.Sprintf("d%d", i), ApplicationID: app.ID, ApplicationName: app.Name, Status: deploy.Pending,
			Trigger: deploy.Trigger{Kind: deploy.OnCommand, At: at, Commit: deploy.Commit{Hash: "c0ffee"}}}
		_, err := st.CreateDeployment(ctx, store.NewDeployment{Deployment: d})
		must(err)
		must(st.AppendStageLogs(ctx, []deploy.LogBlock{{DeploymentID: d.ID, StageID: "sync", Log: "said", At: at}}))
		_, err = st.UpdateDeployment(ctx, d.ID, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", at) })
		must(err)
	}
	events, err := st.Events(ctx, 0, 0)
	must(err)
	var seqs []int64
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	must(st.RouteEvents(ctx, seqs))
	must(st.Close())
}
