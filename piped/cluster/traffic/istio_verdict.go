package traffic

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// IstioGroup is the API group of Istio's kinds that route traffic.
const IstioGroup = "networking.istio.io"

// GatewaysOf returns the Gateways that a VirtualService names, as namespace and name. The mesh is none.
func GatewaysOf(virtualService *unstructured.Unstructured) (out [][2]string) {
	names, _, _ := unstructured.NestedStringSlice(virtualService.Object, "spec", "gateways")
	for _, name := range names {
		namespace, rest, qualified := strings.Cut(name, "/")
		switch {
		case qualified:
			out = append(out, [2]string{namespace, rest})
		case name != "mesh":
			out = append(out, [2]string{virtualService.GetNamespace(), name})
		}
	}
	return out
}

// EvaluateVirtualService returns the verdict on a live VirtualService, given those of its Gateways that
// exist. For each of its hosts, one of them has to have a server that serves HTTP for it. Istio reports no
// status by default; if it does, the status must have no error, and the change be distributed.
func EvaluateVirtualService(virtualService *unstructured.Unstructured, gateways []unstructured.Unstructured) Verdict {
	hosts, _, _ := unstructured.NestedStringSlice(virtualService.Object, "spec", "hosts")
	for _, host := range hosts {
		if !slices.ContainsFunc(gateways, func(g unstructured.Unstructured) bool { return serves(g, virtualService.GetNamespace(), host) }) {
			names, _, _ := unstructured.NestedStringSlice(virtualService.Object, "spec", "gateways")
			return Verdict{Refused: true, Reason: fmt.Sprintf("none of its Gateways (%s) has a server for HTTP with the host %s: add it to spec.servers[].hosts, or use a host that they serve", strings.Join(names, ", "), host)}
		}
	}
	return istioStatus(virtualService)
}

// serves reports whether a Gateway serves HTTP for a host of a VirtualService in a namespace.
func serves(gateway unstructured.Unstructured, namespace, host string) bool {
	servers, _, _ := unstructured.NestedSlice(gateway.Object, "spec", "servers")
	return slices.ContainsFunc(servers, func(v any) bool {
		server, _ := v.(map[string]any)
		port, _ := server["port"].(map[string]any)
		tls, _ := server["tls"].(map[string]any)
		isHTTP := slices.Contains([]string{"HTTP", "HTTP2", "GRPC", "GRPC-WEB", "HTTPS"}, strings.ToUpper(text(port, "protocol"))) && !strings.HasSuffix(text(tls, "mode"), "PASSTHROUGH")
		hosts, _, _ := unstructured.NestedStringSlice(server, "hosts")
		return isHTTP && slices.ContainsFunc(hosts, func(pattern string) bool { return matchesHost(pattern, gateway.GetNamespace(), namespace, host) })
	})
}

// matchesHost reports whether a pattern of a Gateway, such as "*.example.com" or "shop/*", matches a host
// of a VirtualService.
func matchesHost(pattern, gatewayNamespace, namespace, host string) bool {
	of, name, qualified := strings.Cut(pattern, "/")
	switch {
	case !qualified:
		name = pattern
	case of == ".":
		of = gatewayNamespace
		fallthrough
	default:
		if of != "*" && of != namespace {
			return false
		}
	}
	domain, wild := strings.CutPrefix(name, "*")
	return strings.EqualFold(name, host) || wild && strings.HasSuffix(strings.ToLower(host), strings.ToLower(domain))
}

// istioStatus returns the verdict of the status that Istio reports if that is enabled.
func istioStatus(o *unstructured.Unstructured) Verdict {
	observed, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	pending := Verdict{Accepted: true}
	for _, v := range conditions {
		c, _ := v.(map[string]any)
		generation := observed
		if own, ok := c["observedGeneration"].(int64); ok {
			generation = own
		}
		stale := generation != 0 && generation < o.GetGeneration()
		switch no := text(c, "status") != "True"; {
		case text(c, "type") == "Reconciled" && (no || stale):
			pending = Verdict{Reason: fmt.Sprintf("Istio has not distributed the latest change yet: %s", text(c, "message"))}
		case text(c, "type") == "PassedAnalysis" && no && !stale:
			if why := analysisErrors(o); why != "" {
				return Verdict{Refused: true, Reason: "Istio says " + why}
			}
		}
	}
	return pending
}

// analysisErrors returns the errors that Istio's analysis has found in an object; warnings are none.
func analysisErrors(o *unstructured.Unstructured) string {
	messages, _, _ := unstructured.NestedSlice(o.Object, "status", "validationMessages")
	var out []string
	for _, v := range messages {
		m, _ := v.(map[string]any)
		if !strings.EqualFold(text(m, "level"), "error") {
			continue
		}
		code := text(m, "code")
		if kind, ok := m["type"].(map[string]any); ok {
			code = text(kind, "code") + " " + text(kind, "name")
		}
		out = append(out, strings.TrimSpace(code+": "+text(m, "message")))
	}
	return strings.Join(out, "; ")
}
