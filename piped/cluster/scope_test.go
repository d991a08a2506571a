package cluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// TestRolloutsAreWatchedWithRightsInNamespacesOnly: an agent that may not watch
// workloads in the whole cluster watches them where it may, those of others included.
func TestRolloutsAreWatchedWithRightsInNamespacesOnly(t *testing.T) {
	t.Parallel()
	l, other := newExternalLab(t), newRolloutLab(t)
	as, err := l.As(l.ns)
	if err != nil {
		t.Fatal(err)
	}
	permit(t, l.ns, l.ns)
	controller := NewController(as)
	l.observer = NewObserver(as, controller)
	externals := NewExternals(ExternalConfig{Observer: l.observer, Store: l.store, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- controller.Run(ctx) }()
	go func() { ended <- externals.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("Run: %v", err)
		}
	})

	rec := l.wait(t, l.apply(t, "a", workloadText(rollout.KindDeployment, "web:1", "replicas: 2")), nil)
	if rec.Phase != deploy.RolloutComplete {
		t.Fatalf("%s: %s", rec.Phase, rec.Reason)
	}
	if strings.Contains(l.said(), "cannot ask the cluster") {
		t.Errorf("the caches were of no use:\n%s", l.said())
	}
	if s, err := l.observer.Cached(ctx, rec); err != nil || s.Workload == nil || len(s.Revisions) != 1 {
		t.Errorf("cached: %+v, %v", s, err)
	}
	l.setImage(t, "web:2")
	l.await(t, `revision 2 by "kubectl-set": Complete`)

	there := rec
	there.Workload.Namespace = other.ns
	if _, err := l.observer.Cached(ctx, there); !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "a Role in namespace "+other.ns) {
		t.Errorf("where it may not: %v", err)
	}
}

// TestTheWholeClusterIsTriedAgain: rights that come after the agent has started are made
// use of.
func TestTheWholeClusterIsTriedAgain(t *testing.T) {
	t.Parallel()
	l, other := newLab(t), newLab(t)
	as, err := l.As(l.ns)
	if err != nil {
		t.Fatal(err)
	}
	permit(t, l.ns, l.ns)
	other.apply(t, withSettings("Deployment", "hello", "", plainPod))
	controller := NewController(as)
	s := controller.scope(Watched{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Metadata: true, Transform: keepVersion,
	})
	handled := make(chan types.NamespacedName, 100)
	if err := s.Handle("test", func(_ context.Context, key types.NamespacedName) error {
		if key.Namespace == other.ns {
			handled <- key
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	if err := s.begin(); err != nil {
		t.Fatal(err)
	}
	if err := s.FilledIn(ctx, l.ns); err != nil {
		t.Fatal(err)
	}
	there := types.NamespacedName{Namespace: other.ns, Name: "web"}
	if s.widen(ctx) || s.Get(there) != nil {
		t.Fatal("the whole cluster is watched without the right to")
	}

	rbac := clustertest.Shared(t).Client(t).RbacV1()
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: l.ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: l.ns}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rbac.ClusterRoleBindings().Delete(context.Background(), l.ns, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the whole cluster is watched", func() bool { return s.widen(ctx) })
	if s.Get(there) == nil || len(s.all()) != 1 {
		t.Errorf("of %s is kept %v; %d watches", there, s.Get(there), len(s.all()))
	}
	if key := <-handled; key != there {
		t.Errorf("handled: %s", key)
	}
}

// permit gives a user the rights to watch rollouts in a namespace.
func permit(t *testing.T, user, namespace string) {
	t.Helper()
	rbac := clustertest.Shared(t).Client(t).RbacV1()
	_, err := rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "rollouts"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apps"}, Resources: []string{"deployments", "replicasets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"pods", "events"}, Verbs: []string{"list"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "rollouts"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "rollouts"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
