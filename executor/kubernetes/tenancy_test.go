package kubernetes

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// rules are a Tenancy that is the same for every application.
type rules struct {
	tenant config.Tenant
	signer string
	err    error // of Signer
}

func (r rules) Tenant(deploy.GitPath) config.Tenant { return r.tenant }

func (r rules) Signer(context.Context, deploy.GitPath, string) (string, error) {
	return r.signer, r.err
}

// rule makes a Tenancy of one rule.
func rule(r config.TenancyRule) rules {
	r.Name = "team"
	return rules{tenant: config.Tenant{r}}
}

const serviceManifest = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"

// TestTenancyIsCheckedBeforeTheFirstWrite: a stage that a rule refuses writes
// nothing, and there is nothing to roll back.
func TestTenancyIsCheckedBeforeTheFirstWrite(t *testing.T) {
	for name, c := range map[string]struct {
		rules     rules
		manifests string
		want      string
	}{
		"a kind": {
			rule(config.TenancyRule{DeniedKinds: []config.KindPattern{"Service"}}), keptManifest + serviceManifest,
			`tenancy "team" does not allow kind Service: Service NS/web (web/app.yaml:5)`,
		},
		"a namespace": {
			rule(config.TenancyRule{Namespaces: []config.Glob{"team-*"}}), keptManifest,
			`tenancy "team" does not allow namespace "NS" (allowed: team-*): ConfigMap NS/kept`,
		},
		"a cluster-scoped object": {
			rule(config.TenancyRule{Namespaces: []config.Glob{"*"}}),
			keptManifest + "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: all}\n",
			`tenancy "team" does not allow cluster-scoped objects such as kind ClusterRole: ClusterRole all`,
		},
		"a provider": {
			rule(config.TenancyRule{Providers: []string{"two"}}), keptManifest, `tenancy "team" does not allow the platform provider "one"`,
		},
		"a commit": {
			rules{err: deploy.Errorf(deploy.Invalid, `tenancy "team" does not allow commit commit-`)}, keptManifest, "does not allow commit",
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newStageEnv(t)
			l.Tenancy = c.rules
			result, _ := l.syncAs(t, c.manifests)
			reason := strings.ReplaceAll(result.Reason, l.ns, "NS")
			if result.Status != deploy.StageFailure || !result.NoRollback || !strings.Contains(reason, c.want) {
				t.Errorf("got %s (no rollback: %t): %s\nwant FAILURE: %s", result.Status, result.NoRollback, reason, c.want)
			}
			if w := l.writes(); len(w) > 0 {
				t.Errorf("written: %v", w)
			}
			if got := l.inventoried(t); len(got) > 0 {
				t.Errorf("inventory: %v", got)
			}
		})
	}
}

func TestSignerIsShown(t *testing.T) {
	l := newStageEnv(t)
	l.Tenancy = rules{signer: "ann (SSH key SHA256:x)"}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageSuccess {
		t.Fatal(result.Reason)
	}
	l.wantLogged(t, "Commit commit- is signed by ann (SSH key SHA256:x)")
	l.Tenancy = rules{err: errors.New("disk is gone")}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageFailure || result.NoRollback {
		t.Errorf("with a signature that cannot be read: %+v", result)
	}
}

// TestForbiddenLeftoversStay: objects that a rule forbids by now can be removed from Git,
// and stay in the cluster.
func TestForbiddenLeftoversStay(t *testing.T) {
	l := newStageEnv(t)
	l.spec += "  quickSync: {prune: true}\n"
	l.succeed(t, keptManifest+newManifest+serviceManifest)
	l.Tenancy = rule(config.TenancyRule{DeniedKinds: []config.KindPattern{"Service"}})
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageSuccess {
		t.Fatal(result.Reason)
	}
	l.wantLogged(t, "deleted ConfigMap", `No longer in Git, and left alone: tenancy "team" does not allow kind Service`)
	if diff := cmp.Diff([]string{"ConfigMap/kept", "Service/web"}, l.inventoried(t)); diff != "" {
		t.Errorf("inventory: -want +got:\n%s", diff)
	}
	if _, err := l.shared.Client(t).CoreV1().Services(l.ns).Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("the service: %v", err)
	}
}

// TestRollbackLeavesOutWhatIsForbidden: the rest of the last success is restored.
func TestRollbackLeavesOutWhatIsForbidden(t *testing.T) {
	l := newStageEnv(t)
	l.succeed(t, keptManifest+serviceManifest)
	core := l.shared.Client(t).CoreV1()
	if err := core.Services(l.ns).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.Tenancy = rule(config.TenancyRule{DeniedKinds: []config.KindPattern{"Service"}})
	result, run := l.syncAs(t, strings.Replace(keptManifest, "metadata", "data: {changed: now}\nmetadata", 1)+newManifest)
	if result.Status != deploy.StageSuccess {
		t.Fatal(result.Reason)
	}
	l.rollBack(t, run)
	l.wantLogged(t, `Not restored: tenancy "team" does not allow kind Service`)
	if services, err := core.Services(l.ns).List(t.Context(), metav1.ListOptions{}); err != nil || len(services.Items) > 0 {
		t.Errorf("services: %v, %v", services, err)
	}
	kept, err := core.ConfigMaps(l.ns).Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil || len(kept.Data) > 0 {
		t.Errorf("the kept one holds %v, %v", kept.Data, err)
	}

	l.Tenancy = rule(config.TenancyRule{DeniedKinds: []config.KindPattern{"*"}})
	l.writes()
	run.Stage = run.Deployment.Stages[1]
	if result := l.Rollback().Execute(t.Context(), run); result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "forbid every object") {
		t.Errorf("with nothing to put back: %+v", result)
	}
	if w := l.writes(); len(w) > 0 {
		t.Errorf("written: %v", w)
	}
}

func TestNewNamespacesAreLimited(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		rule config.TenancyRule
		want bool
	}{
		"nothing said":           {config.TenancyRule{}, true},
		"namespaces named":       {config.TenancyRule{Namespaces: []config.Glob{"*"}}, true},
		"cluster-scoped refused": {config.TenancyRule{ClusterScoped: &no, Namespaces: []config.Glob{"*"}}, false},
		"other kinds":            {config.TenancyRule{Kinds: []config.KindPattern{"ConfigMap"}}, false},
		"the kind denied":        {config.TenancyRule{DeniedKinds: []config.KindPattern{"Namespace"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, _ := newWork(t)
			w.Tenancy = rule(c.rule)
			w.set.Spec.AutoCreateNamespace = true
			if err := permitSet(t.Context(), w); err != nil || w.set.Spec.AutoCreateNamespace != c.want {
				t.Errorf("namespaces are created: %t, %v", w.set.Spec.AutoCreateNamespace, err)
			}
		})
	}
}

// TestObjectsAreWrittenAsTheServiceAccount: its rights decide, those of the agent
// do not, and a refusal names it.
func TestObjectsAreWrittenAsTheServiceAccount(t *testing.T) {
	l := newStageEnv(t)
	client := l.shared.Client(t)
	if _, err := client.CoreV1().ServiceAccounts(l.ns).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "deployer"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "deployer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch", "delete"}},
	}}
	if _, err := client.RbacV1().Roles(l.ns).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "deployer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "deployer"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: l.ns, Name: "deployer"}},
	}
	if _, err := client.RbacV1().RoleBindings(l.ns).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l.Tenancy = rule(config.TenancyRule{ServiceAccount: config.ServiceAccount{Namespace: l.ns, Name: "deployer"}})

	eventually(t, func() string { // RBAC takes a moment to be known
		result, _ := l.syncAs(t, keptManifest)
		return strings.TrimPrefix(result.Reason+string(result.Status), string(deploy.StageSuccess))
	})
	l.wantLogged(t, "Objects are read and written as service account "+l.ns+"/deployer")

	result, _ := l.syncAs(t, keptManifest+newManifest+serviceManifest)
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "system:serviceaccount:"+l.ns+":deployer") ||
		!strings.Contains(result.Reason, "give that account the right") || strings.Contains(result.Reason, "credentials") {
		t.Errorf("got %s: %s", result.Status, result.Reason)
	}
	if w := l.writes(); len(w) > 0 {
		t.Errorf("written: %v", w)
	}
	l.Tenancy = nil
	if result, _ := l.syncAs(t, keptManifest+newManifest+serviceManifest); result.Status != deploy.StageSuccess {
		t.Errorf("by the agent itself: %s", result.Reason)
	}

	l.Tenancy = rules{tenant: config.Tenant{
		{Name: "one", ServiceAccount: config.ServiceAccount{Namespace: "a", Name: "b"}}, {Name: "two", ServiceAccount: config.ServiceAccount{Namespace: "a", Name: "c"}},
	}}
	if result, _ := l.syncAs(t, keptManifest); result.Status != deploy.StageFailure || !result.NoRollback || !strings.Contains(result.Reason, `tenancy "one" wants`) {
		t.Errorf("with rules that disagree: %+v", result)
	}
}
