// Package traffic writes the traffic shares of an application's variants into the objects
// that route its traffic: a Service's selector (podselector), a VirtualService's
// destinations (istio), or the backends of Gateway API routes (httproute and grpcroute).
// It also evaluates the status that gateways report for a live route.
//
//	shares.go       how much of the traffic each variant gets
//	routing.go      which objects route it, and editing them
//	podselector.go  method podselector
//	istio.go        method istio
//	gateway.go      methods httproute and grpcroute
//	gateway_ab.go   rules that send matching requests to the canary, and mirroring
//	split.go        dividing the weight of a destination among the variants
//	verdict.go      whether every gateway has accepted a route
//	istio_verdict.go  whether a VirtualService is in force
//
// The result is always the object in Git with the shares written into a copy. So one field
// manager owns the whole object, an interrupted change can be repeated, and 100 percent for
// the primary is the object in Git itself. The package changes the weights of the variants'
// destinations and adds its own rules. Other destinations keep their proportion of the
// traffic; their weights may be multiplied by a common factor.
//
// All exported functions are pure and do not change their arguments. The package does not
// access the cluster and does not depend on stages.
package traffic
