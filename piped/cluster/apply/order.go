package apply

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// level is the position of a kind in the order of applying. Objects of one level do not depend
// on each other, but may depend on objects of earlier levels.
type level int

const (
	levelDefinitions level = iota // namespaces and definitions of kinds
	levelPolicies                 // accounts, roles, limits and classes
	levelBindings                 // refer to roles, which must exist
	levelConfig                   // configuration, volumes and services of workloads
	levelWorkloads                // workloads and every kind that levels does not contain
	levelRoutes                   // send traffic to workloads
	levelAdmission                // may refuse all later writes
)

// levels maps kinds to their level. Kinds that it does not contain are on levelWorkloads. A
// key with only a group is for all kinds of the group.
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

// levelOf returns the level of a kind.
func levelOf(kind schema.GroupKind) level {
	if l, ok := levels[kind]; ok {
		return l
	}
	if l, ok := levels[schema.GroupKind{Group: kind.Group}]; ok && kind.Group != "" {
		return l
	}
	return levelWorkloads
}

// byLevel groups items by the level of their kind, in the order of applying. It retains the
// order of items within a level and omits empty levels.
func byLevel[T any](items []T, kind func(T) schema.GroupKind) [][]T {
	var out [levelAdmission + 1][]T
	for _, item := range items {
		l := levelOf(kind(item))
		out[l] = append(out[l], item)
	}
	return slices.DeleteFunc(out[:], func(group []T) bool { return len(group) == 0 })
}
