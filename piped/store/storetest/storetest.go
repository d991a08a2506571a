// Package storetest contains the conformance test suite of package store, which runs on both
// engines, and opens temporary stores for the tests of other packages.
//
// The suite tests what the documentation of package store promises, not how an engine
// implements it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Key returns the encryption key of the stores that this package opens.
func Key() []byte { return bytes.Repeat([]byte("k"), 32) }

// New opens a store on a new SQLite file. It is closed when the test ends. A nil clock means
// time.Now.
func New(t testing.TB, now func() time.Time) *store.Store {
	t.Helper()
	return Open(t, Ready(t), now)
}

// SQLite returns the DSN of a SQLite file in the test's temporary directory that does not
// exist yet.
func SQLite(t testing.TB) string {
	return "sqlite://" + filepath.Join(t.TempDir(), "piped.db")
}

// Ready returns the DSN of a new SQLite file that already contains the schema.
func Ready(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "piped.db")
	Create(t, file)
	return "sqlite://" + file
}

// Create writes a new SQLite file that already contains the schema.
func Create(t testing.TB, file string) {
	t.Helper()
	data, err := emptyStore()
	if err != nil {
		t.Fatalf("make an empty store: %v", err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// emptyStore returns the content of the file of an empty store. It is created once, because
// that takes longer than most tests.
var emptyStore = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "storetest")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "piped.db")
	s, err := store.Open(context.Background(), "sqlite://"+file, store.Options{Key: Key()})
	if err != nil {
		return nil, err
	}
	if err := s.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
})

// Reopen opens a store that the caller closes, for tests that open the database again.
func Reopen(t testing.TB, dsn string, now func() time.Time) *store.Store {
	t.Helper()
	s, err := store.Open(context.Background(), dsn, store.Options{Key: Key(), Now: now})
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	return s
}

// Open opens a store that is closed when the test ends.
func Open(t testing.TB, dsn string, now func() time.Time) *store.Store {
	t.Helper()
	s := Reopen(t, dsn, now)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return s
}

// Run runs the suite. Each call of newDSN returns the DSN of a new database.
func Run(t *testing.T, newDSN func(testing.TB) string) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"Applications", testApplications},
		{"ApplicationPages", testApplicationPages},
		{"ApplicationState", testApplicationState},
		{"Registration", testRegistration},
		{"RegistrationEndsWhatWaits", testRegistrationEndsWhatWaits},
		{"DecidedBefore", testDecidedBefore},
		{"Removal", testRemoval},
		{"PlainRemoval", testPlainRemoval},
		{"Adoptions", testAdoptions},
		{"PullPreviews", testPullPreviews},
		{"Agent", testAgent},
		{"Ownership", testOwnership},
		{"Fencing", testFencing},
		{"DeploymentLife", testDeploymentLife},
		{"DeploymentRefusals", testDeploymentRefusals},
		{"DeploymentPages", testDeploymentPages},
		{"DeploymentsAtStage", testDeploymentsAtStage},
		{"DeploymentsByID", testDeploymentsByID},
		{"DeploymentsByPrefix", testDeploymentsByPrefix},
		{"Load", testLoad},
		{"EndedDeployments", testEndedDeployments},
		{"DeploymentCommand", testDeploymentCommand},
		{"Supersede", testSupersede},
		{"Replace", testReplace},
		{"Chain", testChain},
		{"ChainRefusals", testChainRefusals},
		{"Candidates", testCandidates},
		{"Notice", testNotice},
		{"Holds", testHolds},
		{"Move", testMove},
		{"Identity", testIdentity},
		{"CountTriggered", testCountTriggered},
		{"Batches", testBatches},
		{"OneActive", testOneActive},
		{"CompareAndSwap", testCompareAndSwap},
		{"ReadAtOneMoment", testReadAtOneMoment},
		{"UpdateFrom", testUpdateFrom},
		{"ConcurrentSupersede", testConcurrentSupersede},
		{"Commands", testCommands},
		{"StageLogs", testStageLogs},
		{"Notes", testNotes},
		{"State", testState},
		{"Inventory", testInventory},
		{"Claims", testClaims},
		{"ClaimsOfOneCluster", testClaimsOfOneCluster},
		{"ConcurrentClaims", testConcurrentClaims},
		{"LearnedMarks", testLearnedMarks},
		{"Capabilities", testCapabilities},
		{"Propagations", testPropagations},
		{"WorkloadRevisions", testWorkloadRevisions},
		{"RolloutRecovery", testRolloutRecovery},
		{"OrderOfForeignRollouts", testOrderOfForeignRollouts},
		{"Analysis", testAnalysis},
		{"AnalysisChecks", testAnalysisChecks},
		{"AnalysisPassed", testAnalysisPassed},
		{"PlanPreviews", testPlanPreviews},
		{"AppliedSets", testAppliedSets},
		{"Drift", testDrift},
		{"DriftCounts", testDriftCounts},
		{"ListDrift", testListDrift},
		{"Rollouts", testRollouts},
		{"ExternalRollouts", testExternalRollouts},
		{"ListRollouts", testListRollouts},
		{"Scalings", testScalings},
		{"RolloutEvents", testRolloutEvents},
		{"ForeignRolloutRetention", testForeignRolloutRetention},
		{"Outcomes", testOutcomes},
		{"Health", testHealth},
		{"InventoryKinds", testInventoryKinds},
		{"APIKeys", testAPIKeys},
		{"LastAPIKey", testLastAPIKey},
		{"APIKeyUse", testAPIKeyUse},
		{"APIKeyLimits", testAPIKeyLimits},
		{"Scope", testScope},
		{"ScopePatterns", testScopePatterns},
		{"ScopeEdges", testScopeEdges},
		{"ApplicationsByID", testApplicationsByID},
		{"Sessions", testSessions},
		{"SessionLists", testSessionLists},
		{"SessionExpiry", testSessionExpiry},
		{"SessionUse", testSessionUse},
		{"SessionUser", testSessionUser},
		{"SessionsOfKey", testSessionsOfKey},
		{"DisabledUsers", testDisabledUsers},
		{"ConcurrentSignIns", testConcurrentSignIns},
		{"OldSessions", testOldSessions},
		{"SignInStates", testSignInStates},
		{"ConcurrentTakes", testConcurrentTakes},
		{"SignInLimit", testSignInLimit},
		{"Audit", testAudit},
		{"ConcurrentAudit", testConcurrentAudit},
		{"OldAudit", testOldAudit},
		{"RegisteredEvents", testRegisteredEvents},
		{"RegisteredEventHandlings", testRegisteredEventHandlings},
		{"ConcurrentEvents", testConcurrentEvents},
		{"TracedCommits", testTracedCommits},
		{"TracedEvents", testTracedEvents},
		{"TracedPullRequests", testTracedPullRequests},
		{"OldPullRequests", testOldPullRequests},
		{"StatusChanges", testStatusChanges},
		{"DeploymentsOfARange", testDeploymentsOfARange},
		{"DeploymentsOfChains", testDeploymentsOfChains},
		{"Outbox", testOutbox},
		{"Deliveries", testDeliveries},
		{"DeadLetters", testDeadLetters},
		{"RouteOnce", testRouteOnce},
		{"ReceiverNotes", testReceiverNotes},
		{"EventsByKey", testEventsByKey},
		{"ForgetEvents", testForgetEvents},
		{"OldDeployments", testOldDeployments},
		{"NamedDeployments", testNamedDeployments},
		{"OldChains", testOldChains},
		{"WholeDeployments", testWholeDeployments},
		{"OldDeploymentBatches", testOldDeploymentBatches},
		{"OldStageLogs", testOldStageLogs},
		{"OldCommands", testOldCommands},
		{"RetentionProperty", testRetentionProperty},
		{"DeliveriesProperty", testDeliveriesProperty},
		{"Feed", testFeed},
		{"FeedSlowReader", testFeedSlowReader},
		{"TextThatNoRowHolds", testTextThatNoRowHolds},
		{"Reopen", testReopen},
		{"Property", testProperty},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := &env{dsn: newDSN(t), clock: &clock{}}
			e.store = Open(t, e.dsn, e.clock.now)
			c.test(t, e)
		})
	}
}

// env is the environment of one test of the suite.
type env struct {
	dsn   string
	store *store.Store
	clock *clock
}

// clock advances by one millisecond on each read, unless stand is set.
type clock struct {
	ms    atomic.Int64
	stand atomic.Bool
}

// epoch is the start of the clock. The store must truncate its nanoseconds and convert its
// zone.
var epoch = time.Date(2025, 3, 1, 12, 0, 0, 123456789, time.FixedZone("elsewhere", 3600))

func (c *clock) now() time.Time {
	if c.stand.Load() {
		return epoch.Add(time.Duration(c.ms.Load()) * time.Millisecond)
	}
	return epoch.Add(time.Duration(c.ms.Add(1)) * time.Millisecond)
}

// app returns an application with a name; its ID derives from the name.
func app(name string) deploy.Application {
	return deploy.Application{
		ID: "app-" + name, Name: name, Kind: deploy.KindKubernetes, Provider: "cluster",
		Git:    deploy.GitPath{RepoID: "repo", Remote: "file:///repo", Branch: "main", Dir: "apps/" + name, ConfigFile: "app.pipecd.yaml"},
		Labels: map[string]string{"team": "core", "name": name},
	}
}

// deployment returns a PENDING deployment of an application for a commit.
func (e *env) deployment(id string, a deploy.Application, kind deploy.TriggerKind) deploy.Deployment {
	at := e.clock.now()
	return deploy.Deployment{
		ID: id, ApplicationID: a.ID, ApplicationName: a.Name, Git: a.Git, Provider: a.Provider, Labels: a.Labels,
		Status: deploy.Pending, StatusReason: "The deployment is waiting",
		Trigger: deploy.Trigger{Kind: kind, At: at, Strategy: deploy.StrategyAuto,
			Commit: deploy.Commit{Hash: "c0ffee0123-" + id, Message: "change " + id, Author: "jane", AuthorEmail: "jane@example.com",
				Committer: "joe", CommitterEmail: "joe@example.com", Branch: "main", At: at}},
	}
}

// putApp stores an application.
func (e *env) putApp(t testing.TB, name string) deploy.Application {
	t.Helper()
	a := app(name)
	if _, err := e.store.PutApplication(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	return a
}

// create stores a deployment triggered by a commit.
func (e *env) create(t testing.TB, id string, a deploy.Application) deploy.Deployment {
	t.Helper()
	d, err := e.store.CreateDeployment(t.Context(), store.NewDeployment{Deployment: e.deployment(id, a, deploy.OnCommit)})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// update changes a deployment.
func (e *env) update(t testing.TB, id string, fn func(*deploy.Deployment) error) deploy.Deployment {
	t.Helper()
	d, err := e.store.UpdateDeployment(t.Context(), id, fn)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// plan returns a plan with two stages, the second for a rollback.
func plan() deploy.Plan {
	return deploy.Plan{
		Strategy: deploy.StrategyQuickSync, Summary: "Quick sync", Versions: []deploy.ArtifactVersion{{Kind: "CONTAINER_IMAGE", Version: "v1", Name: "web"}},
		RunningCommit: "beef", RunningConfigFile: "app.pipecd.yaml", RunningDeploymentID: "before",
		Timeout: time.Hour, RollbackTimeout: time.Minute, NoAutoRollback: true,
		Stages: []deploy.Stage{
			{ID: "sync", Name: deploy.StageK8sSync, Desc: "Sync", Visible: true, Options: []byte(`{"prune":true}`), SkipOn: []byte(`{"paths":["docs"]}`), Timeout: time.Minute},
			{ID: "rollback", Name: deploy.StageRollback, Index: 1, Requires: []string{"sync"}, Rollback: true},
		},
	}
}

// run moves a deployment to RUNNING.
func (e *env) run(t testing.TB, id string) deploy.Deployment {
	t.Helper()
	e.update(t, id, func(d *deploy.Deployment) error { return d.Plan(plan(), e.clock.now()) })
	return e.update(t, id, func(d *deploy.Deployment) error { return d.Start(e.clock.now()) })
}

// succeed moves a RUNNING deployment to SUCCESS.
func (e *env) succeed(t testing.TB, id string) deploy.Deployment {
	t.Helper()
	e.update(t, id, func(d *deploy.Deployment) error { return d.StartStage("sync", e.clock.now()) })
	return e.update(t, id, func(d *deploy.Deployment) error {
		if err := d.FinishStage("sync", deploy.StageSuccess, "done", e.clock.now()); err != nil {
			return err
		}
		return d.Complete(deploy.Success, "all stages succeeded", e.clock.now())
	})
}

// wantKind fails the test unless err has the kind and contains the text.
func wantKind(t testing.TB, err error, kind deploy.Kind, text string) {
	t.Helper()
	if err == nil || deploy.KindOf(err) != kind || !bytes.Contains([]byte(err.Error()), []byte(text)) {
		t.Errorf("got error %v (%s), want kind %s and %q", err, deploy.KindOf(err), kind, text)
	}
}

// ids returns the IDs of deployments.
func ids(ds []deploy.Deployment) []string {
	var out []string
	for _, d := range ds {
		out = append(out, d.ID)
	}
	return out
}

// numbered returns a text such as "prefix-007".
func numbered(prefix string, n int) string { return fmt.Sprintf("%s-%03d", prefix, n) }
