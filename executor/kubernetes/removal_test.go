package kubernetes

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// remover returns the environment's Remover, whose clock is late by as much as skip says.
func (l *stageEnv) remover(skip *atomic.Int64) *Remover {
	return NewRemover(RemoverConfig{
		Store: l.Store, Clusters: l.Clusters, Tenancy: l.Tenancy, PipedID: l.PipedID, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return time.Now().Add(time.Duration(skip.Load())) }, RetryEvery: 10 * time.Millisecond,
	})
}

// remove gives the command that deletes the application with its objects, and runs a
// Remover until the test ends.
func (l *stageEnv) remove(t *testing.T, skip *atomic.Int64) deploy.Command {
	t.Helper()
	c, err := l.Store.RemoveApplication(t.Context(), deploy.Command{ID: "remove", Type: deploy.CommandDeleteApplication, ApplicationID: l.app.ID, Cascade: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.remover(skip).Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return c
}

// command returns the command once it is as wanted.
func (l *stageEnv) command(t *testing.T, what string, ok func(deploy.Command) bool) deploy.Command {
	t.Helper()
	var c deploy.Command
	eventually(t, func() string {
		var err error
		if c, err = l.Store.Command(t.Context(), "remove"); err != nil {
			return err.Error()
		}
		if !ok(c) {
			return what + ": it is " + string(c.Status) + " with " + strings.Join([]string{c.Metadata[deploy.MetaWaiting], c.Metadata[deploy.MetaReason]}, ", ")
		}
		return ""
	})
	return c
}

// TestRemovalWaitsForAClusterThatIsNotThere: the command reports it and tries again, deletes
// the objects in other clusters, and fails when the time is over. The inventory of the
// unreachable cluster stays.
func TestRemovalWaitsForAClusterThatIsNotThere(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest+newManifest)
	far := deploy.InventoryItem{ApplicationID: l.app.ID, Cluster: "far", UID: "u", Object: deploy.ObjectRef{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "far"}}
	if err := l.Store.PutInventory(t.Context(), far); err != nil {
		t.Fatal(err)
	}
	var skip atomic.Int64
	if _, err := l.remover(&skip).Removals(t.Context(), l.app); !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), `no provider "far"`) {
		t.Errorf("what would be deleted: %v", err)
	}
	l.remove(t, &skip)
	waits := l.command(t, "reports what it waits for", func(c deploy.Command) bool {
		return strings.Contains(c.Metadata[deploy.MetaWaiting], `no provider "far"`)
	})
	if waits.Status != deploy.CommandOpen || waits.Metadata[deploy.MetaDeleted] != "2" {
		t.Errorf("while it waits: %+v", waits)
	}
	if diff := cmp.Diff([]string{"Secret/far"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	skip.Store(int64(29 * time.Minute)) // it is not given up yet
	still := waits.UpdatedAt
	l.command(t, "tries again", func(c deploy.Command) bool { return c.UpdatedAt.After(still) && c.Status == deploy.CommandOpen })

	skip.Store(int64(31 * time.Minute))
	failed := l.command(t, "fails", func(c deploy.Command) bool { return c.Status == deploy.CommandFailed })
	if reason := failed.Metadata[deploy.MetaReason]; !strings.Contains(reason, "not deleted within 30m0s") || !strings.Contains(reason, `no provider "far"`) || failed.Metadata[deploy.MetaWaiting] != "" {
		t.Errorf("in the end: %+v", failed)
	}
	if diff := cmp.Diff([]string{"Secret/far"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory in the end (-want +got):\n%s", diff)
	}
}

// TestRemovalKeepsItsOrderToTheEnd: what others use stays as long as they do, also when
// there is no further attempt.
func TestRemovalKeepsItsOrderToTheEnd(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest+"---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: front}\nspec: {maxUnavailable: 1, selector: {matchLabels: {app: front}}}\n")
	l.answered = func(r *http.Request) error {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/front") {
			return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"}}
		}
		return nil
	}
	var skip atomic.Int64
	skip.Store(int64(31 * time.Minute))
	l.remove(t, &skip)
	failed := l.command(t, "fails", func(c deploy.Command) bool { return c.Status == deploy.CommandFailed })
	if reason := failed.Metadata[deploy.MetaReason]; !strings.Contains(reason, "/front") || !strings.Contains(reason, "1 more can be deleted only after these") {
		t.Errorf("the reason is %q", reason)
	}
	if diff := cmp.Diff([]string{"ConfigMap/kept", "PodDisruptionBudget/front"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory (-want +got):\n%s", diff)
	}
	if _, err := l.shared.Client(t).CoreV1().ConfigMaps(l.ns).Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("what others use: %v", err)
	}
}

// TestRemovalOfProtectedKinds: what is protected is deleted if the last success named its
// kind, whatever the tenancy rules say of kinds by now.
func TestRemovalOfProtectedKinds(t *testing.T) {
	l := newStageEnv(t)
	l.spec += "  pruneKinds: [PersistentVolume]\n"
	l.succeed(t, keptManifest+"---\napiVersion: v1\nkind: PersistentVolume\nmetadata: {name: "+l.ns+"}\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}, storageClassName: none, hostPath: {path: /data}}\n")
	app, err := l.Store.Application(t.Context(), l.app.ID)
	if err != nil {
		t.Fatal(err)
	}
	l.Tenancy = rule(config.TenancyRule{DeniedKinds: []config.KindPattern{"ConfigMap", "PersistentVolume"}})
	var skip atomic.Int64
	would, err := l.remover(&skip).Removals(t.Context(), app)
	if err != nil || len(would) != 2 {
		t.Errorf("would delete %v, %v", would, err)
	}
	l.remove(t, &skip)
	done := l.command(t, "succeeds", func(c deploy.Command) bool { return c.Status == deploy.CommandSucceeded })
	if done.Metadata[deploy.MetaDeleted] != "2" || done.Metadata[deploy.MetaLeft] != "" {
		t.Errorf("answered %+v", done)
	}
	if _, err := l.shared.Client(t).CoreV1().PersistentVolumes().Get(t.Context(), l.ns, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the volume: %v", err)
	}
	if left := l.inventoried(t); len(left) > 0 {
		t.Errorf("inventory: %v", left)
	}
}

// TestRemovalAsTheServiceAccount: objects are deleted with the rights of the account
// that the rules name, and the command reports what the account may not do.
func TestRemovalAsTheServiceAccount(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest)
	l.Tenancy = rule(config.TenancyRule{ServiceAccount: config.ServiceAccount{Namespace: l.ns, Name: "nobody"}})
	var skip atomic.Int64
	l.remove(t, &skip)
	waits := l.command(t, "reports what it waits for", func(c deploy.Command) bool { return c.Metadata[deploy.MetaWaiting] != "" })
	if !strings.Contains(waits.Metadata[deploy.MetaWaiting], "nobody") {
		t.Errorf("waits for %q", waits.Metadata[deploy.MetaWaiting])
	}
}

func TestLongListsAreAbridged(t *testing.T) {
	var lines []string
	for range maxNamed + 2 {
		lines = append(lines, "x")
	}
	if got := abridged(lines); !strings.HasSuffix(got, "x; x; and 2 more") || strings.Count(got, "x") != maxNamed {
		t.Errorf("abridged to %q", got)
	}
	if got := abridged([]string{"b", "a"}); got != "a; b" {
		t.Errorf("abridged to %q", got)
	}
}
