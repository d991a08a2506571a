package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// tenancy reads rules as they stand below spec.tenancy.
func tenancy(t *testing.T, rules string) Tenancy {
	t.Helper()
	text := pipedHead + "  repositories:\n    - {repoId: apps, remote: /srv/apps.git, branch: main}\n    - {repoId: shop, remote: /srv/shop.git, branch: main}\n" +
		"  platformProviders:\n    - {name: dev, type: KUBERNETES}\n    - {name: prod, type: KUBERNETES}\n  tenancy:\n" + rules
	return parsePiped(t, "piped.yaml", text).Tenancy
}

func at(repo, dir string) deploy.GitPath {
	return deploy.GitPath{RepoID: repo, Dir: dir, ConfigFile: "app.pipecd.yaml"}
}

func TestTenancyEveryField(t *testing.T) {
	t.Setenv("HOME", "/home/someone")
	text, err := os.ReadFile("testdata/piped/valid-tenancy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	no, yes := false, true
	p := parsePiped(t, "/etc/piped/piped.yaml", string(text))
	want := Tenancy{
		{
			Name: "team-a", Repositories: []string{"apps"}, Paths: patterns(t, "teams/a", "!teams/a/old"),
			Providers: []string{"dev", "prod"}, Namespaces: []Glob{"team-a", "team-a-*"},
			Kinds: []KindPattern{"ConfigMap", "apps/*", "core/Service", "*.example.com/*"}, DeniedKinds: []KindPattern{"DaemonSet"},
			ClusterScoped: &no, ServiceAccount: ServiceAccount{Namespace: "team-a", Name: "deployer"},
			VerifyCommits: &VerifyCommits{OpenPGP: []string{"/etc/piped/keys/team-a.asc", "/etc/keys/all.gpg"}, SSH: []string{"/home/someone/allowed_signers"}, RequireDescendant: true},
		},
		{Name: "everybody", DeniedKinds: []KindPattern{"ClusterRoleBinding"}, ClusterScoped: &yes},
		{Name: "others", Otherwise: true, DeniedKinds: []KindPattern{"*"}},
	}
	if diff := cmp.Diff(want, p.Tenancy); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	files := []string{"/etc/keys/all.gpg", "/etc/piped/keys/team-a.asc", "/home/someone/allowed_signers"}
	if diff := cmp.Diff(files, p.Files()); diff != "" {
		t.Errorf("files: -want +got:\n%s", diff)
	}
}

func TestTenancyOf(t *testing.T) {
	rules := tenancy(t, `
    - {name: team-a, repositories: [apps], paths: [teams/a]}
    - {name: new, paths: ["teams/*/new", "!teams/c"]}
    - {name: shop, repositories: [shop]}
    - {name: everybody}
    - {name: rest, otherwise: true}
`)
	for _, c := range []struct {
		at   deploy.GitPath
		want string
	}{
		{at("apps", "teams/a/web"), "team-a everybody"},
		{at("apps", "teams/a"), "team-a everybody"},
		{at("apps", "teams/ab"), "everybody rest"},
		{at("shop", "teams/a"), "shop everybody"},
		{at("apps", "teams/a/new/web"), "team-a new everybody"},
		{at("apps", "teams/c/new"), "everybody rest"},
		{at("apps", "."), "everybody rest"},
		{at("other", "teams/b/new"), "new everybody"},
	} {
		var got []string
		for _, r := range rules.Of(c.at) {
			got = append(got, r.Name)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s in %s: got %v, want %s", c.at.Dir, c.at.RepoID, got, c.want)
		}
	}
	if got := Tenancy(nil).Of(at("apps", "web")); len(got) != 0 {
		t.Errorf("without rules: got %v", got)
	}
}

func TestTenantForbids(t *testing.T) {
	deployment := deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "team-a", Name: "web"}
	config := deploy.ObjectRef{Kind: "ConfigMap", Namespace: "team-b", Name: "web"}
	role := deploy.ObjectRef{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "all"}
	for rule, want := range map[string][3]string{ // of the three objects: why it is forbidden
		"":                                       {},
		"namespaces: [team-a]":                   {"", `namespace "team-b" (allowed: team-a)`, "cluster-scoped objects such as kind ClusterRole"},
		"namespaces: [x, 'team-?']":              {"", "", "cluster-scoped objects such as kind ClusterRole"},
		"namespaces: ['*'], clusterScoped: true": {},
		"namespaces: [team], clusterScoped: true":   {`namespace "team-a" (allowed: team)`, `namespace "team-b" (allowed: team)`, ""},
		"clusterScoped: false":                      {"", "", "cluster-scoped objects such as kind ClusterRole"},
		"kinds: [ConfigMap]":                        {"kind Deployment", "", "kind ClusterRole"},
		"kinds: [apps/*, 'core/*']":                 {"", "", "kind ClusterRole"},
		"kinds: ['*'], deniedKinds: [deployment]":   {"kind Deployment", "", ""},
		"deniedKinds: [core/Deployment]":            {},
		"deniedKinds: ['*.k8s.io/*', CONFIGMAP]":    {"", "kind ConfigMap", "kind ClusterRole"},
		"deniedKinds: ['*']":                        {"kind Deployment", "kind ConfigMap", "kind ClusterRole"},
		"kinds: [Deployment], namespaces: [team-b]": {`namespace "team-a" (allowed: team-b)`, "kind ConfigMap", "kind ClusterRole"},
	} {
		tenant := tenancy(t, "    - {name: strict, "+rule+"}\n").Of(at("apps", "web"))
		var all []TenantObject
		refused := false
		for i, ref := range []deploy.ObjectRef{deployment, config, role} {
			o := TenantObject{Ref: ref, Origin: "web/all.yaml:3"}
			all = append(all, o)
			expected := ""
			if want[i] != "" {
				expected, refused = `tenancy "strict" does not allow `+want[i]+": "+ref.String()+" (web/all.yaml:3)", true
			}
			if got := tenant.Forbids(o); got != expected {
				t.Errorf("{%s} of %s: got %q, want %q", rule, ref, got, expected)
			}
		}
		if err := tenant.CheckObjects(all); (err != nil) != refused || err != nil && !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("{%s}: got %v, want an error: %t", rule, err, refused)
		}
	}
}

func TestTenantSaysWhatToDo(t *testing.T) {
	tenant := tenancy(t, `
    - {name: team-a, providers: [dev], scripts: false, namespaces: [team-a], serviceAccount: team-a/deployer}
    - {name: everybody, serviceAccount: piped/other}
`).Of(at("apps", "web"))
	var many []TenantObject
	for range maxRefusals + 2 {
		many = append(many, TenantObject{Ref: deploy.ObjectRef{Kind: "Namespace", Name: "x"}})
	}
	_, account := tenant.Account()
	for _, c := range []struct {
		err  error
		want []string
	}{
		{tenant.CheckProvider("dev"), nil},
		{tenant.CheckProvider("prod"), []string{`tenancy "team-a" does not allow the platform provider "prod" (allowed: dev); name one of those in spec.platformProvider, or ask`}},
		{tenant.CheckScripts("SCRIPT_RUN"), []string{`tenancy "team-a" does not allow scripts, which stage SCRIPT_RUN runs; remove the stage, or ask`}},
		{tenant.CheckObjects(many[:1]), []string{`tenancy "team-a" does not allow cluster-scoped objects such as kind Namespace: Namespace x; take them out of the application, or ask`}},
		{tenant.CheckObjects(many), []string{"; and 2 more; take them out"}},
		{account, []string{`tenancy "team-a" wants`, "team-a/deployer", `tenancy "everybody" as piped/other; ask`}},
	} {
		if (c.err == nil) != (c.want == nil) || c.err != nil && !deploy.IsKind(c.err, deploy.Invalid) {
			t.Errorf("got %v, want %q", c.err, c.want)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(c.err.Error(), want) {
				t.Errorf("got %v\nwant %q in it", c.err, want)
			}
		}
	}
}

func TestTenantAccount(t *testing.T) {
	for rules, want := range map[string]string{
		"    - {name: a}\n": "",
		"    - {name: a, serviceAccount: team-a/deployer}\n    - {name: b}\n":                                  "system:serviceaccount:team-a:deployer",
		"    - {name: a, serviceAccount: team-a/deployer}\n    - {name: b, serviceAccount: team-a/deployer}\n": "system:serviceaccount:team-a:deployer",
	} {
		got, err := tenancy(t, rules).Of(at("apps", "web")).Account()
		if err != nil || got.User() != want {
			t.Errorf("%s: got %q, %v, want %q", rules, got.User(), err, want)
		}
	}
}
