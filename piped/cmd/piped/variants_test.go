package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store/pgtest"
)

// variantCase is a variant of the installation.
type variantCase struct {
	name   string
	args   []string       // of piped install
	values map[string]any // of the chart
	checks []string       // what piped install check says
}

// documented returns the options of a variant in docs/install.md, which takes at most ten lines. Its
// commands are one that installs and one that checks.
func documented(t *testing.T, variant string, values ...string) []string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n#### "+strings.ToUpper(variant[:1])+variant[1:]+"\n")
	text, _, _ = strings.Cut(text, "\n#### ")
	_, commands, _ := strings.Cut(text, "\n```sh\n")
	commands, _, closed := strings.Cut(commands, "\n```\n")
	lines := strings.Split(commands, "\n")
	if n := strings.Count(strings.TrimSpace(text), "\n") + 1; !found || !closed || n > 10 || len(lines) < 2 {
		t.Fatalf("docs/install.md has no %s, or not in ten lines:\n%s", variant, text)
	}
	if last, _, _ := strings.Cut(lines[len(lines)-1], "#"); strings.TrimSpace(last) != "bin/piped install check" {
		t.Errorf("%s ends with %s", variant, last)
	}
	options, found := strings.CutPrefix(lines[len(lines)-2], "bin/piped install --repo $REPO --image $IMAGE --apply")
	if !found {
		t.Fatalf("%s: %s installs nothing", variant, lines[len(lines)-2])
	}
	return strings.Fields(strings.NewReplacer(values...).Replace(options))
}

// variants returns every variant as docs/install.md says. The repository of i has the applications,
// and the server the databases.
func variants(i *installing, server *pgtest.Server) []variantCase {
	i.Helper()
	password := filepath.Join(i.TempDir(), "password")
	if err := os.WriteFile(password, []byte("s3cret\n"), 0o600); err != nil {
		i.Fatal(err)
	}
	http := i.git.HTTP(i, gittest.HTTPOptions{Username: "ci", Password: "s3cret"}).URL
	from := func(variant, dsn string, more ...string) []string {
		return append(documented(i.T, variant, "$DB", dsn, "PASSWORD_FILE", password), more...)
	}
	one, two, three := server.NewDSN(i), server.NewDSN(i), server.NewDSN(i)
	ssh := []string{"--ssh-key-file", i.keyFile} // the repository has its public half already
	const (
		everywhere, onlyDemo = "that it needs in the whole cluster", "that it needs in demo"
		volume, database     = "PersistentVolumeClaim piped/piped is bound", "and may make its tables"
		single, all          = "1 of 1 replicas answer", "3 of 3 replicas answer"
	)
	return []variantCase{
		{"the whole cluster", from("the whole cluster", "", ssh...), map[string]any{}, []string{everywhere, volume, single}},
		{"namespaces", from("namespaces", "", ssh...), map[string]any{"namespaces": []string{"demo"}}, []string{onlyDemo, volume, single}},
		{"replicas", from("replicas", one, ssh...), map[string]any{"postgres": one}, []string{everywhere, database, all}},
		{"over HTTP", from("over HTTP", "", "--repo", http), map[string]any{"repo": http, "gitUsername": "ci"}, []string{everywhere, volume, single}},
		{"replicas in namespaces", from("replicas in namespaces", two, ssh...), map[string]any{"postgres": two, "namespaces": []string{"demo"}}, []string{onlyDemo, database, all}},
		{"replicas that share the work", from("replicas that share the work", three, ssh...), map[string]any{"postgres": three, "share": true}, []string{everywhere, database, all}},
	}
}

// TestEachVariant installs each variant over the one before it, has an agent with exactly its account
// and configuration deploy an application, and removes it: the list is exact, and nothing is left.
// Then it installs the same by the chart.
func TestEachVariant(t *testing.T) {
	i := newInstalling(t)
	i.makeDemo()
	i.git.Push(t, "deploy web", map[string]string{
		"web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web, input: {namespace: demo}}\n",
		"web/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: "registry.example/web:v1"}]}}
`,
	})
	all := variants(i, pgtest.Start(t))
	before := all[len(all)-1]
	for _, v := range all {
		t.Run(v.name, func(t *testing.T) {
			of := *i
			of.T = t
			of.volume(volumeName(v.name))
			existing := of.everything()
			of.install(0, before.args...)
			of.install(0, append(slices.Clone(v.args), "--change-store")...)
			of.contains(of.piped(0, "install", "check"), append(v.checks, "ok       git      branch main of ", "ok       clock")...)
			installed := of.live(of.printed(v.args...))
			of.deploysAnApplication()
			of.uninstallsExactly(existing)
			of.theChartInstalls(v, installed)
		})
		before = v
	}
}

// volumeName is the name of the volume for a variant.
func volumeName(variant string) string { return strings.ToLower(strings.ReplaceAll(variant, " ", "-")) }

// deploysAnApplication runs an agent with the installed account and configuration until it has
// deployed the application of its repository, and removes that.
func (i *installing) deploysAnApplication() {
	i.Helper()
	agent, address := start(i, i.installedConfiguration())
	i.awaitDeployments(address, "web", 1)
	if _, err := i.client.CoordinationV1().Leases("default").Get(i.Context(), "piped-production", metav1.GetOptions{}); err != nil {
		i.Errorf("the agent has no Lease: %v", err)
	}
	agent.signal(syscall.SIGTERM)
	if code := agent.wait(); code != 0 {
		i.Errorf("the agent ends with %d", code)
	}
}

// uninstallsExactly: piped uninstall lists each object that is there since existing and that no other
// object owns, except for what the agent has deployed, which stays. It deletes what it lists.
func (i *installing) uninstallsExactly(existing map[string]bool) {
	i.Helper()
	kept := i.settled()
	var want []string
	for name, owned := range kept {
		if _, old := existing[name]; !old && !owned && !madeByKubernetes(name) && name != "Deployment demo/web" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	listed := named(i.piped(0, "uninstall", "--data"), "would delete")
	if diff := cmp.Diff(want, listed); diff != "" {
		i.Errorf("-in the cluster +listed:\n%s", diff)
	}
	if after := i.everything(); !maps.Equal(kept, after) {
		i.Errorf("listing changed %q and %q", difference(kept, after), difference(after, kept))
	}
	if diff := cmp.Diff(listed, named(i.piped(0, "uninstall", "--yes", "--data"), "deleted")); diff != "" {
		i.Errorf("-listed +deleted:\n%s", diff)
	}
	foreground := metav1.DeletePropagationForeground
	if err := i.client.AppsV1().Deployments("demo").Delete(i.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		i.Errorf("what the agent deployed is gone with it: %v", err)
	}
	i.nothingIsLeft(existing)
}

// nothingIsLeft fails unless the cluster has the objects that existed, and no other.
func (i *installing) nothingIsLeft(existing map[string]bool) {
	i.Helper()
	var left []string
	clustertest.Eventually(i, "what is deleted is gone", func() bool {
		left = difference(i.everything(), existing)
		return !slices.ContainsFunc(left, func(name string) bool { // pods of the application, and what goes with a Service
			return strings.Contains(name, " demo/") || madeByKubernetes(name)
		})
	})
	if len(left) > 0 {
		i.Errorf("left: %q", left)
	}
	if gone := difference(existing, i.everything()); len(gone) > 0 {
		i.Errorf("removed what was not of the installation: %q", gone)
	}
}

// madeByKubernetes reports whether an object without owner comes with a namespace or a Service.
func madeByKubernetes(name string) bool {
	return name == "ConfigMap piped/kube-root-ca.crt" || name == "ServiceAccount piped/default" || name == "Endpoints piped/piped" || strings.HasPrefix(name, "IPAddress ")
}

// named returns the names of objects in lines that begin with a verb, sorted, in the form of everything.
func named(text, verb string) (names []string) {
	for _, found := range regexp.MustCompile(`(?m)^`+verb+` (\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		name := found[2]
		if !strings.Contains(name, "/") {
			name = "/" + name
		}
		names = append(names, found[1]+" "+name)
	}
	slices.Sort(names)
	return names
}
