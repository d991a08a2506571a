package kubernetes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// TrafficRouting is spec.trafficRouting: how K8S_TRAFFIC_ROUTING shares traffic.
type TrafficRouting struct {
	Method Method `yaml:"method"`
	// Istio is for method istio.
	Istio *Istio `yaml:"istio"`
	// HTTPRoute is for methods httproute and grpcroute.
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
	Host           string    `yaml:"host"`           // whose destinations are the variants
	EditableRoutes []string  `yaml:"editableRoutes"` // names of routes; empty is all
	VirtualService Reference `yaml:"virtualService"` // empty is the first one in Git
}

// HTTPRoute says which routes of the Gateway API to edit.
type HTTPRoute struct {
	// Refs are the routes; empty is every one in Git that has StableService as a
	// backend.
	Refs []RouteRef `yaml:"refs"`
	// EditableRules are names of rules; empty is every rule that has StableService
	// as a backend.
	EditableRules []string `yaml:"editableRules"`
	StableService string   `yaml:"stableService"` // "" is service.name
	// ABMatches are requests that go to the canary whatever the shares.
	ABMatches []ABMatch   `yaml:"abMatches"`
	Mirror    Mirror      `yaml:"mirror"`
	Verify    RouteVerify `yaml:"verify"`
}

// Default implements strict.Defaulter.
func (r *HTTPRoute) Default() {
	r.Verify = RouteVerify{Timeout: 30 * time.Second, Settle: 5 * time.Second}
}

// RouteRef names a route.
type RouteRef struct {
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace"` // "" is the application's
}

// ABMatch selects requests that have all of what is written, which is at least
// one value, by name.
type ABMatch struct {
	Headers     map[string]string `yaml:"headers"`
	QueryParams map[string]string `yaml:"queryParams"`
	Cookies     map[string]string `yaml:"cookies"`
}

// Mirror copies requests to the canary, whose answers are dropped.
type Mirror struct {
	Percent strict.Percent `yaml:"percent"`
}

// RouteVerify says how long to wait for a route.
type RouteVerify struct {
	Timeout time.Duration `yaml:"timeout"` // until every parent has accepted the route
	Settle  time.Duration `yaml:"settle"`  // between no traffic and the removal of a variant
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
