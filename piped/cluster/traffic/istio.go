package traffic

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// istio shares traffic by the weights of a VirtualService's destinations. Each variant is a
// subset of the host; the subset's name is the variant's label value.
type istio struct{ Routing }

func (i istio) find(objects []manifest.Object) ([]int, error) {
	name := i.Istio.VirtualService.Name
	for at, o := range objects {
		if isKind(o, "networking.istio.io", "VirtualService") && (name == "" || o.GetName() == name) {
			return []int{at}, nil
		}
	}
	if name == "" {
		return nil, deploy.Errorf(deploy.Invalid, "the application has no VirtualService whose weights could be edited: declare one in Git")
	}
	return nil, deploy.Errorf(deploy.Invalid,
		"the application has no VirtualService %q: declare it in Git, or name another one in spec.trafficRouting.istio.virtualService", name)
}

// edit writes the shares into the routes of a VirtualService that have the primary as a
// destination. Only http routes have names, so EditableRoutes excludes tcp and tls routes.
func (i istio) edit(u *unstructured.Unstructured, s Shares) error {
	edited := 0
	names := map[string]bool{}
	for _, protocol := range []string{"http", "tls", "tcp"} {
		routes, found, err := unstructured.NestedSlice(u.Object, "spec", protocol)
		if err != nil {
			return err
		}
		for n, v := range routes {
			route, ok := v.(map[string]any)
			if !ok {
				return fmt.Errorf("spec.%s[%d] is no mapping", protocol, n)
			}
			name, _ := route["name"].(string)
			if len(i.Istio.EditableRoutes) > 0 && !slices.Contains(i.Istio.EditableRoutes, name) {
				continue
			}
			names[name] = true
			destinations, _ := route["route"].([]any)
			shared, err := i.dialect().split(destinations, s)
			if err != nil {
				return fmt.Errorf("spec.%s[%d]: %w", protocol, n, err)
			}
			if shared != nil {
				route["route"] = shared
				edited++
			}
		}
		if found {
			if err := unstructured.SetNestedSlice(u.Object, routes, "spec", protocol); err != nil {
				return err
			}
		}
	}
	for _, name := range i.Istio.EditableRoutes {
		if !names[name] {
			return fmt.Errorf("it has no route named %q, which spec.trafficRouting.istio.editableRoutes lists", name)
		}
	}
	if edited == 0 {
		return fmt.Errorf("no route that may be edited has the host %q as a destination, without subset or with subset %q", i.Istio.Host, i.Label.PrimaryValue)
	}
	return nil
}

func (i istio) dialect() dialect {
	subsets := map[kubernetes.Variant]string{
		kubernetes.Primary: i.Label.PrimaryValue, kubernetes.Canary: i.Label.CanaryValue, kubernetes.Baseline: i.Label.BaselineValue,
	}
	return dialect{
		floor: true,
		unset: func(n int) int {
			if n == 1 {
				return 100
			}
			return 0
		},
		role: func(d map[string]any) (kubernetes.Variant, bool) {
			if host, _, _ := unstructured.NestedString(d, "destination", "host"); host != i.Istio.Host {
				return "", false
			}
			subset, _, _ := unstructured.NestedString(d, "destination", "subset")
			if subset == "" {
				return kubernetes.Primary, true
			}
			for v, name := range subsets {
				if subset == name {
					return v, true
				}
			}
			return "", false
		},
		become: func(d map[string]any, v kubernetes.Variant) {
			d["destination"].(map[string]any)["subset"] = subsets[v]
		},
		port: func(d map[string]any) any {
			number, _, _ := unstructured.NestedFieldNoCopy(d, "destination", "port", "number")
			return number
		},
	}
}
