package traffic

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// podSelector sends all traffic to either the primary or the canary, by the variant label
// in a Service's selector.
type podSelector struct{ Routing }

func (p podSelector) find(objects []manifest.Object) ([]int, error) {
	for i, o := range objects {
		if isKind(o, "", "Service") && (p.Service == "" || o.GetName() == p.Service) {
			return []int{i}, nil
		}
	}
	if p.Service == "" {
		return nil, deploy.Errorf(deploy.Invalid, "the application has no Service whose selector could be switched to the canary: declare one in Git")
	}
	return nil, deploy.Errorf(deploy.Invalid, "the application has no Service %q: declare it in Git, or name another one in spec.service.name", p.Service)
}

func (p podSelector) edit(u *unstructured.Unstructured, s Shares) error {
	path := []string{"spec", "selector", p.Label.Key}
	now, _, err := unstructured.NestedString(u.Object, path...)
	if err != nil {
		return err
	}
	if now != p.Label.PrimaryValue {
		return fmt.Errorf("its selector must have %s: %s in Git, so that it can be switched; it has %q", p.Label.Key, p.Label.PrimaryValue, now)
	}
	if s.Canary != 100 {
		return fmt.Errorf("method podselector sends all traffic to the primary or all to the canary; use another method for anything between")
	}
	return unstructured.SetNestedField(u.Object, p.Label.CanaryValue, path...)
}

// isKind reports whether an object has the group and kind, in any version.
func isKind(o manifest.Object, group, kind string) bool {
	gvk := o.GroupVersionKind()
	return gvk.Group == group && gvk.Kind == kind
}
