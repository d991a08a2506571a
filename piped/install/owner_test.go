package install

import (
	"context"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestAnOwnerOfNamespacesInstalls: one with all rights in some namespaces and none in the cluster
// installs an agent there, and removes it.
func TestAnOwnerOfNamespacesInstalls(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	ns, apps := shared.Namespace(t), shared.Namespace(t)
	rbac := shared.Client(t).RbacV1()
	for _, in := range []string{ns, apps, metav1.NamespaceDefault} {
		_, err := rbac.RoleBindings(in).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "owner"},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "owner"}}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := rbac.RoleBindings(metav1.NamespaceDefault).Delete(context.Background(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	i := installer(t, ns, "owner")
	i.Namespaces = []string{apps}
	v := variant(t, options(func(o *Options) { o.Namespace, o.Namespaces = ns, []string{apps} }))
	var found string
	clustertest.Eventually(t, "the bindings take effect", func() bool {
		findings, err := i.CheckBefore(t.Context(), Expected{Variant: &v})
		if err != nil {
			t.Fatal(err)
		}
		found = fmt.Sprint(findings)
		return !strings.Contains(found, "problem")
	})
	if !strings.Contains(found, "you may make the ") || !strings.Contains(found, "storage classes cannot be read") {
		t.Errorf("found %s", found)
	}
	if _, err := apply(t, i, v, Given{}); err != nil {
		t.Fatal(err)
	}
	installed, err := i.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	files, err := v.Files()
	if err != nil {
		t.Fatal(err)
	}
	wanted, err := objects(files)
	if err != nil {
		t.Fatal(err)
	}
	if len(installed) != len(wanted) { // a secret more, and the namespace is not of the installation
		t.Errorf("found %d of %d objects", len(installed), len(wanted))
	}
	plan, err := i.PlanRemoval(t.Context(), true, noConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Remove(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if left, err := installer(t, ns, "").Find(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left %d objects, %v", len(left), err)
	}
}
