package backup_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/backup"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
)

var postgres pgtest.Server

func TestMain(m *testing.M) { os.Exit(postgres.Main(m)) }

var engines = map[string]func(testing.TB) string{"SQLite": storetest.SQLite, "PostgreSQL": postgres.NewDSN}

var at = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// written returns a backup of a store.
func written(t testing.TB, s *store.Store) []byte {
	t.Helper()
	var b bytes.Buffer
	_, err := backup.Write(t.Context(), &b, backup.Source{Store: s, Files: map[string][]byte{"store.key": {0, 1, 2}}, Version: "v1.2.3", At: at})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// restored restores a backup into a database.
func restored(t testing.TB, archive []byte, dsn string) backup.Contents {
	t.Helper()
	c, err := backup.Read(t.Context(), bytes.NewReader(archive), nothing)
	if err != nil {
		t.Fatal(err)
	}
	err = store.Restore(t.Context(), dsn, c.Schema, func(put store.Put) error {
		_, err := backup.Read(t.Context(), bytes.NewReader(archive), put)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func nothing(store.Table, []any) error { return nil }

// TestRoundTrip: every row of every table is restored unchanged, between all engines, and the
// store is usable.
func TestRoundTrip(t *testing.T) {
	for fromName, from := range engines {
		for intoName, into := range engines {
			t.Run(fromName+" into "+intoName, func(t *testing.T) {
				source, target := from(t), into(t)
				s := storetest.Open(t, source, nil)
				storetest.Fill(t, s)
				want := storetest.Rows(t, source)
				for name, rows := range want {
					if len(rows) == 0 {
						t.Errorf("table %s has no row: let storetest.Fill write one", name)
					}
				}
				c := restored(t, written(t, s), target)
				got := storetest.Rows(t, target)
				if n := len(got["store_identity"]); n != 0 {
					t.Errorf("the restored store has the identity of the one that was backed up, %d rows", n)
				}
				got["store_identity"] = want["store_identity"]
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("restored (-there +here):\n%s", diff)
				}
				about := backup.Contents{Header: backup.Header{Format: 1, Schema: s.State(t.Context()).SchemaVersion, Version: "v1.2.3", At: at},
					Files: map[string][]byte{"store.key": {0, 1, 2}}, Rows: map[string]int64{}}
				for name, rows := range want {
					about.Rows[name] = int64(len(rows))
				}
				if diff := cmp.Diff(about, c, cmpopts.IgnoreFields(backup.Header{}, "Tables")); diff != "" {
					t.Errorf("contents (-want +got):\n%s", diff)
				}
				goesOn(t, storetest.Open(t, target, nil))
			})
		}
	}
}

// goesOn uses a restored store that storetest.Fill had filled.
func goesOn(t *testing.T, s *store.Store) {
	ctx := t.Context()
	before, err := s.Events(ctx, 0, 0)
	if err != nil || len(before) == 0 {
		t.Fatalf("events: %v, %v", before, err)
	}
	if _, err := s.UpdateDeployment(ctx, "d1", func(d *deploy.Deployment) error { return d.StartStage("sync", time.Now()) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Announce(ctx, deploy.Event{Key: "after", Type: deploy.EventPipedStarted, Payload: []byte(`{}`), At: at}); err != nil {
		t.Fatal(err)
	}
	after, err := s.Events(ctx, before[len(before)-1].Seq, 0)
	if err != nil || len(after) == 0 || after[len(after)-1].Key != "after" {
		t.Errorf("events since: %+v, %v", after, err)
	}
	set, err := s.AppliedSet(ctx, "d1")
	if err != nil || string(set.Objects) != `[{"kind":"Secret"}]` {
		t.Errorf("what was encrypted: %q, %v", set.Objects, err)
	}
}

// TestLargeTables: tables larger than a member, and a row larger than a member.
func TestLargeTables(t *testing.T) {
	source, target := storetest.Ready(t), storetest.SQLite(t)
	s := storetest.Open(t, source, nil)
	storetest.Fill(t, s)
	for stage, size := range map[string]int{"many": 30_000, "one": 5 << 20} {
		var blocks []deploy.LogBlock
		for i := range (5 << 20) / size {
			blocks = append(blocks, deploy.LogBlock{DeploymentID: "d1", StageID: stage, Index: int64(i), Severity: deploy.SeverityInfo, Log: strings.Repeat("log ", size/4), At: at})
		}
		if err := s.AppendStageLogs(t.Context(), blocks); err != nil {
			t.Fatal(err)
		}
	}
	archive := written(t, s)
	chunks := 0
	for _, m := range members(t, archive) {
		if strings.HasPrefix(m.name, "tables/stage_logs/") {
			chunks++
		}
	}
	if chunks < 2 {
		t.Errorf("10 MB are in %d members", chunks)
	}
	restored(t, archive, target)
	want, got := storetest.Rows(t, source), storetest.Rows(t, target)
	delete(want, "store_identity") // a restored store gets a new ID
	delete(got, "store_identity")
	if !cmp.Equal(want, got) {
		t.Error("other rows came back")
	}
}

// TestOlderSchema: a backup of an older version is migrated.
func TestOlderSchema(t *testing.T) {
	const schema = 11
	archive := pack(t, sealed(t, []entry{
		{"header.json", asJSON(t, headerOf(t, schema))},
		{"tables/api_keys/0001.jsonl", `["k1","ci","ci","READ_ONLY","aGFzaA==",false,1]` + "\n" + `["k2","ci","ci","READ_ONLY","aGFzaA==",false,2]`},
		{"tables/applications/0001.jsonl", `["a","web","KUBERNETES","repo","{\"provider\":\"local\"}",false,false,0,"SYNCED","{}","c","","","",1,2,"",0,""]`},
		{"tables/counters/0001.jsonl", `["outbox",7]`},
	}))
	for name, into := range engines {
		t.Run(name, func(t *testing.T) {
			target := into(t)
			if c := restored(t, archive, target); c.Total() != 4 || c.Schema != schema {
				t.Errorf("contents: %+v", c)
			}
			s := storetest.Open(t, target, nil)
			if a, err := s.Application(t.Context(), "a"); err != nil || a.Name != "web" || a.Provider != "local" {
				t.Errorf("application: %+v, %v", a, err)
			}
			keys, err := s.APIKeys(t.Context())
			if err != nil || len(keys) != 2 || keys[1].Name != "ci k2" || string(keys[1].Hash) != "hash" { // a later migration made names unique
				t.Errorf("keys: %+v, %v", keys, err)
			}
			if err := s.Announce(t.Context(), deploy.Event{Key: "next", Type: deploy.EventPipedStarted, Payload: []byte(`{}`), At: at}); err != nil {
				t.Fatal(err)
			}
			if events, err := s.Events(t.Context(), 0, 0); err != nil || len(events) != 1 || events[0].Seq != 8 {
				t.Errorf("events: %+v, %v", events, err)
			}
		})
	}
}

// TestSessionsAreNotRestored: a backup holds no session and no sign-in, so that a restore brings
// none back that was ended since. Who was disabled stays so.
func TestSessionsAreNotRestored(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			s, target := storetest.Open(t, engine(t), nil), engine(t)
			storetest.Fill(t, s)
			if open, _, err := s.Sessions(t.Context(), store.SessionQuery{OpenOnly: true}); err != nil || len(open) == 0 {
				t.Fatalf("open sessions: %v, %v", open, err)
			}
			archive := written(t, s)
			for _, m := range members(t, archive) {
				if strings.Contains(m.name, "sessions") || strings.Contains(m.name, "sign_in") {
					t.Errorf("the backup has %s", m.name)
				}
			}
			restored(t, archive, target)
			there := storetest.Open(t, target, nil)
			if all, _, err := there.Sessions(t.Context(), store.SessionQuery{}); err != nil || len(all) != 0 {
				t.Errorf("restored sessions: %v, %v", all, err)
			}
			if _, err := there.TakeSignInState(t.Context(), []byte("state")); !deploy.IsKind(err, deploy.NotFound) {
				t.Errorf("restored sign-in: %v", err)
			}
			again := deploy.Session{ID: "again", Hash: []byte("again"), User: deploy.User{Issuer: "corp", Subject: "joe"}, ExpiresAt: time.Now().Add(time.Hour)}
			if err := there.CreateSession(t.Context(), again); !deploy.IsKind(err, deploy.Denied) {
				t.Errorf("a disabled user signed in after the restore: %v", err)
			}
			again.User.Subject = "jane"
			if err := there.CreateSession(t.Context(), again); err != nil {
				t.Errorf("sign in again: %v", err)
			}
			before, _, err := there.ListAudit(t.Context(), store.AuditQuery{})
			if err != nil || len(before) != 1 {
				t.Fatalf("audit log: %+v, %v", before, err)
			}
			if err := there.AppendAudit(t.Context(), deploy.AuditRecord{Subject: "jane"}); err != nil {
				t.Fatal(err)
			}
			if after, _, err := there.ListAudit(t.Context(), store.AuditQuery{Subject: "jane", Limit: 1}); err != nil || after[0].ID != before[0].ID+1 {
				t.Errorf("audit log: %+v, %v", after, err)
			}
		})
	}
}

// TestWhileWritersWrite: a backup is a consistent snapshot: transactions are contained
// completely or not at all.
func TestWhileWritersWrite(t *testing.T) {
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			s := storetest.Open(t, engine(t), nil)
			storetest.Fill(t, s)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var writers sync.WaitGroup
			wrote := make(chan struct{})
			for w := range 2 {
				writers.Go(func() { write(ctx, t, s, w, wrote) })
			}
			var archives [][]byte
			for range 2 {
				<-wrote
				archives = append(archives, written(t, s))
			}
			stop()
			writers.Wait()
			for i, archive := range archives {
				target := storetest.SQLite(t)
				c := restored(t, archive, target)
				consistent(t, target)
				if c.Rows["deployments"] < int64(2+i) {
					t.Errorf("backup %d has %d deployments", i, c.Rows["deployments"])
				}
			}
		})
	}
}

// write creates and completes deployments until ctx ends and signals each one on wrote. After
// an error it keeps signalling, so that no receiver blocks.
func write(ctx context.Context, t *testing.T, s *store.Store, writer int, wrote chan<- struct{}) {
	a := deploy.Application{ID: fmt.Sprint("app-", writer), Name: "a", Git: deploy.GitPath{RepoID: "repo"}, Labels: map[string]string{"a": "b"}}
	_, err := s.PutApplication(ctx, a)
	for n := 0; err == nil; n++ {
		id := fmt.Sprint(writer, "-", n)
		d := deploy.Deployment{ID: id, ApplicationID: a.ID, ApplicationName: a.Name, Labels: a.Labels, Status: deploy.Pending,
			Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: at, Commit: deploy.Commit{Hash: "c-" + id}}}
		if _, err = s.CreateDeployment(ctx, store.NewDeployment{Deployment: d}); err != nil {
			break
		}
		_, err = s.UpdateDeployment(ctx, id, func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", at) })
		select {
		case wrote <- struct{}{}:
		default:
		}
	}
	if ctx.Err() == nil {
		t.Error(err)
	}
	for ctx.Err() == nil { // unblock receivers
		select {
		case wrote <- struct{}{}:
		case <-ctx.Done():
		}
	}
}

// consistent checks the invariants of the store's transactions.
func consistent(t *testing.T, dsn string) {
	t.Helper()
	for what, query := range map[string]string{
		"deployments whose log has another end": `SELECT COUNT(*) FROM deployments d WHERE d.status = 'CANCELLED'
			AND NOT EXISTS (SELECT 1 FROM transitions t WHERE t.deployment_id = d.id AND t.to_status = 'CANCELLED')`,
		"ends in the log that deployments do not have": `SELECT COUNT(*) FROM transitions t JOIN deployments d ON d.id = t.deployment_id
			WHERE t.stage_id = '' AND t.to_status = 'CANCELLED' AND d.status <> 'CANCELLED'`,
		"deployments without their label":             `SELECT COUNT(*) FROM deployments d WHERE NOT EXISTS (SELECT 1 FROM deployment_labels l WHERE l.deployment_id = d.id)`,
		"deployments without an event":                `SELECT COUNT(*) FROM deployments d WHERE NOT EXISTS (SELECT 1 FROM outbox o WHERE o.deployment_id = d.id)`,
		"events of deployments that there are not":    `SELECT COUNT(*) FROM outbox o WHERE o.deployment_id <> '' AND NOT EXISTS (SELECT 1 FROM deployments d WHERE d.id = o.deployment_id)`,
		"numbers of events that were given before":    `SELECT COUNT(*) FROM counters WHERE name = 'outbox' AND value <> (SELECT MAX(seq) FROM outbox)`,
		"ends of applications that are not evaluated": `SELECT COUNT(*) FROM deployments d JOIN applications a ON a.id = d.application_id WHERE a.last_triggered = ''`,
	} {
		var n int
		if err := storetest.Raw(t, dsn).QueryRowContext(t.Context(), query).Scan(&n); err != nil || n != 0 {
			t.Errorf("%d %s (%v)", n, what, err)
		}
	}
}
