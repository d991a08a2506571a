package watch

import (
	"context"
	"net/http"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestTheWholeClusterIsTriedAgain: rights that come after the agent has started are made
// use of.
func TestTheWholeClusterIsTriedAgain(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	ns, other := shared.Namespace(t), shared.Namespace(t)
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	as, err := c.As(ns)
	if err != nil {
		t.Fatal(err)
	}
	shared.PermitRollouts(t, ns, ns)
	labels := map[string]string{"app": "web"}
	_, err = shared.Client(t).AppsV1().Deployments(other).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	controller := New(as)
	s := controller.Scope(Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Metadata: true,
	})
	handled := make(chan types.NamespacedName, 100)
	if err := s.Handle("test", func(_ context.Context, key types.NamespacedName) error {
		if key.Namespace == other {
			handled <- key
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	clustertest.Run(t, controller.Run)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.FilledIn(ctx, ns); err != nil {
		t.Fatal(err)
	}
	there := types.NamespacedName{Namespace: other, Name: "web"}
	if s.widen(ctx) || s.Get(there) != nil {
		t.Fatal("the whole cluster is watched without the right to")
	}

	rbac := clustertest.Shared(t).Client(t).RbacV1()
	_, err = rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: ns}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rbac.ClusterRoleBindings().Delete(context.Background(), ns, metav1.DeleteOptions{}); err != nil {
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

// TestARefusalAfterAnOutage: the watch of the whole cluster first gets no answer, then a
// refusal. The namespaces are watched from then on.
func TestARefusalAfterAnOutage(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	ns := shared.Namespace(t)
	link := &clustertest.Link{Down: true}
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", KubeConfigPath: shared.Kubeconfig(), WrapTransport: link.Wrap})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	controller := New(c)
	s := controller.Scope(Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, Metadata: true})
	if err := s.Cover(ns); err != nil {
		t.Fatal(err)
	}
	clustertest.Run(t, controller.Run)
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the cluster does not answer", func() bool {
		s.mu.Lock()
		whole := s.watches[""]
		s.mu.Unlock()
		_, err := whole.State()
		return cluster.Unreachable(err)
	})
	link.Set(func() {
		link.Answer = func(r *http.Request) *http.Response {
			if r.URL.Path != "/api/v1/configmaps" {
				return nil
			}
			return clustertest.Refusal(r, metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "configmaps is forbidden"})
		}
		link.Down = false
	})
	if err := s.FilledIn(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	if len(s.all()) != 1 || s.all()[0].resource.Namespace != ns {
		t.Errorf("%d watches, want one of namespace %s", len(s.all()), ns)
	}
}
