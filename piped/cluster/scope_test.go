package cluster

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestTheWholeClusterIsTriedAgain: rights that come after the agent has started are made
// use of.
func TestTheWholeClusterIsTriedAgain(t *testing.T) {
	t.Parallel()
	l, other := newLab(t), newLab(t)
	as, err := l.As(l.ns)
	if err != nil {
		t.Fatal(err)
	}
	clustertest.Shared(t).PermitRollouts(t, l.ns, l.ns)
	other.apply(t, withSettings("Deployment", "hello", "", plainPod))
	controller := NewController(as)
	s := controller.Scope(Watched{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Metadata: true,
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
	if err := s.Start(); err != nil {
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
	clustertest.Eventually(t, "the whole cluster is watched", func() bool { return s.widen(ctx) })
	if s.Get(there) == nil || len(s.all()) != 1 {
		t.Errorf("of %s is kept %v; %d watches", there, s.Get(there), len(s.all()))
	}
	if key := <-handled; key != there {
		t.Errorf("handled: %s", key)
	}
}
