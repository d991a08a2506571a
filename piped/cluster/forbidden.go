package cluster

import (
	"fmt"
	"regexp"
	"strings"
)

// unpermitted matches the API server's message for a request that no role of the user
// permits. Refusals by quotas and admission policies do not match.
var unpermitted = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]*)" in API group "([^"]*)" (?:in the namespace "([^"]*)"|at the cluster scope)`)

// escalation is part of the API server's message for a user who grants permissions that the
// user does not have.
const escalation = "attempting to grant RBAC permissions not currently held"

// grant returns the RBAC rule that would permit a refused request, as the end of a message;
// "" if no missing permission caused the refusal.
func grant(err error) string {
	text := err.Error()
	if strings.Contains(text, escalation) {
		return "; an account can grant only the rights it has: give it these rights as well, or the verb escalate on roles and clusterroles and bind on those that bindings name"
	}
	m := unpermitted.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	user, verb, resource, group, namespace := m[1], m[2], m[3], m[4], m[5]
	where := "a ClusterRole"
	if namespace != "" {
		where = fmt.Sprintf("a Role in namespace %s, or a ClusterRole,", namespace)
	}
	return fmt.Sprintf("; to permit it, add to %s of %s the rule {apiGroups: [%q], resources: [%q], verbs: [%q]}", where, account(user), group, resource, verb)
}

// account formats a user as the subject of a binding: "ServiceAccount ns/name", or "user
// name".
func account(user string) string {
	if name, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		return "ServiceAccount " + strings.Replace(name, ":", "/", 1)
	}
	return "user " + user
}
