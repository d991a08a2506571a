package browsertest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/web/page/browsertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// view is a view of the page, and what a person finds in it.
type view struct {
	name string // of its pictures
	path func(*testing.T, *env) string
	want []string // words that it shows
}

// at is the path of a view that is about nothing in particular.
func at(path string) func(*testing.T, *env) string {
	return func(*testing.T, *env) string { return path }
}

// deploymentOf is a tab of the last deployment of an application.
func deploymentOf(name, tab string) func(*testing.T, *env) string {
	return func(t *testing.T, e *env) string { return "/deployments/" + e.last(t, name).Id + "?tab=" + tab }
}

// objectOf returns the address of a part of the first object of an application.
func objectOf(name, show string) func(*testing.T, *env) string {
	return func(t *testing.T, e *env) string {
		object := map[string]string{"web": "apps/Deployment", "drifting": "/ConfigMap"}[name]
		return "/applications/" + name + "?tab=objects&show=" + show + "&object=" + object + "/" + e.namespace + "/" + name
	}
}

// views are all views. To add one, add a line.
func views() []view {
	return []view{
		{"now", at("/"), []string{"ledger", "approval", "drifting", "broken", "invalid", "Done"}},
		{"applications", at("/applications"), []string{"10 applications", "web", "Synced", "Waiting for approval", "Drifted", "Invalid config"}},
		{"applications-filtered", at("/applications?state=DRIFTED&sort=name"), []string{"1 of 10 applications", "drifting"}},
		{"applications-none", at("/applications?q=nothing+has+this+name"), []string{"Nothing matches"}},
		{"application-objects", at("/applications/web"), []string{"web is live at", "Deployment", "ConfigMap"}},
		{"application-object", objectOf("web", "live"), []string{"Deployment", "replicas: 1"}},
		{"application-object-diff", objectOf("drifting", "diff"), []string{"data.greeting", "kubectl-edit"}},
		{"application-events", at("/applications/web?tab=events"), []string{"ScalingReplicaSet"}},
		{"application-drift", at("/applications/drifting?tab=drift"), []string{"data.greeting", "kubectl-edit"}},
		{"application-deployments", at("/applications/web?tab=deployments"), []string{"First versions"}},
		{"application-rollouts", at("/applications/web?tab=rollouts"), []string{"Deployment"}},
		{"application-config", at("/applications/web?tab=config"), []string{"main"}},
		{"application-invalid", at("/applications/invalid"), []string{"Invalid config"}},
		{"application-unknown", at("/applications/nothing"), []string{"This does not exist"}},
		{"deployment-log", deploymentOf("broken", ""), []string{"broken", "K8S_SYNC", "ImagePull"}},
		{"deployment-plan", deploymentOf("ledger", "plan"), []string{"ledger", "Approve"}},
		{"deployment-timeline", deploymentOf("ledger", "timeline"), []string{"ledger"}},
		{"rollouts", at("/rollouts"), []string{"web", "Complete"}},
		{"delivery", at("/delivery"), []string{"Deployment frequency"}},
		{"deployments", at("/deployments"), []string{"First versions"}},
		{"agent", at("/agent"), []string{"Clusters", "Repositories"}},
		{"agent-keys", at("/agent?tab=keys"), []string{"owner"}},
		{"agent-audit", at("/agent?tab=audit"), []string{"owner"}},
		{"events", at("/events"), []string{"No event is registered"}},
		{"search", at("/search?q=ledger"), []string{"ledger"}},
		{"dialog", func(t *testing.T, e *env) string {
			return "/actions/approve?stage=gate&deployment=" + e.last(t, "ledger").Id
		}, []string{"Approve ledger?", "Reason", "pipectl deployment approve"}},
	}
}

// showEveryView opens each view at two widths, light and dark: it shows what it should, has
// nothing that axe finds, and is no wider than the window. Its pictures are written into the
// folder in PIPED_SCREENSHOTS, and the one that docs/page shows into that in PIPED_PICTURES.
func showEveryView(t *testing.T, e *env) {
	axe, err := os.ReadFile(filepath.Join("testdata", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.Permit("status of 404")
	for _, v := range views() {
		tab.Show(1280, false)
		tab.Open(v.path(t, e))
		tab.AwaitReady()
		for _, want := range v.want {
			tab.AwaitText("main", want)
		}
		browsertest.Eval[browsertest.Nothing](tab, string(axe))
		for _, dark := range []bool{false, true} {
			for _, width := range []int64{390, 1280} {
				tab.Show(width, dark)
				shown := fmt.Sprintf("%s, %d pixels wide, dark %t", v.name, width, dark)
				for _, problem := range inaccessible(tab) {
					t.Errorf("%s: %s", shown, problem)
				}
				if got := browsertest.Eval[int64](tab, `document.documentElement.scrollWidth`); got > width {
					t.Errorf("%s: the page scrolls to the side, it is %d pixels wide", shown, got)
				}
				writePicture(t, tab, os.Getenv("PIPED_SCREENSHOTS"), fmt.Sprintf("%s-%d-%s", v.name, width, map[bool]string{false: "light", true: "dark"}[dark]))
				if name := pictures[v.name]; name != "" && width == 1280 && !dark {
					writePicture(t, tab, os.Getenv("PIPED_PICTURES"), name)
				}
			}
		}
	}
}

// violation is what axe finds.
type violation struct {
	ID    string
	Help  string
	Nodes []struct {
		HTML           string
		FailureSummary string
	}
}

// inaccessible returns what axe finds in a page that has its script.
func inaccessible(tab *browsertest.Tab) (out []string) {
	text := browsertest.Eval[string](tab, `axe.run(document, { resultTypes: ["violations"] }).then((r) => JSON.stringify(r.violations))`)
	var found []violation
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		return []string{err.Error()}
	}
	for _, v := range found {
		for _, n := range v.Nodes {
			out = append(out, fmt.Sprintf("%s (%s): %.200s: %s", v.ID, v.Help, n.HTML, n.FailureSummary))
		}
	}
	return out
}

// pictures are the views that docs/page shows, with the names of their pictures.
var pictures = map[string]string{
	"now": "now", "applications": "applications", "application-object": "application", "application-drift": "drift", "deployment-log": "deployment",
	"rollouts": "rollouts", "delivery": "delivery", "events": "events", "agent": "agent", "search": "palette",
}

// writePicture writes a picture into a folder; "" writes nothing.
func writePicture(t *testing.T, tab *browsertest.Tab, dir, name string) {
	t.Helper()
	if dir == "" {
		return
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), tab.Picture(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// searchAsYouType: the list follows what is typed, the address can be shared, and the key `f`
// leads into the field from anywhere.
func searchAsYouType(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/applications")
	tab.AwaitText("#total", "10 applications")
	tab.Keys("f")
	tab.Await("the focus in the field", `document.activeElement.matches("[data-find]")`)
	tab.Keys("mai")
	tab.AwaitText("#total", "1 of 10 applications")
	tab.AwaitGone(rowOf("app", "web"))
	tab.AwaitText(rowOf("app", "mail"), "mail")
	tab.Await("the address of the search", `new URLSearchParams(location.search).get("q") === "mai"`)
	tab.Open(tab.Path())
	tab.AwaitText("#total", "1 of 10 applications")
	tab.Click(rowOf("app", "mail")+" .name a", "mail")
	tab.Await("the address of the application", `location.pathname.startsWith("/applications/mail")`)
	tab.AwaitText("main h1", "mail is live at")
}

// useKeyboardOnly: without a mouse, a person goes to the list and back, through the rows, and
// approves what waits.
func useKeyboardOnly(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.Keys("ga")
	tab.Await("the list", `location.pathname === "/applications"`)
	tab.AwaitReady()
	tab.Keys("j")
	tab.Await("the first row", `document.querySelector("[data-row]").dataset.current !== undefined && document.activeElement.closest("[data-row]") === document.querySelector("[data-row]")`)
	tab.Keys("jk")
	tab.Await("the first row again", `document.querySelectorAll("[data-current]").length === 1 && document.querySelector("[data-row]").dataset.current !== undefined`)
	tab.Keys("gn")
	tab.Await("Now", `location.pathname === "/"`)
	tab.AwaitReady()
	row := rowOf("now", "refunds")
	tab.AwaitText(row, "refunds")
	for n := 0; !browsertest.Eval[bool](tab, fmt.Sprintf(`document.querySelector(%q)?.dataset.current !== undefined`, row)); n++ {
		if n > 30 {
			t.Fatal("the key j does not lead to the row of refunds")
		}
		tab.Keys("j")
	}
	for n := 0; !browsertest.Eval[bool](tab, fmt.Sprintf(`document.activeElement.matches(%q) && document.activeElement.innerText === "Approve"`, row+" .button")); n++ {
		if n > 5 {
			t.Fatal("the key Tab does not lead from the row to its button")
		}
		tab.Keys("\t")
	}
	tab.Keys("\r")
	tab.AwaitText("dialog h1", "Approve refunds?")
	tab.Await("the focus in the dialog", `document.activeElement.closest("dialog")`)
	tab.Keys("\x1b")
	tab.AwaitGone("dialog")
	tab.Await("the focus where it was", fmt.Sprintf(`document.activeElement.closest(%q)`, row))
}

// showHostileCommit: what others write is shown as text.
func showHostileCommit(t *testing.T, e *env) {
	const message = `<img src=x onerror=alert(1)><script>alert(2)</script> ` + "\u202e" + `gnp.x</b> \x1b[31mred`
	mail := fixture{name: "mail", labels: "{team: office}", version: "v2"}
	before := e.last(t, "mail").Id
	e.push(t, message, mail)
	e.awaitNext(t, "mail", before)
	e.await(t, "mail", controlv1.ApplicationState_APPLICATION_STATE_SYNCED)
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.AwaitText("main", "<img src=x onerror=alert(1)>")
	if n := tab.Count("main img, main script"); n != 0 {
		t.Errorf("the page has %d elements of the message", n)
	}
}

// reportProblems shows that the checks of every test can fail: a page that does what the policy
// forbids, throws, or complains is reported.
func reportProblems(t *testing.T, e *env) {
	r := &recorder{T: t}
	tab := e.browser.Tab(r, e.address)
	tab.Open("/sign-in")
	browsertest.Eval[browsertest.Nothing](tab, `new Promise((done) => {
		const s = document.createElement("script"); s.textContent = "1"; document.body.append(s);
		console.error("it complains");
		setTimeout(() => { setTimeout(done); throw new Error("it throws"); });
		alert("it stops");
	})`)
	tab.Open("/no-such-view")
	r.end()
	for _, want := range []string{"Content-Security-Policy", "it complains", "it throws", "it stops", "status of 404"} {
		if !strings.Contains(strings.Join(r.errors, "\n"), want) {
			t.Errorf("the browser did not report %q, only %q", want, r.errors)
		}
	}
}

// recorder is a test that collects its errors.
type recorder struct {
	*testing.T
	errors   []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// end ends the test.
func (r *recorder) end() {
	for i := range r.cleanups {
		r.cleanups[len(r.cleanups)-1-i]()
	}
}

// openTabsByKey: the letters of the help open the tabs of a view.
func openTabsByKey(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/applications/web")
	tab.Keys("d")
	tab.Await("the drift", `location.search === "?tab=drift"`)
	tab.Open("/deployments/" + e.last(t, "web").Id)
	tab.Keys("d")
	tab.Await("the plan", `location.search === "?tab=plan"`)
	tab.AwaitReady()
	tab.Keys("l")
	tab.Await("the log", `location.search === "?tab=log"`)
}

// retryFirstConnection: a page whose stream of changes cannot be reached at first says so and
// tries again.
func retryFirstConnection(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.Permit("the first one fails")
	tab.Before(`
		const real = window.fetch;
		window.streams = 0;
		window.fetch = (url, ...rest) => !String(url).includes("/live") || ++window.streams > 1 ? real(url, ...rest)
			: Promise.reject(new TypeError("the first one fails"));
		document.addEventListener("htmx:error", () => setTimeout(() => { window.lost = document.getElementById("lost").checkVisibility(); }));`)
	tab.Open("/applications")
	tab.Await("the stream of changes", `window.streams > 1 && document.documentElement.hasAttribute("data-live")`)
	tab.AwaitGone("#lost")
	if !browsertest.Eval[bool](tab, `window.lost === true`) {
		t.Error("the page did not say that the connection is lost")
	}
}

// reconnectAfterRestart: the page says that it lost the agent, reconnects when the agent is
// back, and shows what happened meanwhile, without being loaded again.
func reconnectAfterRestart(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/applications?q=web")
	tab.Permit("net::ERR_")
	tab.Permit("htmx:sse:error: Failed to fetch")
	tab.AwaitText(rowOf("app", "web"), "Synced")
	tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
	browsertest.Eval[bool](tab, `window.kept = true`)
	e.stop()
	tab.AwaitText("#lost", "The connection is lost")
	e.push(t, "While it was away", fixture{name: "web", labels: "{team: shop, tier: front}", version: "v2"})
	before := cmp.Or(tab.Text(rowOf("app", "web")), "nothing")
	e.run(t)
	tab.AwaitGone("#lost")
	tab.AwaitText(rowOf("app", "web"), "v2")
	if got := tab.Text(rowOf("app", "web")); got == before || !browsertest.Eval[bool](tab, `window.kept === true`) {
		t.Errorf("the row was %q and is %q, or the page was loaded again", before, got)
	}
}
