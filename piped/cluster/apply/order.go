package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// level is a kind's place in the order of applying. Objects of one level do not
// need each other; every level needs the ones before it.
type level int

const (
	levelDefinitions level = iota // what other objects live in or are made of
	levelPolicies                 // accounts, roles, limits and classes
	levelBindings                 // refer to roles, which must exist
	levelConfig                   // what workloads mount and are reached by
	levelWorkloads                // workloads and every kind not named here
	levelRoutes                   // send traffic to what runs
	levelAdmission                // may refuse everything that comes after
)

// levels names the kinds that are not on levelWorkloads. An empty kind stands
// for all kinds of its group.
var levels = map[schema.GroupKind]level{
	{Kind: "Namespace"}: levelDefinitions,
	{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}: levelDefinitions,

	{Kind: "ServiceAccount"}:                                   levelPolicies,
	{Kind: "ResourceQuota"}:                                    levelPolicies,
	{Kind: "LimitRange"}:                                       levelPolicies,
	{Group: "rbac.authorization.k8s.io", Kind: "Role"}:         levelPolicies,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}:  levelPolicies,
	{Group: "scheduling.k8s.io", Kind: "PriorityClass"}:        levelPolicies,
	{Group: "storage.k8s.io"}:                                  levelPolicies,
	{Group: "node.k8s.io", Kind: "RuntimeClass"}:               levelPolicies,
	{Group: "networking.k8s.io", Kind: "IngressClass"}:         levelPolicies,
	{Group: "gateway.networking.k8s.io", Kind: "GatewayClass"}: levelPolicies,

	{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}:        levelBindings,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRoleBinding"}: levelBindings,

	{Kind: "ConfigMap"}:                                 levelConfig,
	{Kind: "Secret"}:                                    levelConfig,
	{Kind: "PersistentVolume"}:                          levelConfig,
	{Kind: "PersistentVolumeClaim"}:                     levelConfig,
	{Kind: "Service"}:                                   levelConfig,
	{Kind: "Endpoints"}:                                 levelConfig,
	{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:  levelConfig,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: levelConfig,

	{Group: "networking.k8s.io", Kind: "Ingress"}:           levelRoutes,
	{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute"}: levelRoutes,
	{Group: "gateway.networking.k8s.io", Kind: "GRPCRoute"}: levelRoutes,
	{Group: "gateway.networking.k8s.io", Kind: "TLSRoute"}:  levelRoutes,
	{Group: "gateway.networking.k8s.io", Kind: "TCPRoute"}:  levelRoutes,
	{Group: "gateway.networking.k8s.io", Kind: "UDPRoute"}:  levelRoutes,
	{Group: "networking.istio.io", Kind: "VirtualService"}:  levelRoutes,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:   levelRoutes,

	{Group: "admissionregistration.k8s.io"}: levelAdmission,
}

func levelOf(kind schema.GroupKind) level {
	if l, ok := levels[kind]; ok {
		return l
	}
	if l, ok := levels[schema.GroupKind{Group: kind.Group}]; ok && kind.Group != "" {
		return l
	}
	return levelWorkloads
}

// byLevel groups items by the level of their kind, in the order of applying.
// Inside a level the items keep their order; empty levels are left out.
func byLevel[T any](items []T, kind func(T) schema.GroupKind) [][]T {
	var out [levelAdmission + 1][]T
	for _, item := range items {
		l := levelOf(kind(item))
		out[l] = append(out[l], item)
	}
	return slices.DeleteFunc(out[:], func(group []T) bool { return len(group) == 0 })
}
