// The definitions of the Gateway API's kinds are read from this module, by tests and
// by the demo. Nothing is compiled of it, and the control plane beside it, whose
// dependencies it would change, knows nothing of it.
module github.com/c785c783/piped/examples/devcluster/gatewayapi

go 1.26.0

require sigs.k8s.io/gateway-api v1.6.3
