package cluster

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestGrantNamesTheRuleToAdd(t *testing.T) {
	for name, c := range map[string]struct{ said, want string }{
		"in a namespace": {
			`deployments.apps "web" is forbidden: User "system:serviceaccount:piped:piped" cannot patch resource "deployments" in API group "apps" in the namespace "demo"`,
			`; to permit it, add to a Role in namespace demo, or a ClusterRole, of ServiceAccount piped/piped the rule {apiGroups: ["apps"], resources: ["deployments"], verbs: ["patch"]}`,
		},
		"of a subresource of the core group": {
			`pods "web-1" is forbidden: User "system:serviceaccount:piped:piped" cannot get resource "pods/log" in API group "" in the namespace "demo"`,
			`; to permit it, add to a Role in namespace demo, or a ClusterRole, of ServiceAccount piped/piped the rule {apiGroups: [""], resources: ["pods/log"], verbs: ["get"]}`,
		},
		"in the whole cluster": {
			`clusterroles.rbac.authorization.k8s.io "web" is forbidden: User "ann" cannot create resource "clusterroles" in API group "rbac.authorization.k8s.io" at the cluster scope`,
			`; to permit it, add to a ClusterRole of user ann the rule {apiGroups: ["rbac.authorization.k8s.io"], resources: ["clusterroles"], verbs: ["create"]}`,
		},
		"of a role with more than the account has": {
			`roles.rbac.authorization.k8s.io "web" is forbidden: user "system:serviceaccount:piped:piped" (groups=["system:serviceaccounts"]) is attempting to grant RBAC permissions not currently held: {APIGroups:[""]}`,
			`; an account can grant only the rights it has: give it these rights as well, or the verb escalate on roles and clusterroles and bind on those that bindings name`,
		},
		"by a quota": {`pods "web" is forbidden: exceeded quota: small, requested: pods=1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, grant(errors.New(c.said))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
