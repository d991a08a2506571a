package traffic

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Routing says how the traffic of an application is shared. It is what
// spec.trafficRouting says with everything filled in, and holds only what JSON can.
type Routing struct {
	Method kubernetes.Method       `json:"method"`
	Label  kubernetes.VariantLabel `json:"label"`
	// Service is the name of the Service of the stable variant: for podselector the
	// one whose selector is edited ("" is the first one), for httproute and grpcroute
	// the backend whose traffic is shared.
	Service string `json:"service,omitempty"`
	// Canary and Baseline are the names of the variants' Services, which httproute and
	// grpcroute send traffic to; "" when there is no such variant.
	Canary   string `json:"canary,omitempty"`
	Baseline string `json:"baseline,omitempty"`

	Istio *kubernetes.Istio     `json:"istio,omitempty"` // for istio
	Route *kubernetes.HTTPRoute `json:"route,omitempty"` // for httproute and grpcroute
	// NameRules: the cluster's routes can have rules with names, so that ours get one.
	NameRules bool `json:"nameRules,omitempty"`
}

// writer is one method.
type writer interface {
	// find returns the indexes of the objects that route the traffic, at least one.
	find(objects []manifest.Object) ([]int, error)
	// edit puts shares, which are not Stable, into one of them. It may change u.
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

// Gateway reports whether the objects that route the traffic are routes of the
// Gateway API, of which Judge tells whether they are in force.
func (r Routing) Gateway() bool {
	return r.Method == kubernetes.HTTPRouteMethod || r.Method == kubernetes.GRPCRouteMethod
}

// Routes returns those of objects that route the traffic, as they are. The error
// is of kind deploy.Invalid when there is none, or not all that are named.
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

// Apply returns objects with the shares in those that route the traffic; the
// others are the same, and with Stable shares all of them are. The error is of kind
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
