package browsertest_test

import (
	"fmt"
	"strings"
	"testing"

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
