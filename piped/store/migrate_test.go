package store_test

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/google/go-cmp/cmp"
	"github.com/pressly/goose/v3"
)

// TestEarlierSchemasAreMigrated: a database that the first version wrote is
// brought up to date, with what is in it.
func TestEarlierSchemasAreMigrated(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		ctx := t.Context()
		db, dialect := storetest.Raw(t, dsn), goose.DialectPostgres
		if strings.HasPrefix(dsn, "sqlite://") {
			dialect = goose.DialectSQLite3
		}
		first, err := os.ReadFile("migrations/0001_initial.sql")
		if err != nil {
			t.Fatal(err)
		}
		p, err := goose.NewProvider(dialect, db, fstest.MapFS{"0001_initial.sql": {Data: first}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Up(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO applications (id, name, kind, repo_id, spec, sync_status, sync_state, created_at, updated_at)
			VALUES ('a', 'web', 'KUBERNETES', 'repo', '{"provider":"local"}', 'OUT_OF_SYNC', '{"status":"OUT_OF_SYNC"}', 1, 2)`); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(ctx, `INSERT INTO api_keys (id, name, subject, role, hash, disabled, created_at) VALUES
			('k1', 'ci', 'ci', 'READ_ONLY', 'h1', FALSE, 1), ('k2', 'ci', 'ci', 'READ_ONLY', 'h2', FALSE, 2), ('k3', 'ci', 'ci', 'READ_ONLY', 'h3', TRUE, 3)`); err != nil {
			t.Fatal(err)
		}

		s := storetest.Open(t, dsn, nil)
		a, err := s.Application(ctx, "a")
		if err != nil || a.Name != "web" || a.Provider != "local" || a.Notice != "" || !a.NoticeAt.IsZero() {
			t.Errorf("after the migration: %+v, %v", a, err)
		}
		if apps, err := s.DriftedApplications(ctx); err != nil || len(apps) != 1 {
			t.Errorf("drifted: %+v, %v", apps, err)
		}
		var names []string
		keys, err := s.APIKeys(ctx)
		for _, k := range keys {
			names = append(names, k.Name)
		}
		if diff := cmp.Diff([]string{"ci", "ci k2", "ci"}, names); err != nil || diff != "" {
			t.Errorf("error %v; names of API keys (-want +got):\n%s", err, diff)
		}
		if list, _, err := s.ListApplications(ctx, store.ApplicationQuery{}); err != nil || len(list) != 1 {
			t.Errorf("list: %+v, %v", list, err)
		}
	})
}

// TestEarlierClaimsAreKept: what an application claimed when claims went by platform provider
// stays its own when the identity of the provider's cluster is known.
func TestEarlierClaimsAreKept(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		ctx := t.Context()
		db, dialect := storetest.Raw(t, dsn), goose.DialectPostgres
		if strings.HasPrefix(dsn, "sqlite://") {
			dialect = goose.DialectSQLite3
		}
		p, err := goose.NewProvider(dialect, db, os.DirFS("migrations"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.UpTo(ctx, 25); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			`INSERT INTO applications (id, name, kind, repo_id, spec, sync_status, sync_state, created_at, updated_at) VALUES
				('a', 'a', 'KUBERNETES', 'repo', '{"provider":"prod"}', 'SYNCED', '{}', 1, 2), ('b', 'b', 'KUBERNETES', 'repo', '{"provider":"prod"}', 'SYNCED', '{}', 1, 2)`,
			`INSERT INTO claims (cluster, api_group, kind, namespace, name, application_id, deployment_id) VALUES ('prod', '', 'ConfigMap', 'shop', 'x', 'a', 'd')`,
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		s := storetest.Open(t, dsn, nil)
		x := deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "x"}
		if err := s.PutInventory(ctx, deploy.InventoryItem{ApplicationID: "a", Cluster: "prod", Object: x, UID: "1"}); err != nil {
			t.Fatal(err)
		}
		for _, app := range []string{"b", "a"} {
			taken, err := s.ClaimObjects(ctx, store.Claim{ApplicationID: app, Cluster: "uid", Provider: "prod", DeploymentID: "d-" + app}, x)
			if err != nil || (len(taken) > 0) != (app == "b") {
				t.Errorf("claim for %s: %v, %v", app, taken, err)
			}
		}
	})
}

// TestEarlierPlanPreviewsAreListed: plan previews that were requested before accounts were stored
// are listed by their subject.
func TestEarlierPlanPreviewsAreListed(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) {
		ctx := t.Context()
		db, dialect := storetest.Raw(t, dsn), goose.DialectPostgres
		if strings.HasPrefix(dsn, "sqlite://") {
			dialect = goose.DialectSQLite3
		}
		p, err := goose.NewProvider(dialect, db, os.DirFS("migrations"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.UpTo(ctx, 31); err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			`INSERT INTO commands (id, type, application_id, deployment_id, stage_id, body, status, metadata, created_at, updated_at) VALUES
				('c', 'BUILD_PLAN_PREVIEW', '', '', '', '{"commander":"ann","planPreview":{"repoID":"repo"}}', 'NOT_HANDLED_YET', '', 1, 1)`,
			`INSERT INTO plan_preview_requests (command_id, repo_id, head_branch, pull_request, commander, requested_at) VALUES ('c', 'repo', 'pr', 0, 'ann', 1)`,
		} {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		s := storetest.Open(t, dsn, nil)
		c, err := s.Command(ctx, "c")
		if err != nil || c.Account != "" {
			t.Fatalf("the command: %+v, %v", c, err)
		}
		for _, r := range []deploy.Requester{{Account: "key-1", Subject: "ann"}, {Account: "corp/ann", Subject: "ann"}, {Account: "corp/ben", Subject: "ben"}} {
			list, _, err := s.PlanPreviews(ctx, store.PlanPreviewQuery{Requester: &r})
			if want := r.Subject == "ann"; err != nil || (len(list) == 1) != want || r.Requested(c) != want {
				t.Errorf("for %v: %+v, %v", r, list, err)
			}
		}
	})
}
