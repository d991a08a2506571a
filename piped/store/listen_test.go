package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// run runs the store until the returned func is called.
func run(t *testing.T, s *store.Store) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	}
}

// waitFor reads the watch until all rows were announced.
func waitFor(t *testing.T, w *store.Watch, ids ...string) {
	t.Helper()
	missing := map[string]bool{}
	for _, id := range ids {
		missing[id] = true
	}
	deadline := time.After(10 * time.Minute)
	for len(missing) > 0 {
		select {
		case <-w.C():
			for _, c := range w.Take() {
				delete(missing, c.ID)
			}
		case <-deadline:
			t.Fatalf("not announced: %v", missing)
		}
	}
}

func TestOtherProcessesChangesArrive(t *testing.T) {
	dsn := postgres.NewDSN(t)
	mine, theirs := storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)
	w := mine.Watch(deploy.TopicApplication, deploy.TopicStageLog)
	defer w.Close()

	// Committed before the listener is there: it catches up.
	put(t, theirs, "early")
	stop := run(t, mine)
	defer stop()
	waitFor(t, w, "early")

	put(t, theirs, "later")
	waitFor(t, w, "later")

	// More than one notification can hold.
	if _, err := theirs.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{ID: "d0", ApplicationID: "later", Status: deploy.Pending}}); err != nil {
		t.Fatal(err)
	}
	var blocks []deploy.LogBlock
	ids := []string{}
	for i := range 120 {
		id := fmt.Sprintf("deployment-with-a-name-that-is-about-as-long-as-an-id-%03d", i)
		if _, err := theirs.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{ID: id, ApplicationID: "later", Status: deploy.Pending}}); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
		blocks = append(blocks, deploy.LogBlock{DeploymentID: id, StageID: "s"})
	}
	if err := theirs.AppendStageLogs(t.Context(), blocks); err != nil {
		t.Fatal(err)
	}
	waitFor(t, w, ids...)
}

// Another process learns that a key was disabled, also when it did not listen then.
func TestDisabledKeysReachOtherProcesses(t *testing.T) {
	dsn := postgres.NewDSN(t)
	mine, theirs := storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)
	w := mine.Watch(deploy.TopicAPIKey)
	defer w.Close()
	for _, id := range []string{"early", "later", "stays"} {
		if err := theirs.CreateAPIKey(t.Context(), deploy.APIKey{ID: id, Name: id, Role: deploy.ReadWrite, Hash: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	disable := func(id string) {
		t.Helper()
		if err := theirs.DisableAPIKey(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	disable("early")
	stop := run(t, mine)
	defer stop()
	waitFor(t, w, "early")
	disable("later")
	waitFor(t, w, "later")
}

// TestCatchUpKnowsEveryTopic: a store that begins to listen publishes what others wrote
// before, of each topic.
func TestCatchUpKnowsEveryTopic(t *testing.T) {
	dsn := postgres.NewDSN(t)
	mine, theirs := storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)
	w := mine.Watch()
	defer w.Close()
	storetest.Fill(t, theirs)
	web, err := theirs.Application(t.Context(), "app-web")
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.SetEvaluatedCommit(t.Context(), "c0ffee", map[string]string{web.ID: web.EvaluatedCommit}); err != nil {
		t.Fatal(err)
	}
	if err := theirs.DisableAPIKey(t.Context(), "k2"); err != nil {
		t.Fatal(err)
	}
	missing := map[deploy.Topic]bool{}
	for _, topic := range deploy.Topics() {
		missing[topic] = true
	}
	want := map[deploy.Change]bool{
		{Topic: deploy.TopicSession, ID: "ended"}:                                                    true,
		{Topic: deploy.TopicEvaluated, ID: "c0ffee"}:                                                 true,
		{Topic: deploy.TopicDrift, ID: "app-other", ApplicationID: "app-other"}:                      true,
		{Topic: deploy.TopicPropagation, ID: "c/apps/Deployment/shop/web", ApplicationID: "app-web"}: true,
	}
	defer run(t, mine)()
	deadline := time.After(10 * time.Minute)
	for len(missing)+len(want) > 0 {
		select {
		case <-w.C():
			for _, c := range w.Take() {
				delete(missing, c.Topic)
				delete(want, c)
			}
		case <-deadline:
			t.Fatalf("not announced: topics %v, changes %v", missing, want)
		}
	}
}

// Another process learns that a session was ended, also when it did not listen then.
func TestEndedSessionsReachOtherProcesses(t *testing.T) {
	dsn := postgres.NewDSN(t)
	mine, theirs := storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)
	w := mine.Watch(deploy.TopicSession)
	defer w.Close()
	for _, id := range []string{"early", "later", "disabled"} {
		v := deploy.Session{ID: id, Hash: []byte(id), User: deploy.User{Issuer: "corp", Subject: id}, ExpiresAt: time.Now().Add(time.Hour)}
		if err := theirs.CreateSession(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	end := func(id string) {
		t.Helper()
		if err := theirs.EndSession(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	end("early")
	stop := run(t, mine)
	defer stop()
	waitFor(t, w, "early")
	end("later")
	waitFor(t, w, "later")
	if err := theirs.DisableUser(t.Context(), "corp", "disabled", "boss"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, w, "disabled")
}

func TestABrokenListenerMissesNothing(t *testing.T) {
	dsn := postgres.NewDSN(t)
	mine, theirs := storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)
	raw := storetest.Raw(t, dsn)
	w := mine.Watch(deploy.TopicApplication)
	defer w.Close()
	put(t, theirs, "first")
	stop := run(t, mine)
	defer stop()
	waitFor(t, w, "first")
	for i := range 3 {
		// The listener is the connection whose last statement was LISTEN; the
		// write follows before it can be back.
		if _, err := raw.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("after-cut-", i)
		put(t, theirs, id)
		waitFor(t, w, id)
	}
}

// A store's own changes reach its watches once, not again through the server.
func TestOwnChangesAreNotEchoed(t *testing.T) {
	dsn := postgres.NewDSN(t)
	mine, theirs := storetest.Open(t, dsn, nil), storetest.Open(t, dsn, nil)
	w := mine.Watch(deploy.TopicApplication)
	defer w.Close()
	put(t, theirs, "first")
	stop := run(t, mine)
	defer stop()
	waitFor(t, w, "first")
	put(t, mine, "own")
	waitFor(t, w, "own")
	put(t, theirs, "theirs") // its notification follows that of "own"
	deadline := time.After(10 * time.Minute)
	for seen := ""; !strings.Contains(seen, "theirs"); {
		select {
		case <-w.C():
			for _, c := range w.Take() {
				seen += c.ID + " "
			}
		case <-deadline:
			t.Fatal("no change arrived")
		}
		if strings.Contains(seen, "own") {
			t.Fatalf("announced again: %s", seen)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	engines(t, func(t *testing.T, dsn string) { run(t, storetest.Open(t, dsn, nil))() })
}

func put(t *testing.T, s *store.Store, id string) {
	t.Helper()
	if _, err := s.PutApplication(t.Context(), deploy.Application{ID: id, Name: id}); err != nil {
		t.Fatal(err)
	}
}
