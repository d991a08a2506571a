package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes/clustertest"
	"github.com/c785c783/piped/piped/kubernetes/rollout"
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
