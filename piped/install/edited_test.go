package install

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
)

// TestAnEditedConfigurationIsKept: an upgrade changes the configuration that it made, and one that a
// person edited only if that is asked for. It is refused, before anything is changed, where the edited
// one does not have what it changes.
func TestAnEditedConfigurationIsKept(t *testing.T) {
	t.Parallel()
	ns := "edited-config"
	i := installer(t, ns, "")
	removed(t, i)
	var said []string
	i.Say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	maps := clustertest.Shared(t).Client(t).CoreV1().ConfigMaps(ns)
	live := func() string {
		t.Helper()
		o, err := maps.Get(t.Context(), "piped", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o.Data["piped.yaml"]
	}
	try := func(branch string) error {
		t.Helper()
		said = nil
		_, err := apply(t, i, variant(t, options(func(o *Options) { o.Namespace, o.Branch = ns, branch })), Given{KnownHosts: "one"})
		return err
	}
	install := func(branch string) {
		t.Helper()
		if err := try(branch); err != nil {
			t.Fatal(err)
		}
	}
	edit := func(annotate bool) {
		t.Helper()
		o, err := maps.Get(t.Context(), "piped", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.Data["piped.yaml"] += "# edited\n"
		if !annotate { // as made from Git
			delete(o.Annotations, annotationApplied)
			delete(o.Annotations, annotationValues)
		}
		if _, err := maps.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	install("one")
	install("two")
	if !strings.Contains(live(), "two") {
		t.Errorf("an upgrade does not change what the installation made:\n%s", live())
	}
	edit(true)
	before := live()
	install("two")
	if live() != before || !strings.Contains(strings.Join(said, "\n"), "ConfigMap "+ns+"/piped was edited") {
		t.Errorf("an edit is lost or not named: %q\n%s", said, live())
	}
	for _, annotate := range []bool{true, false} {
		edit(annotate)
		before := live()
		err := try("three")
		if live() != before || !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "set repositories[0].branch to three") || len(said) > 0 {
			t.Errorf("an edit, with its annotations %v, is lost, or that it hides the branch is not named: %v, %q\n%s", annotate, err, said, live())
		}
	}
	i.ReplaceConfig = true
	install("three")
	if !strings.Contains(live(), "three") || strings.Contains(live(), "edited") {
		t.Errorf("it is not replaced:\n%s", live())
	}
	i.ReplaceConfig = false
	install("four")
	if !strings.Contains(live(), "four") {
		t.Errorf("a configuration that was replaced is not upgraded any more:\n%s", live())
	}
}

// TestAnEditAndAnotherVariant: what the pods of the other variant need has to be in an edited
// configuration, and what they do not mount must not be.
func TestAnEditAndAnotherVariant(t *testing.T) {
	const ssh, http, db = "git@git.example.com:team/apps.git", "https://git.example.com/team/apps.git", "postgres://me@db.example.com/piped"
	i := &Installer{Namespace: "piped"}
	text := func(repo, postgres string, namespaces ...string) *unstructured.Unstructured {
		t.Helper()
		files, err := variant(t, options(func(o *Options) { o.Repo, o.Postgres, o.Namespaces = repo, postgres, namespaces })).Files()
		if err != nil {
			t.Fatal(err)
		}
		all, err := objects(files)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if isConfig(o.Unstructured) {
				return o.Unstructured
			}
		}
		t.Fatal("no configuration")
		return nil
	}
	edited := func(o *unstructured.Unstructured, recorded bool, edits ...string) *unstructured.Unstructured {
		t.Helper()
		if recorded {
			record(o, nil)
		}
		data, _, _ := unstructured.NestedString(o.Object, "data", "piped.yaml")
		data = strings.NewReplacer(edits...).Replace(data) + "  syncInterval: 1m\n"
		if err := unstructured.SetNestedField(o.Object, data, "data", "piped.yaml"); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for name, c := range map[string]struct {
		live, wanted *unstructured.Unstructured
		store        bool // it may change
		want         []string
	}{
		"only the permissions change":       {live: edited(text(ssh, ""), true), wanted: text(ssh, "", "demo")},
		"to replicas":                       {live: edited(text(ssh, ""), true), wanted: text(ssh, db), want: []string{"the SQLite store on its volume", "the database piped at db.example.com:5432", "--change-store"}},
		"to replicas, with another store":   {live: edited(text(ssh, ""), true), wanted: text(ssh, db), store: true, want: []string{"set store.dsn to " + db, "set web.tlsCertFile to /etc/piped-tls/tls.crt", "kubectl -n piped edit configmap piped", "--replace-config"}},
		"from replicas":                     {live: edited(text(ssh, db), true), wanted: text(ssh, ""), store: true, want: []string{"remove store.dsn", "remove api.tlsKeyFile", "remove store.keyFile"}},
		"from replicas, applied by kubectl": {live: edited(text(ssh, db), false), wanted: text(ssh, ""), store: true, want: []string{"remove store.dsn", "remove web.tlsKeyFile"}},
		"to HTTP":                           {live: edited(text(ssh, ""), true), wanted: text(http, ""), want: []string{"set repositories[0].remote to " + http, "remove git.sshKeyFile"}},
		"to HTTP, edited to it":             {live: edited(text(ssh, ""), true, ssh, http, "sshKeyFile: /etc/piped-git/id", "", "knownHostsFile: /etc/piped-git/known_hosts", ""), wanted: text(http, "")},
		"another connection to a database":  {live: edited(text(ssh, db), true), wanted: text(ssh, db+"?sslmode=require"), want: []string{"set store.dsn to " + db + "?sslmode=require"}},
		"no YAML, the same variant":         {live: edited(text(ssh, db), true, "kind: Piped", "\tkind"), wanted: text(ssh, db, "demo")},
		"no YAML, another store":            {live: edited(text(ssh, db), true, "kind: Piped", "\tkind"), wanted: text(ssh, ""), want: []string{"the database piped at db.example.com:5432", "--change-store"}},
	} {
		t.Run(name, func(t *testing.T) {
			i := *i
			i.ChangeStore = c.store
			err := i.checkConfig(c.live, c.wanted)
			if len(c.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !deploy.IsKind(err, deploy.Invalid) {
				t.Fatalf("not refused: %v", err)
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in %v", want, err)
				}
			}
		})
	}
}
