package kubernetes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// TrafficRouting is spec.trafficRouting: how K8S_TRAFFIC_ROUTING shares traffic.
type TrafficRouting struct {
	// Method is what shares the traffic: `podselector` the selector of the Service, all or
	// nothing; `istio` the weights of a VirtualService; `httproute` and `grpcroute` those of
	// routes of the Gateway API, which are not in PipeCD. `smi` is refused with a stage
	// `K8S_TRAFFIC_ROUTING`, which PipeCD fails, too, and has no effect without one.
	Method Method `yaml:"method"`
	// Istio is for the method `istio`.
	Istio *Istio `yaml:"istio"`
	// HTTPRoute is for the methods `httproute` and `grpcroute`.
	// Not in PipeCD.
	HTTPRoute *HTTPRoute `yaml:"httpRoute"`
}

// Method is a way to share traffic.
type Method string

// The methods.
const (
	PodSelector     Method = "podselector"
	IstioMethod     Method = "istio"
	HTTPRouteMethod Method = "httproute"
	GRPCRouteMethod Method = "grpcroute"
	// SMI is PipeCD's, which cannot share traffic with it either.
	SMI Method = "smi"
)

// Values lists the methods.
func (Method) Values() []string {
	return []string{string(PodSelector), string(IstioMethod), string(HTTPRouteMethod), string(GRPCRouteMethod), string(SMI)}
}

// Istio says which VirtualService to edit.
type Istio struct {
	// Host is the host whose destinations are the variants.
	// Required.
	Host string `yaml:"host"`
	// EditableRoutes are names of the routes that may be changed.
	// Default: all.
	EditableRoutes []string `yaml:"editableRoutes"`
	// VirtualService is the VirtualService to change.
	// Default: the first one in Git.
	VirtualService Reference `yaml:"virtualService"`
}

// HTTPRoute says which routes of the Gateway API to edit.
type HTTPRoute struct {
	// Refs are the routes to change.
	// Default: all with the stable Service.
	Refs []RouteRef `yaml:"refs"`
	// EditableRules are names of the rules that may be changed.
	// Default: all with the stable Service.
	EditableRules []string `yaml:"editableRules"`
	// StableService is the backend whose traffic is shared. The backends of the variants are its
	// name with their suffixes.
	// Default: `service.name`.
	StableService string `yaml:"stableService"`
	// ABMatches are requests that go to the canary whatever the shares: those that match one of
	// them in full.
	ABMatches []ABMatch `yaml:"abMatches"`
	// Mirror copies requests to the canary, whose answers are dropped.
	Mirror Mirror `yaml:"mirror"`
	// Verify is how long the stage waits for a route.
	Verify RouteVerify `yaml:"verify"`
}

// Default implements strict.Defaulter.
func (r *HTTPRoute) Default() {
	r.Verify = RouteVerify{Timeout: 30 * time.Second, Settle: 5 * time.Second}
}

// RouteRef names a route.
type RouteRef struct {
	// Name is the name of the route.
	// Required.
	Name string `yaml:"name"`
	// Namespace is the namespace of the route.
	// Default: the application's.
	Namespace string `yaml:"namespace"`
}

// ABMatch selects requests that have all of what is written, which is at least
// one value, by name.
type ABMatch struct {
	// Headers are headers of the request.
	// Default: none.
	Headers map[string]string `yaml:"headers"`
	// QueryParams are query parameters of the request.
	// Default: none.
	QueryParams map[string]string `yaml:"queryParams"`
	// Cookies is one cookie of the request.
	// Default: none.
	Cookies map[string]string `yaml:"cookies"`
}

// Mirror copies requests to the canary, whose answers are dropped.
type Mirror struct {
	// Percent is the share of requests that are copied.
	// Default: `0`.
	Percent strict.Percent `yaml:"percent"`
}

// RouteVerify says how long to wait for a route.
type RouteVerify struct {
	// Timeout is the time in which every gateway must accept the route.
	Timeout time.Duration `yaml:"timeout"`
	// Settle is the time between no traffic and the removal of a variant.
	Settle time.Duration `yaml:"settle"`
}

// complete checks the fields; service is spec.service.name, the stable Service
// where none is written.
func (t *TrafficRouting) complete(d *strict.Document, service string) {
	gateway := t.Method == HTTPRouteMethod || t.Method == GRPCRouteMethod
	if gateway && t.HTTPRoute == nil {
		t.HTTPRoute = &HTTPRoute{}
		t.HTTPRoute.Default()
	}
	if t.Istio != nil {
		t.Istio.complete(d)
		if t.Method != IstioMethod {
			d.Warnf("trafficRouting.istio", "has no effect with method %s", t.Method)
		}
	} else if t.Method == IstioMethod {
		d.Problemf("trafficRouting.istio", "required with method %s; expected a mapping with host", t.Method)
	}
	if t.HTTPRoute != nil {
		t.HTTPRoute.complete(d)
		if !gateway {
			d.Warnf("trafficRouting.httpRoute", "has no effect with method %s", t.Method)
		} else {
			t.completeGateway(d, service)
		}
	}
}

// completeGateway is about what the routes of one method need.
func (t *TrafficRouting) completeGateway(d *strict.Document, service string) {
	const at = "trafficRouting.httpRoute"
	t.HTTPRoute.StableService = cmp.Or(t.HTTPRoute.StableService, service)
	if t.HTTPRoute.StableService == "" {
		d.Problemf(at+".stableService", "required with method %s unless spec.service.name is written; expected the Service whose traffic is shared", t.Method)
	}
	for i, m := range t.HTTPRoute.ABMatches {
		if t.Method == GRPCRouteMethod && len(m.QueryParams) > 0 {
			d.Problemf(fmt.Sprintf("%s.abMatches[%d].queryParams", at, i), "a GRPCRoute cannot match them; use headers")
		}
	}
}

func (i *Istio) complete(d *strict.Document) {
	const at = "trafficRouting.istio"
	if i.Host == "" {
		d.Problemf(at+".host", "required; expected the host whose destinations are the variants")
	}
	if k := i.VirtualService.Kind; k != "" && k != "VirtualService" {
		d.Problemf(at+".virtualService.kind", "expected VirtualService, found %q", k)
	}
	checkTexts(d, at+".editableRoutes", i.EditableRoutes)
}

func (r *HTTPRoute) complete(d *strict.Document) {
	const at = "trafficRouting.httpRoute"
	for i, ref := range r.Refs {
		if ref.Name == "" {
			d.Problemf(fmt.Sprintf("%s.refs[%d].name", at, i), "required; expected the name of a route")
		}
	}
	checkTexts(d, at+".editableRules", r.EditableRules)
	for i, m := range r.ABMatches {
		if len(m.Headers)+len(m.QueryParams)+len(m.Cookies) == 0 {
			d.Problemf(fmt.Sprintf("%s.abMatches[%d]", at, i), "expected at least one of headers, queryParams and cookies")
		}
		if len(m.Cookies) > 1 {
			d.Problemf(fmt.Sprintf("%s.abMatches[%d].cookies", at, i), "expected one cookie, found %d; a route can match one at a time", len(m.Cookies))
		}
	}
	if r.Mirror.Percent > 100 {
		d.Problemf(at+".mirror.percent", "expected a percentage from 0 to 100, found %d", r.Mirror.Percent)
	}
	if r.Verify.Timeout <= 0 {
		d.Problemf(at+".verify.timeout", "expected a duration above 0, found %s", r.Verify.Timeout)
	}
	if r.Verify.Settle < 0 {
		d.Problemf(at+".verify.settle", "expected a duration of 0 or more, found %s", r.Verify.Settle)
	}
}

// checkTexts reports empty items of a list.
func checkTexts(d *strict.Document, at string, texts []string) {
	for i, text := range texts {
		if text == "" {
			d.Problemf(fmt.Sprintf("%s[%d]", at, i), "expected a text, found an empty one")
		}
	}
}
