// Package traffic puts the shares of an application's variants into the objects
// that route its traffic: a Service's selector (podselector), a VirtualService's
// destinations (istio), or the backends of routes of the Gateway API (httproute and
// grpcroute). It also reads from a live route what its gateways say of it.
//
//	shares.go       how much of the traffic each variant gets
//	routing.go      which objects route it, and editing them
//	podselector.go  method podselector
//	istio.go        method istio
//	gateway.go      methods httproute and grpcroute
//	gateway_ab.go   what of them goes to the canary whatever the shares
//	split.go        dividing the weight of a destination among the variants
//	verdict.go      whether every gateway has accepted a route
//
// What is applied is always the object of Git with the shares laid over it, so that
// one field manager writes all of it, an interrupted change can be repeated, and
// 100 percent for the primary is the object of Git itself. Only weights of the
// variants' destinations change, and rules of our own are added; everything else
// stays, and what goes to other destinations stays in the same proportion.
//
// Everything here is a pure function that changes none of its arguments. The package
// talks to no cluster and knows no stages.
package traffic
