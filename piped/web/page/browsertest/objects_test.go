package browsertest_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/web/page/browsertest"
)

// openObjects: an object opens beside the tree, which stays as it is, and two clicks lead to the
// log of a pod, which goes on while one looks: no line is lost, and none comes twice.
func openObjects(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/applications/web")
	tab.AwaitReady()
	browsertest.Eval[browsertest.Nothing](tab, `document.querySelector("#tree").mine = "yes"`)
	tab.Click(`#tree a[href*="apps%2FDeployment"]`, "Open")
	tab.AwaitText("#drawer", "replicas: 1")
	tab.Click("#drawer .tabs a", "Fields")
	tab.AwaitText("#drawer", "Apply, ")
	tab.Click("#drawer .tabs a", "Events")
	tab.AwaitText("#drawer", "ScalingReplicaSet")
	if !strings.Contains(tab.Path(), "show=events") {
		t.Errorf("the address is %s, which does not lead back here", tab.Path())
	}
	tab.Await("the tree stays in its place", `document.querySelector("#tree").mine === "yes"`)
	browsertest.Eval[browsertest.Nothing](tab, `document.querySelector(".drawer-head a").focus()`)
	tab.Keys("\r")
	tab.AwaitGone("#drawer.drawer")
	tab.Await("the focus on the link that opened the object", `document.activeElement.matches('#tree a[href*="apps%2FDeployment"]')`)
	tab.Click("#tree summary", "ReplicaSet")
	tab.Click("#tree .node-links a", "Log")
	// The kubelet of the cluster has 30 lines, and writes 10 more while the log is followed.
	tab.Await("all lines of the pod", `document.querySelectorAll("#log-lines .text").length >= 40`)
	lines := browsertest.Eval[string](tab, `[...document.querySelectorAll("#log-lines .text")].map((l) => l.textContent).join("\n")`)
	for n := 1; n <= 40; n++ {
		if got := strings.Count(lines, fmt.Sprintf(": line %d of ", n)); got != 1 {
			t.Errorf("line %d comes %d times:\n%s", n, got, lines)
		}
	}
}

// openFoldedLevels: with the keyboard alone, a person opens the folded rows of a large application
// and what a healthy object created. They stay open when the live objects change, and when the
// view is loaded again.
func openFoldedLevels(t *testing.T, e *env) {
	const name = "many"
	files := fixture{name: name, labels: "{team: office}", version: "v1"}.files(e.namespace)
	for n := range 210 {
		files[name+"/maps.yaml"] += fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s-%03d}\n", name, n)
	}
	e.pushing.Lock()
	e.repo.Push(t, "Many objects", files)
	e.pushing.Unlock()
	e.await(t, name, stateSynced)
	tab := e.signIn(t, e.ownerKey(t), "/applications/"+name)
	tab.AwaitReady()
	tab.AwaitText("#tree .fold", "161 more ConfigMaps: all healthy")
	browsertest.Eval[browsertest.Nothing](tab, `document.querySelector("#tree .node:nth-of-type(50) a").focus()`)
	focus(t, tab, "\t", "#tree .fold a", "161 more ConfigMaps")
	tab.Keys("\r")
	tab.AwaitText("#tree .object-name", "many-209")
	tab.Await("the focus in the first new row", `document.activeElement.matches("li.node") && document.activeElement.innerText.includes("many-049")`)
	browsertest.Eval[browsertest.Nothing](tab, `document.querySelector("#tree summary").focus()`)
	tab.Keys("\r")
	tab.AwaitText("#tree .node .kind", "ReplicaSet")
	tab.AwaitText("#tree .node .node .kind", "Pod")
	pods := e.cluster.Client(t).CoreV1().Pods(e.namespace)
	old, err := pods.List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil || len(old.Items) != 1 {
		t.Fatalf("pods: %v, %v", old, err)
	}
	browsertest.Eval[browsertest.Nothing](tab, `document.querySelector("#tree").mine = "yes"`)
	if err := pods.Delete(t.Context(), old.Items[0].Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	tab.Await("the new pod", fmt.Sprintf(`document.querySelector("#tree").innerText.includes("Pod") && !document.querySelector("#tree").innerText.includes(%q)`, old.Items[0].Name))
	for _, loaded := range []bool{false, true} {
		if loaded {
			tab.Open(tab.Path())
			tab.AwaitReady()
		}
		tab.AwaitText("#tree .object-name", "many-209")
		tab.AwaitText("#tree .node .node .kind", "Pod")
		if mine := browsertest.Eval[bool](tab, `document.querySelector("#tree").mine === "yes"`); mine == loaded {
			t.Errorf("loaded %t: the tree stays in its place: %t", loaded, mine)
		}
	}
}
