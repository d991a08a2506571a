package install

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/pgtest"
)

// installer returns an installer for a namespace, as an administrator or as a user.
func installer(t *testing.T, namespace, user string) *Installer {
	t.Helper()
	shared := clustertest.Shared(t)
	c, err := cluster.NewCluster(cluster.ClusterConfig{Name: "test", InCluster: func() (*rest.Config, error) {
		rc := shared.RESTConfig(t)
		rc.Impersonate.UserName = user
		return rc, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Installer{Cluster: c, Namespace: namespace, Say: func(string, ...any) {}}
}

// apply applies the secrets and the agent's permissions of a variant.
func apply(t *testing.T, i *Installer, v Variant, given Given) (Applied, error) {
	t.Helper()
	files, err := v.Files()
	if err != nil {
		t.Fatal(err)
	}
	secrets, err := v.MakeSecrets(given, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a, err := i.Apply(t.Context(), files, secrets, true)
	return a, err
}

// removed removes an installation when the test ends.
func removed(t *testing.T, i *Installer) {
	t.Cleanup(func() {
		plan, err := i.PlanRemoval(context.Background(), true, noConfiguration)
		if err == nil {
			err = i.Remove(context.Background(), plan)
		}
		if err != nil {
			t.Errorf("remove the installation: %v", err)
		}
	})
}

func noConfiguration(string) (*config.Piped, error) {
	return nil, deploy.Errorf(deploy.Invalid, "not read")
}

// TestWhatOthersMadeStays: a namespace and a secret of a person are used as they are, and another
// object of that name is not taken over. Nothing of it is removed.
func TestWhatOthersMadeStays(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	ns, client := shared.Namespace(t), shared.Client(t).CoreV1()
	i := installer(t, ns, "")
	v := variant(t, options(func(o *Options) { o.Namespace = ns }))
	key, err := newDeployKey()
	if err != nil {
		t.Fatal(err)
	}
	public, err := PublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: GitSecret}, Data: map[string][]byte{"id": key, "known_hosts": []byte("theirs")}}
	if _, err := client.Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "piped"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	if _, err := client.Services(ns).Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	removed(t, i)
	_, err = apply(t, i, v, Given{Keep: true})
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "Service "+ns+"/piped exists, and was not made by this installation") || !strings.Contains(err.Error(), "kubectl label service piped -n "+ns) {
		t.Errorf("a service of others: %v", err)
	}
	if err := client.Services(ns).Delete(t.Context(), "piped", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	a, err := apply(t, i, v, Given{Keep: true})
	if err != nil || a.PublicKey != public {
		t.Errorf("the key is %q, want %q; %v", a.PublicKey, public, err)
	}
	other, err := newDeployKey()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := apply(t, i, v, Given{Keep: true, DeployKey: string(other)}); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "differs in id") {
		t.Errorf("another key than that of the person's secret: %v", err)
	}
	plan, err := i.PlanRemoval(t.Context(), true, noConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Remove(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	left, err := client.Secrets(ns).Get(t.Context(), GitSecret, metav1.GetOptions{})
	if err != nil || string(left.Data["known_hosts"]) != "theirs" || len(left.Labels) > 0 {
		t.Errorf("the person's secret is %v with labels %v, %v", left.Name, left.Labels, err)
	}
	if namespace, err := client.Namespaces().Get(t.Context(), ns, metav1.GetOptions{}); err != nil || namespace.DeletionTimestamp != nil || namespace.Labels[labelInstance] != "" {
		t.Errorf("the person's namespace: %v, %v", namespace, err)
	}
}

// TestInstallationsAreApart: removing one leaves the other whole.
func TestInstallationsAreApart(t *testing.T) {
	t.Parallel()
	one, two := installer(t, "apart-one", ""), installer(t, "apart-two", "")
	for _, i := range []*Installer{one, two} {
		removed(t, i)
		if _, err := apply(t, i, variant(t, options(func(o *Options) { o.Namespace = i.Namespace })), Given{}); err != nil {
			t.Fatal(err)
		}
	}
	names := func(i *Installer) (out []string) {
		found, err := i.Find(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range found {
			out = append(out, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
		}
		return out
	}
	before := names(two)
	plan, err := one.PlanRemoval(t.Context(), true, noConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	if err := one.Remove(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if left := names(one); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	if after := names(two); len(before) < 15 || !slices.Equal(before, after) {
		t.Errorf("the other one had %q, and has %q", before, after)
	}
}

// TestSecretsAreKept: the key of the store and the certificate stay; the password goes with the
// agent to another database, and the user replaces it.
func TestSecretsAreKept(t *testing.T) {
	t.Parallel()
	i := installer(t, "kept-secrets", "")
	i.ChangeStore = true
	removed(t, i)
	secret := func(name string) map[string][]byte {
		s, err := i.getSecret(t.Context(), name)
		if err != nil || s == nil {
			t.Fatalf("Secret %s: %v, %v", name, s, err)
		}
		return s.Data
	}
	at := func(host string, given Given) map[string][]byte {
		v := variant(t, options(func(o *Options) { o.Namespace, o.Postgres = "kept-secrets", "postgres://me@"+host+"/db" }))
		if _, err := apply(t, i, v, given); err != nil {
			t.Fatal(err)
		}
		return secret(StoreSecret)
	}
	first := at("one.example.com", Given{Password: `p:w\d`, KnownHosts: "one"})
	certificate := secret(TLSSecret)
	second := at("two.example.com", Given{KnownHosts: "two"})
	if string(first["key"]) != string(second["key"]) || len(first["key"]) < 40 || string(certificate["tls.key"]) != string(secret(TLSSecret)["tls.key"]) {
		t.Error("the key of the store or of the certificate was replaced")
	}
	if got, want := string(second["pgpass"]), `two.example.com:5432:db:me:p\:w\\d`+"\n"; got != want {
		t.Errorf("the password file is %q, want %q", got, want)
	}
	if got := string(secret(GitSecret)["known_hosts"]); got != "two" {
		t.Errorf("the known hosts are %q", got)
	}
	if got := string(at("two.example.com", Given{Password: "new", KnownHosts: "three", Keep: true})["pgpass"]); !strings.HasSuffix(got, ":new\n") {
		t.Errorf("the password file is %q", got)
	}
	if got := string(secret(GitSecret)["known_hosts"]); got != "two" {
		t.Errorf("the known hosts to keep are %q", got)
	}
	plan, err := i.PlanRemoval(t.Context(), false, noConfiguration)
	if err != nil {
		t.Fatal(err)
	}
	if err := i.Remove(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if got := secret(StoreSecret); string(got["key"]) != string(first["key"]) || len(secret(GitSecret)["id"]) == 0 {
		t.Error("a removal without data took the key of the store or the deploy key")
	}
	if kept := fmt.Sprint(plan.Kept); !strings.Contains(kept, "piped-store it has the key of the store") || !strings.Contains(kept, "piped-git it has the deploy key") {
		t.Errorf("the plan keeps %s", kept)
	}
}

// TestThePasswordForGitIsKept: an upgrade without it keeps it, and another one replaces it. A change to
// SSH and back loses neither.
func TestThePasswordForGitIsKept(t *testing.T) {
	t.Parallel()
	const ns = "git-password"
	i := installer(t, ns, "")
	removed(t, i)
	with := func(repo, username string, given Given) map[string]string {
		t.Helper()
		v := variant(t, options(func(o *Options) { o.Namespace, o.Repo, o.GitUsername = ns, repo, username }))
		if _, err := apply(t, i, v, given); err != nil {
			t.Fatal(err)
		}
		s, err := i.getSecret(t.Context(), GitSecret)
		if err != nil || s == nil {
			t.Fatalf("%v, %v", s, err)
		}
		out := map[string]string{}
		for key, data := range s.Data {
			out[key] = string(data)
		}
		return out
	}
	const http, ssh = "https://git.example.com/apps.git", "git@git.example.com:apps.git"
	if has, err := i.HasGitPassword(t.Context()); has || err != nil {
		t.Errorf("there is a password before the installation, %v", err)
	}
	if got := with(http, "ci", Given{GitPassword: "one"}); len(got) != 1 || got["password"] != "one" {
		t.Errorf("installed: %q", got)
	}
	if has, err := i.HasGitPassword(t.Context()); !has || err != nil {
		t.Errorf("there is no password after the installation, %v", err)
	}
	if got := with(http, "ci", Given{}); got["password"] != "one" {
		t.Errorf("upgraded: %q", got)
	}
	over := with(ssh, "", Given{KnownHosts: "hosts"})
	if over["id"] == "" || over["known_hosts"] != "hosts" || over["password"] != "one" {
		t.Errorf("over SSH: %q", over)
	}
	if got := with(http, "ci", Given{GitPassword: "two"}); got["password"] != "two" || got["id"] != over["id"] {
		t.Errorf("over HTTP again: %q", got)
	}
}

// TestRightsOfTheUserAreChecked: one who may do nothing, and one who may make roles, but not grant
// what they contain.
func TestRightsOfTheUserAreChecked(t *testing.T) {
	t.Parallel()
	shared := clustertest.Shared(t)
	rbac := shared.Client(t).RbacV1()
	inOne := shared.Namespace(t)
	v := variant(t, options(func(o *Options) { o.Namespace = "rights" }))
	levels := func(user string) string {
		t.Helper()
		found, err := installer(t, "rights", user).mayInstall(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(found)
	}
	if got := levels("unprivileged"); !strings.Contains(got, "problem you may not ") || !strings.Contains(got, "create serviceaccounts in namespace rights") {
		t.Errorf("a user without rights: %s", got)
	}
	role, err := rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "rights-installer"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", "apps", "policy", "networking.k8s.io", "rbac.authorization.k8s.io"}, Verbs: []string{"get", "create", "patch"},
			Resources: []string{"namespaces", "serviceaccounts", "configmaps", "secrets", "services", "persistentvolumeclaims", "deployments", "networkpolicies", "poddisruptionbudgets", "roles", "rolebindings", "clusterroles", "clusterrolebindings"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "rights-installer"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "granted"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := rbac.ClusterRoles().Delete(context.Background(), role.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := rbac.ClusterRoleBindings().Delete(context.Background(), binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	clustertest.Eventually(t, "the binding takes effect", func() bool { return !strings.Contains(levels("granted"), "you may not ") })
	if got := levels("granted"); !strings.Contains(got, "problem") || !strings.Contains(got, "must have cluster-admin privileges") {
		t.Errorf("one who may not grant: %s", got)
	}
	v.Namespaces = []string{inOne}
	if got := levels("granted"); !strings.Contains(got, "problem") || !strings.Contains(got, "an account can grant only the rights it has") {
		t.Errorf("one who may not grant in a namespace: %s", got)
	}
	if got := levels(""); !strings.Contains(got, "rights ok") {
		t.Errorf("an administrator: %s", got)
	}
	v.Namespaces = []string{v.Namespace, inOne} // the agent's own does not exist yet
	if got := levels(""); !strings.Contains(got, "rights ok") || strings.Contains(got, "problem") {
		t.Errorf("an administrator, before there is the agent's namespace: %s", got)
	}
}

// TestTheDatabaseIsChecked on a real server: a user who may make tables, one who may not, one who is
// refused, and no server.
func TestTheDatabaseIsChecked(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	dsn := server.NewDSN(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background()) //nolint:errcheck // the test has ended
	if _, err := conn.Exec(t.Context(), `CREATE ROLE reader LOGIN PASSWORD 's3cret'; REVOKE CREATE ON SCHEMA public FROM PUBLIC`); err != nil {
		t.Fatal(err)
	}
	as := func(user string) string {
		u, err := url.Parse(dsn)
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.User(user)
		return u.String() + "&passfile=/etc/piped-store/pgpass"
	}
	for _, c := range []struct {
		dsn   string
		level Level
		want  string
	}{
		{as("postgres"), OK, "may make its tables"},
		{as("reader"), Problem, "reader may not make tables"},
		{as("stranger"), Problem, "refuses the connection"},
		{"postgres://me@127.0.0.1:1/db", Warning, "is not reached from this machine"},
	} {
		f := checkPostgres(t.Context(), c.dsn, "s3cret")
		if f.Level != c.level || !strings.Contains(f.Text, c.want) || strings.Contains(f.Text+f.Do, "s3cret") || f.Level != OK && f.Do == "" {
			t.Errorf("%+v, want %s: %s", f, c.level, c.want)
		}
	}
}

// TestClocks: a difference is a problem once leases and tokens would not bear it.
func TestClocks(t *testing.T) {
	for skew, want := range map[time.Duration]string{0: "ok", 9 * time.Second: "ok", -3 * time.Minute: "3m0s behind", time.Hour: "1h0m0s ahead of"} {
		if f := clockFinding(skew); !strings.Contains(string(f.Level)+" "+f.Text, want) {
			t.Errorf("%s: %+v", skew, f)
		}
	}
}

// TestStorageIsChecked: which class a volume would have.
func TestStorageIsChecked(t *testing.T) {
	i := installer(t, "piped", "")
	for class, want := range map[string]Level{"": Warning, "none": Problem} {
		f, err := i.checkClass(t.Context(), variant(t, options(func(o *Options) { o.StorageClass = class })))
		if err != nil || f.Level != want || f.Do == "" {
			t.Errorf("class %q: %+v, %v", class, f, err)
		}
	}
	f, err := i.checkClaim(t.Context())
	if err != nil || f.Level != Problem || !strings.Contains(f.Text, "there is no PersistentVolumeClaim piped/piped") {
		t.Errorf("no claim: %+v, %v", f, err)
	}
}
