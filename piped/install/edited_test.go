package install

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestAnEditedConfigurationIsKept: an upgrade changes the configuration that it made, and one that a
// person edited only if that is asked for.
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
	install := func(branch string) {
		t.Helper()
		said = nil
		if _, err := apply(t, i, variant(t, options(func(o *Options) { o.Namespace, o.Branch = ns, branch })), Given{KnownHosts: "one"}); err != nil {
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
	for _, annotate := range []bool{true, false} {
		edit(annotate)
		before := live()
		install("three")
		if live() != before || !strings.Contains(strings.Join(said, "\n"), "ConfigMap "+ns+"/piped differs from what the last installation applied") {
			t.Errorf("an edit, with its annotation %v, is lost or not named: %q\n%s", annotate, said, live())
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
