package traffic

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Routing describes how the traffic of an application is shared: spec.trafficRouting with
// all defaults filled in. It can be encoded as JSON without loss.
type Routing struct {
	Method kubernetes.Method       `json:"method"`
	Label  kubernetes.VariantLabel `json:"label"`
	// Service is the name of the stable variant's Service. For podselector it is the Service
	// whose selector is edited ("" selects the application's first Service), for httproute
	// and grpcroute the backend whose traffic is shared.
	Service string `json:"service,omitempty"`
	// Canary and Baseline are the names of the variants' Services, the backends for
	// httproute and grpcroute; "" if the variant has no Service.
	Canary   string `json:"canary,omitempty"`
	Baseline string `json:"baseline,omitempty"`

	Istio *kubernetes.Istio     `json:"istio,omitempty"` // for istio
	Route *kubernetes.HTTPRoute `json:"route,omitempty"` // for httproute and grpcroute
	// NameRules is set if the cluster's Gateway API supports rule names. Added rules then
	// get a name.
	NameRules bool `json:"nameRules,omitempty"`
}

// writer implements one routing method.
type writer interface {
	// find returns the indexes of the objects that route the traffic, at least one.
	find(objects []manifest.Object) ([]int, error)
	// edit writes the shares into one of these objects. It changes u. The shares are not
	// Stable.
	edit(u *unstructured.Unstructured, s Shares) error
}

func (r Routing) writer() (writer, error) {
	switch {
	case r.Method == kubernetes.PodSelector:
		return podSelector{r}, nil
	case r.Method == kubernetes.IstioMethod && r.Istio != nil:
		return istio{r}, nil
	case r.Gateway() && r.Route != nil && r.Service != "":
		return gateway{r}, nil
	}
	return nil, deploy.Errorf(deploy.Invalid, "traffic cannot be shared: spec.trafficRouting is incomplete for method %q", r.Method)
}

// Gateway reports whether the traffic is routed by Gateway API routes. Evaluate reads the
// status of such routes.
func (r Routing) Gateway() bool {
	return r.Method == kubernetes.HTTPRouteMethod || r.Method == kubernetes.GRPCRouteMethod
}

// Routes returns the objects that route the traffic, unchanged. It returns an error of kind
// deploy.Invalid if there is none, or if an object that the configuration names is missing.
func (r Routing) Routes(objects []manifest.Object) ([]manifest.Object, error) {
	w, err := r.writer()
	if err != nil {
		return nil, err
	}
	at, err := w.find(objects)
	var out []manifest.Object
	for _, i := range at {
		out = append(out, objects[i])
	}
	return out, err
}

// Apply returns objects with the shares written into copies of the routing objects. The
// other objects are returned as they are; with Stable shares all are. The error is of kind
// deploy.Invalid and says what to change in Git.
func (r Routing) Apply(objects []manifest.Object, s Shares) ([]manifest.Object, error) {
	if s.Whole() {
		return objects, nil
	}
	if err := s.check(); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "share the traffic: %w", err)
	}
	w, err := r.writer()
	if err != nil {
		return nil, err
	}
	at, err := w.find(objects)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(objects)
	for _, i := range at {
		out[i] = objects[i].Clone()
		if err := w.edit(out[i].Unstructured, s); err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "%s: share the traffic of %s (%s): %w", out[i].Origin, manifest.Ref(out[i].Unstructured), s, err)
		}
	}
	return out, nil
}
