package observe

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/watch"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// env is a workloadstest.Env whose records are in a store, in which the rollouts
// of others are recorded, too.
type env struct {
	*workloadstest.Env
	store   *store.Store
	scaling *Scalings // of watchAll
}

func newEnv(t *testing.T) *env {
	t.Helper()
	l := &env{Env: workloadstest.New(t)}
	st, err := store.Open(t.Context(), "sqlite://"+filepath.Join(t.TempDir(), "piped.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	l.store = st
	app := deploy.Application{ID: l.App, Name: "web", Kind: deploy.KindKubernetes, Provider: l.Name(), Git: deploy.GitPath{RepoID: "r", Dir: "web"}}
	if _, err := st.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	_, err = st.CreateDeployment(t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: "d", ApplicationID: app.ID, ApplicationName: app.Name, Git: app.Git, Provider: app.Provider, Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, At: time.Now(), Commit: deploy.Commit{Hash: "c0ffee"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]int64{}
	l.Records.Mirror = func(rec deploy.Rollout) {
		rec.ApplicationID, rec.DeploymentID, rec.Version = app.ID, "d", versions[rec.ID]
		saved, err := st.SaveRollout(context.Background(), rec)
		if err != nil {
			t.Errorf("store: %v", err)
		}
		versions[rec.ID] = saved.Version
	}
	return l
}

// watch records external rollouts with caches of its own, as an agent that was
// started does, until stop is called.
func (l *env) watch(t *testing.T) (stop func()) {
	t.Helper()
	controller, externals := l.watcher(t)
	return clustertest.Run(t, controller.Run, externals.Run)
}

func (l *env) watcher(t *testing.T) (*watch.Controller, *ExternalRollouts) {
	controller := watch.New(l.Cluster)
	return controller, NewExternalRollouts(ExternalConfig{
		Observer: workloads.NewObserver(l.Cluster, controller), Store: l.store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
}

// handling returns a component that does what the Run of externals does, and a channel that is closed
// once changes are handled.
func handling(externals *ExternalRollouts) (run func(context.Context) error, begun <-chan struct{}) {
	handled := make(chan struct{})
	return func(ctx context.Context) error {
		if err := externals.begin(ctx); err != nil {
			return err
		}
		close(handled)
		externals.repeat(ctx)
		return nil
	}, handled
}

// awaitBegun waits until changes are handled.
func awaitBegun(t *testing.T, begun <-chan struct{}) {
	t.Helper()
	select {
	case <-begun:
	case <-time.After(10 * time.Minute):
		t.Fatal("the cluster is not watched")
	}
}

// external returns the external records, the oldest revision first.
func (l *env) external(t *testing.T) []deploy.Rollout {
	t.Helper()
	records, err := l.store.Rollouts(t.Context(), store.RolloutQuery{Cluster: l.Name(), External: true})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(records, func(a, b deploy.Rollout) int { return int(a.Revision - b.Revision) })
	return records
}

// await waits until the last external record is as said.
func (l *env) await(t *testing.T, last string) deploy.Rollout {
	t.Helper()
	var rec deploy.Rollout
	clustertest.Eventually(t, last, func() bool {
		records := l.external(t)
		if len(records) == 0 {
			return false
		}
		rec = records[len(records)-1]
		return inWords(rec) == last
	})
	return rec
}

func inWords(r deploy.Rollout) string {
	return fmt.Sprintf("revision %d by %q: %s", r.Revision, r.ChangedBy, r.Phase)
}

// awaitRolledOut waits until the cluster has rolled out the Deployment's last change.
func (l *env) awaitRolledOut(t *testing.T) (ended time.Time) {
	t.Helper()
	clustertest.Eventually(t, "the Deployment is rolled out", func() bool {
		d, err := l.Typed().AppsV1().Deployments(l.Namespace).Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w := rollout.FromDeployment(d)
		ended = w.Progressing.Updated
		return w.ObservedGeneration == w.Generation && w.Updated == w.Replicas && w.Available == w.Replicas && w.Total == w.Replicas &&
			w.Progressing.Reason == "NewReplicaSetAvailable"
	})
	return ended
}

// setImage does what kubectl set image does.
func (l *env) setImage(t *testing.T, image string) {
	l.Patch(t, rollout.KindDeployment, "kubectl-set", fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"%s"}]}}}}`, image))
}

// TestRolloutsOfOthersAreRecordedOnce changes a Deployment by hand while the
// agent watches and while it does not, between deployments of its own.
func TestRolloutsOfOthersAreRecordedOnce(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	own := func(stage, image string) {
		t.Helper()
		if rec := l.Wait(t, l.Apply(t, stage, workloadstest.Text(rollout.KindDeployment, image, "")), nil); rec.Phase != deploy.RolloutComplete {
			t.Fatalf("%s: %s: %s", stage, rec.Phase, rec.Reason)
		}
	}
	stop := l.watch(t)
	own("a", "web:1") // revision 1
	l.RestartWeb(t)
	first := l.await(t, `revision 2 by "kubectl-rollout": Complete`)
	if took := first.CompletedAt.Sub(first.AppliedAt); first.ApplicationID != l.App || took < 0 || took > 3*time.Minute {
		t.Errorf("record %+v", first)
	}

	// None of these is a rollout.
	l.Patch(t, rollout.KindDeployment, "hpa", `{"spec":{"replicas":4}}`, "scale")
	l.Patch(t, rollout.KindDeployment, "kubectl-annotate", `{"metadata":{"annotations":{"note":"x"}}}`)
	l.Patch(t, rollout.KindDeployment, "kubectl-edit", `{"spec":{"minReadySeconds":0,"revisionHistoryLimit":5}}`)
	l.awaitRolledOut(t)
	l.setImage(t, "web:3")
	l.await(t, `revision 3 by "kubectl-set": Complete`)
	own("b", "web:4") // revision 4
	l.setImage(t, "web:3")
	l.await(t, `revision 5 by "kubectl-set": Complete`) // the ReplicaSet of revision 3

	stop()
	l.setImage(t, "web:6")
	ended := l.awaitRolledOut(t)
	time.Sleep(2 * time.Second) // times of the cluster are in whole seconds
	stop = l.watch(t)
	unseen := l.await(t, `revision 6 by "kubectl-set": Complete`)
	if ended.Before(unseen.StartedAt) { // in the same second, of which nothing more is known
		ended = unseen.StartedAt
	}
	if !unseen.CompletedAt.Equal(ended) || !strings.Contains(unseen.Reason, "not watching") {
		t.Errorf("ended at %s, the cluster says %s: %s", unseen.CompletedAt, ended, unseen.Reason)
	}

	l.setImage(t, "web:never-ready")
	l.await(t, `revision 7 by "kubectl-set": Progressing`)
	stop()
	stop = l.watch(t)
	own("c", "web:8") // revision 8
	l.await(t, `revision 7 by "kubectl-set": Superseded`)

	stop()
	l.setImage(t, "web:never-ready")
	clustertest.Eventually(t, "revision 9 has its ReplicaSet", func() bool { return l.revisions(t) == 9 })
	l.setImage(t, "web:10")
	l.awaitRolledOut(t)
	stop = l.watch(t)
	l.await(t, `revision 10 by "kubectl-set": Complete`)

	l.setImage(t, "web:never-ready")
	l.await(t, `revision 11 by "kubectl-set": Progressing`)
	stop()
	l.DeleteWeb(t)
	l.watch(t)
	l.await(t, `revision 11 by "kubectl-set": Gone`)
	l.checkRecords(t)
}

// TestPausedRolloutsOfOthers: what is paused is held and begins nothing, whatever its template is
// meanwhile. The rollout of another template begins when it is resumed.
func TestPausedRolloutsOfOthers(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	pause := func(paused bool) {
		l.Patch(t, rollout.KindDeployment, "kubectl-rollout", fmt.Sprintf(`{"spec":{"paused":%t}}`, paused))
	}
	l.watch(t)
	if rec := l.Wait(t, l.Apply(t, "a", workloadstest.Text(rollout.KindDeployment, "web:1", "")), nil); rec.Phase != deploy.RolloutComplete {
		t.Fatalf("%s: %s", rec.Phase, rec.Reason)
	}
	l.setImage(t, "web:never-ready")
	l.await(t, `revision 2 by "kubectl-set": Progressing`)
	pause(true)
	l.await(t, `revision 2 by "kubectl-set": Held`)
	l.setImage(t, "web:3")
	pause(false)
	l.await(t, `revision 3 by "kubectl-set": Complete`)
	records := l.external(t)
	if len(records) != 2 || records[0].Phase != deploy.RolloutSuperseded {
		t.Errorf("records %+v, want that of revision 2, superseded, and another one", records)
	}
}

// checkRecords checks what the store holds after the whole test.
func (l *env) checkRecords(t *testing.T) {
	t.Helper()
	var list []string
	for _, rec := range l.external(t) {
		list = append(list, inWords(rec))
	}
	if diff := cmp.Diff([]string{
		`revision 2 by "kubectl-rollout": Complete`, `revision 3 by "kubectl-set": Complete`, `revision 5 by "kubectl-set": Complete`,
		`revision 6 by "kubectl-set": Complete`, `revision 7 by "kubectl-set": Superseded`, `revision 9 by "": Superseded`,
		`revision 10 by "kubectl-set": Complete`, `revision 11 by "kubectl-set": Gone`,
	}, list); diff != "" {
		t.Errorf("external rollouts (-want +got):\n%s", diff)
	}
	events, err := l.store.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	starts, ends := 0, 0
	for _, e := range events {
		switch e.Type {
		case deploy.EventRolloutStarted:
			starts++
		case deploy.EventRolloutEnded:
			ends++
		}
	}
	if want := 8 + 3; starts != want || ends != want {
		t.Errorf("%d starts and %d ends announced, want %d", starts, ends, want)
	}
}

// revisions returns the highest revision of the Deployment's ReplicaSets.
func (l *env) revisions(t *testing.T) (highest int64) {
	t.Helper()
	list, err := l.Typed().AppsV1().ReplicaSets(l.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		highest = max(highest, rollout.FromReplicaSet(&list.Items[i]).Number)
	}
	return highest
}
