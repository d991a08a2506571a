package clustertest

import (
	"fmt"
	"strings"
	"testing"
)

// Istio returns minimal CRDs of Istio's kinds that route traffic, without validation.
// They are not Istio's own.
func Istio() (definitions [][]byte) {
	for kind, plural := range map[string]string{"VirtualService": "virtualservices", "DestinationRule": "destinationrules", "Gateway": "gateways"} {
		definitions = append(definitions, fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.networking.istio.io}
spec:
  group: networking.istio.io
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[3]s}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`, kind, plural, strings.ToLower(kind)))
	}
	return definitions
}

// InstallIstio installs these CRDs in the cluster.
func (c *Cluster) InstallIstio(t testing.TB) {
	t.Helper()
	c.Define(t, Istio()...)
}
