package browsertest_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/web/page/browsertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
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

// delivered is the path of a view once no notification is on its way.
func delivered(path string) func(*testing.T, *env) string {
	return func(t *testing.T, e *env) string {
		e.awaitDeadLetters(t, 0)
		return path
	}
}

// deploymentOf is a tab of the last deployment of an application.
func deploymentOf(name, tab string) func(*testing.T, *env) string {
	return func(t *testing.T, e *env) string { return "/deployments/" + e.last(t, name).Id + "?tab=" + tab }
}

// podOf returns the address of a part of the pod of an application.
func podOf(name, show string) func(*testing.T, *env) string {
	return func(t *testing.T, e *env) string {
		pods, err := e.cluster.Client(t).CoreV1().Pods(e.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil || len(pods.Items) == 0 {
			t.Fatalf("pods of %s: %v, %v", name, pods, err)
		}
		return "/applications/" + name + "?tab=objects&show=" + show + "&object=/Pod/" + e.namespace + "/" + pods.Items[0].Name
	}
}

// objectOf returns the address of a part of the first object of an application.
func objectOf(name, show string) func(*testing.T, *env) string {
	return func(t *testing.T, e *env) string {
		object := map[string]string{"web": "apps/Deployment", "drifting": "/ConfigMap"}[name]
		return "/applications/" + name + "?tab=objects&show=" + show + "&object=" + object + "/" + e.namespace + "/" + name
	}
}

// views are all views. To add one, add a line. What they show of register is there.
func views() []view {
	return []view{
		{"now", at("/"), []string{"ledger", "approval", "drifting", "broken", "invalid", "Done"}},
		{"applications", at("/applications"), []string{"applications", "web", "Synced", "Waiting for approval", "Drifted", "Invalid config"}},
		{"applications-filtered", at("/applications?state=DRIFTED&sort=name"), []string{" of ", "drifting"}},
		{"applications-none", at("/applications?q=nothing+has+this+name"), []string{"Nothing matches"}},
		// Without scripts it shows what it was when it was opened, and no test deploys this application meanwhile.
		{"application-objects", at("/applications/analysed"), []string{"analysed is live at", "Deployment", "ConfigMap"}},
		{"application-object", objectOf("web", "live"), []string{"Deployment", "replicas: 1"}},
		{"application-object-git", objectOf("web", "git"), []string{"Deployment", "registry.example/web"}},
		{"application-object-fields", objectOf("web", "fields"), []string{"Deployment", "Apply, "}},
		{"application-object-events", objectOf("web", "events"), []string{"Deployment", "ScalingReplicaSet"}},
		{"application-pod-log", podOf("web", "log"), []string{"Pod", ": line 1 of "}},
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
		{"deployment-analysis", deploymentOf("analysed", "analysis"), []string{"analysed", "As expected", "status 200 (expected 200)"}},
		{"deployment-rollouts", deploymentOf("analysed", "rollouts"), []string{"analysed", "Complete"}},
		{"chain", func(t *testing.T, e *env) string { return "/chains/" + e.last(t, "first").DeploymentChainId }, []string{"Block 1", "Block 2", "second"}},
		{"trace", func(t *testing.T, e *env) string { return "/trace?deployment=" + e.last(t, "mail").Id }, []string{"mail", "Commit"}},
		{"trace-start", at("/trace"), []string{"Follow a change"}},
		{"rollouts", at("/rollouts"), []string{"web", "Complete"}},
		{"delivery", at("/delivery"), []string{"Deployment frequency"}},
		{"deployments", at("/deployments"), []string{"First versions"}},
		{"agent", at("/agent"), []string{"Clusters", "Repositories"}},
		{"agent-receivers", delivered("/agent?tab=receivers"), []string{"hook", "Delivered"}},
		{"agent-sessions", at("/agent?tab=sessions"), []string{"owner", "This one"}},
		{"agent-users", at("/agent?tab=users"), []string{"mallory", "corp"}},
		{"agent-config", at("/agent?tab=config"), []string{"Leave out defaults", "[redacted]"}},
		{"agent-keys", at("/agent?tab=keys"), []string{"owner"}},
		{"agent-audit", at("/agent?tab=audit"), []string{"owner"}},
		{"events", at("/events"), []string{"image-pushed", "registry.example/web:v3"}},
		{"events-none", at("/events?name=no-such-event"), []string{"Nothing matches"}},
		{"plan-previews", at("/plan-previews"), []string{"Plan previews", "State"}},
		{"plan-preview", func(t *testing.T, e *env) string { return "/plan-previews/" + e.awaitPreview(t, path.Base(t.Name())) }, []string{"would change 1 of 1 application", "web", "registry.example/web:v7"}},
		{"previews", at("/previews"), []string{"No pull request has a preview", "State"}},
		{"search", at("/search?q=ledger"), []string{"ledger"}},
		{"dialog", func(t *testing.T, e *env) string {
			return "/actions/approve?stage=gate&deployment=" + e.last(t, "ledger").Id
		}, []string{"Approve ledger?", "Reason", "pipectl deployment approve"}},
		{"sign-in", at("/sign-in"), []string{"Sign in", "API key"}},
	}
}

// register stores what no agent does by itself: an event that CI registers, and a disabled user.
func (e *env) register(t *testing.T) {
	t.Helper()
	_, err := e.api.RegisterEvent(e.ctx, &apiservice.RegisterEventRequest{Name: "image-pushed", Data: "registry.example/web:v3", Labels: map[string]string{"app": "web"}})
	if err == nil {
		_, err = e.control.DisableUser(e.ctx, &controlv1.DisableUserRequest{Issuer: "corp", Subject: "mallory"})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// showEveryView opens each view and checks it.
func showEveryView(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.Permit("status of 404")
	for _, v := range views() {
		tab.Show(1280, false)
		tab.Open(v.path(t, e))
		if v.name != "sign-in" { // that page has no script
			tab.AwaitReady()
		}
		for _, want := range v.want {
			tab.AwaitText("main", want)
		}
		checkView(t, tab, v.name)
	}
}

// showDialogs opens the palette, the help and the dialog of an action over a view, and checks them.
func showDialogs(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	for _, d := range []struct {
		name, selector, want string
		open                 func()
	}{
		{"palette", "#palette[open]", "ledger", func() { tab.Keys("/ledger") }},
		{"help", "#help[open]", "Keyboard shortcuts", func() { tab.Keys("?") }},
		{"modal", "#dialog[open]", "pipectl deployment approve", func() { tab.Click(rowOf("now", "ledger")+" .button", "Approve") }},
	} {
		tab.Show(1280, false)
		tab.Open("/")
		tab.AwaitReady()
		tab.AwaitText(rowOf("now", "ledger"), "ledger")
		d.open()
		tab.AwaitText(d.selector, d.want)
		checkView(t, tab, d.name)
		if n := tab.Count(d.selector); n != 1 {
			t.Errorf("%s has closed meanwhile", d.name)
		}
	}
}

// checkView shows what a tab has open at two widths, light and dark: axe finds nothing. At these and
// the extreme widths nothing is wider than the window. Its pictures are written into the folder in
// PIPED_SCREENSHOTS, and the one that docs/page shows into that in PIPED_PICTURES.
func checkView(t *testing.T, tab *browsertest.Tab, name string) {
	t.Helper()
	axe, err := os.ReadFile(filepath.Join("testdata", "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	browsertest.Eval[browsertest.Nothing](tab, string(axe))
	for _, dark := range []bool{false, true} {
		for _, width := range []int64{390, 1280} {
			tab.Show(width, dark)
			shown := fmt.Sprintf("%s, %d pixels wide, dark %t", name, width, dark)
			for _, problem := range inaccessible(tab) {
				t.Errorf("%s: %s", shown, problem)
			}
			reportWide(t, tab, shown, width)
			writePicture(t, tab, os.Getenv("PIPED_SCREENSHOTS"), fmt.Sprintf("%s-%d-%s", name, width, map[bool]string{false: "light", true: "dark"}[dark]))
			if picture := pictures[name]; picture != "" && width == 1280 && !dark {
				writePicture(t, tab, os.Getenv("PIPED_PICTURES"), picture)
			}
		}
	}
	for _, width := range []int64{360, 2560} {
		tab.Show(width, false)
		reportWide(t, tab, fmt.Sprintf("%s, %d pixels wide", name, width), width)
		writePicture(t, tab, os.Getenv("PIPED_SCREENSHOTS"), fmt.Sprintf("%s-%d-light", name, width))
	}
}

// reportWide reports what has to be scrolled to the side: the page, an open dialog, or on narrow
// screens a table. Code and the lanes of rollouts are drawn to scale and may scroll in their boxes.
func reportWide(t *testing.T, tab *browsertest.Tab, shown string, width int64) {
	t.Helper()
	if got := browsertest.Eval[int64](tab, `document.documentElement.scrollWidth`); got > width {
		t.Errorf("%s: the page scrolls to the side, it is %d pixels wide", shown, got)
	}
	if n := browsertest.Eval[int64](tab, `[...document.querySelectorAll("dialog[open]")].filter((e) => e.scrollWidth > e.clientWidth || e.getBoundingClientRect().left < 0 || e.getBoundingClientRect().right > innerWidth).length`); n > 0 {
		t.Errorf("%s: the dialog scrolls to the side or is cut off", shown)
	}
	if width > 500 {
		return
	}
	if wide := browsertest.Eval[string](tab, `[...document.querySelectorAll("main .scroll:not(:has(> pre, > code, > svg))")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.outerHTML.slice(0, 200)).join("; ")`); wide != "" {
		t.Errorf("%s: tables scroll to the side: %s", shown, wide)
	}
	if !browsertest.Eval[bool](tab, `[...document.querySelectorAll(".nav a")].every((a) => a.getBoundingClientRect().right <= innerWidth)`) {
		t.Errorf("%s: not all views are in sight", shown)
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

// pictures are the views and dialogs that docs/page shows, with the names of their pictures.
var pictures = map[string]string{
	"now": "now", "applications": "applications", "application-object": "application", "application-drift": "drift", "deployment-log": "deployment",
	"rollouts": "rollouts", "delivery": "delivery", "events": "events", "agent": "agent", "palette": "palette",
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
	tab.AwaitText(rowOf("app", "web"), "web")
	tab.Keys("f")
	tab.Await("the focus in the field", `document.activeElement.matches("[data-find]")`)
	tab.Keys("mail")
	tab.AwaitText("#total", "1 of ")
	tab.AwaitGone(rowOf("app", "web"))
	tab.AwaitText(rowOf("app", "mail"), "mail")
	tab.Await("the address of the search", `new URLSearchParams(location.search).get("q") === "mail"`)
	tab.Open(tab.Path())
	tab.AwaitText("#total", "1 of ")
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
	row := rowOf("now", "balances")
	tab.AwaitText(row, "balances")
	for n := 0; !browsertest.Eval[bool](tab, fmt.Sprintf(`document.querySelector(%q)?.dataset.current !== undefined`, row)); n++ {
		if n > 30 {
			t.Fatal("the key j does not lead to the row of balances")
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
	tab.AwaitText("dialog h1", "Approve balances?")
	tab.Await("the focus in the dialog", `document.activeElement.closest("dialog")`)
	tab.Keys("\x1b")
	tab.AwaitGone("dialog")
	tab.Await("the focus where it was", fmt.Sprintf(`document.activeElement.closest(%q)`, row))
}

// moveByKey: the keys go through what is shown of the tree of objects, which the arrows open and
// close, and through the stages of a deployment. Now says why an application is not live.
func moveByKey(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.AwaitText(rowOf("now", "broken")+" summary", "ImagePull")
	tab.Open("/applications/web")
	tab.AwaitReady()
	const opened = `document.activeElement.matches("#tree summary")`
	for n := 0; !browsertest.Eval[bool](tab, opened); n++ {
		if n > 5 {
			t.Fatal("the key j does not lead to an object that has others below")
		}
		tab.Keys("j")
	}
	for _, key := range []string{kb.ArrowLeft, kb.ArrowRight, kb.ArrowLeft} {
		tab.Keys(key)
		tab.Await("the level below", fmt.Sprintf(`document.activeElement.parentElement.open === %t`, key == kb.ArrowRight))
	}
	for range 5 { // those below are not shown
		tab.Keys("j")
	}
	tab.Await("the last object that is shown", opened)
	tab.Keys("k")
	tab.Await("the object before", `document.activeElement.matches("#tree .node-links a")`)
	tab.Open("/deployments/" + e.last(t, "web").Id)
	tab.AwaitReady()
	tab.Keys("j")
	tab.Await("the first stage", `document.activeElement === document.querySelector(".stage > a")`)
}

// showHostileCommit: what others write is shown as text, without control characters, and makes no
// view wider than the window.
func showHostileCommit(t *testing.T, e *env) {
	message := "<img src=x onerror=alert(1)><script>alert(2)</script> \u202egnp.x</b> \x1b[31mred\x1b[0m " + strings.Repeat("w", 3000)
	const name = "guestbook" // no view without scripts shows whether its notifications are delivered
	changed := fixture{name: name, labels: "{team: office}", version: "v2"}
	tab := e.signIn(t, e.ownerKey(t), "/")
	shows := func(path string) {
		t.Helper()
		tab.AwaitReady()
		tab.Await("the message on "+path, `document.querySelector("main").innerHTML.includes("&lt;img src=x onerror=alert(1)&gt;") || document.querySelector("main").innerHTML.includes('"<img src=x onerror=alert(1)>')`)
		if n := tab.Count("main img, main script"); n != 0 {
			t.Errorf("%s has %d elements of the message", path, n)
		}
		if browsertest.Eval[bool](tab, `/[\x1b\u202e]/.test(document.documentElement.outerHTML)`) {
			t.Errorf("%s has control characters of the message", path)
		}
		for _, width := range []int64{360, 1280} {
			tab.Show(width, false)
			reportWide(t, tab, fmt.Sprintf("%s, %d pixels wide", path, width), width)
		}
	}
	before := e.last(t, name).Id
	tab.AwaitReady()
	e.push(t, message, changed)
	shows("/") // which shows the last few deployments only, and others follow
	e.awaitNext(t, name, before)
	e.await(t, name, controlv1.ApplicationState_APPLICATION_STATE_SYNCED)
	id := e.last(t, name).Id
	for _, path := range []string{"/applications?q=" + name, "/applications/" + name + "?tab=deployments", "/deployments/" + id, "/deployments?q=" + name, "/trace?deployment=" + id, "/search?q=" + e.last(t, name).Trigger.Commit.Hash} {
		tab.Show(1280, false)
		tab.Open(path)
		shows(path)
	}
}

// showLongAnalysis: whatever a check is called, asks for and measures, its view is not wider than the
// window.
func showLongAnalysis(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), deploymentOf("analysed", "analysis")(t, e))
	tab.AwaitReady()
	browsertest.Eval[bool](tab, `(() => {
		document.getElementById("live").remove();
		const word = "w".repeat(300), words = "the canary is above the primary ".repeat(8);
		for (const e of document.querySelectorAll(".series :is(h2, .series-query code, td.reason)")) e.textContent = words + word;
		for (const e of document.querySelectorAll(".series td.num")) e.textContent = "0.1234 to 123456.789";
		return document.querySelectorAll(".series td.num").length > 0;
	})()`)
	for _, width := range []int64{360, 1280} {
		tab.Show(width, false)
		reportWide(t, tab, fmt.Sprintf("the analysis, %d pixels wide", width), width)
	}
}

// readWithoutScript: each view says what it has to say to a browser that runs no scripts, and its
// links lead on.
func readWithoutScript(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	tab.Permit("status of 404")
	tab.DisableScripts()
	for _, v := range views() {
		tab.Open(v.path(t, e))
		for _, want := range v.want {
			tab.AwaitText("main", want)
		}
		tab.Await("no script on "+v.name, `typeof htmx === "undefined"`)
		if v.name == "sign-in" { // it has no links
			continue
		}
		// Without scripts nothing can listen to clicks: the browser itself follows the link.
		tab.Await("a link of "+v.name, `(() => {
			const leads = (a) => a instanceof HTMLAnchorElement && a.checkVisibility() && !a.pathname.endsWith("/log") && a.pathname + a.search !== location.pathname + location.search;
			const link = [...document.querySelectorAll("main a[href^='/']"), ...document.querySelectorAll(".nav a")].find(leads);
			document.documentElement.dataset.left = "yes";
			link.click();
			return true;
		})()`)
		tab.Await("what a link of "+v.name+" leads to", `document.documentElement.dataset.left === undefined && document.querySelector("main :is(h1, h2)") && !document.querySelector("main .failed")`)
	}
}

// openFromPlot: the figures of delivery are drawn, and a click on a plot opens the deployments behind
// it.
func openFromPlot(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/delivery")
	tab.Await("the plots", `[...document.querySelectorAll("figure[data-plot]")].length === 4 && [...document.querySelectorAll("figure[data-plot]")].every((f) => f.querySelector(".plot-canvas canvas"))`)
	over := "figure[data-plot=frequency] .u-over"
	tab.Hover(over)
	tab.AwaitText("figure[data-plot=frequency] .plot-about", ": ")
	tab.Click(over, "")
	tab.Await("the deployments of a range", `location.pathname === "/deployments" && new URLSearchParams(location.search).has("since") && new URLSearchParams(location.search).has("until")`)
	tab.AwaitText("main", "First versions")
}

// reportProblems shows that the checks of every test can fail: a page that does what the policy
// forbids, throws, or complains is reported.
func reportProblems(t *testing.T, e *env) {
	err := browsertest.Try(func(tb browsertest.TB) error {
		tab := e.browser.Tab(tb, e.address)
		tab.Open("/sign-in")
		browsertest.Eval[browsertest.Nothing](tab, `new Promise((done) => {
			const s = document.createElement("script"); s.textContent = "1"; document.body.append(s);
			console.error("it complains");
			setTimeout(() => { setTimeout(done); throw new Error("it throws"); });
			alert("it stops");
		})`)
		tab.Open("/assets/nothing") // any other path leads to the sign-in page
		return nil
	})
	for _, want := range []string{"Content-Security-Policy", "it complains", "it throws", "it stops", "status of 404"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("the browser did not report %q, only %q", want, err)
		}
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
	tab.AwaitText("#lost", "The connection was lost")
	e.push(t, "While it was away", fixture{name: "web", labels: "{team: shop, tier: front}", version: "v2"})
	before := cmp.Or(tab.Text(rowOf("app", "web")), "nothing")
	e.run(t)
	tab.AwaitGone("#lost")
	tab.AwaitText(rowOf("app", "web"), "v2")
	if got := tab.Text(rowOf("app", "web")); got == before || !browsertest.Eval[bool](tab, `window.kept === true`) {
		t.Errorf("the row was %q and is %q, or the page was loaded again", before, got)
	}
}

// copyConfiguration: what one copies of a configuration is its text without the numbers of lines,
// and the address of a line leads to it.
func copyConfiguration(t *testing.T, e *env) {
	resp, err := e.control.GetApplicationConfig(e.ctx, &controlv1.GetApplicationConfigRequest{ApplicationId: idOf("web")})
	if err != nil {
		t.Fatal(err)
	}
	tab := e.signIn(t, e.ownerKey(t), "/applications/web?tab=config")
	copied := browsertest.Eval[string](tab, `getSelection().selectAllChildren(document.querySelector(".yaml code")), getSelection().toString()`)
	if diff := gocmp.Diff(strings.TrimRight(resp.Yaml, "\n"), strings.TrimRight(copied, "\n")); diff != "" {
		t.Errorf("-configuration +copied:\n%s", diff)
	}
	tab.Click("#L3 .number", "3")
	tab.Await("the line in the address", `location.hash === "#L3" && document.querySelector(".line:target").id === "L3"`)
	tab.Click("main .link", "Leave out defaults")
	tab.AwaitText("main", "lines of defaults are left out")
	if text := tab.Text(".yaml"); strings.Contains(text, "# default") || !strings.Contains(text, "name: web") {
		t.Errorf("without defaults: %s", text)
	}
}

// preview requests a plan preview of a branch that changes the image of web, and returns the
// command.
func (e *env) preview(t *testing.T, branch string) string {
	t.Helper()
	e.pushing.Lock()
	web := fixture{name: "web", labels: "{team: shop, tier: front}", version: "v7"}
	commit := e.repo.PushOn(t, branch, "Another image of web", web.files(e.namespace))
	e.pushing.Unlock()
	resp, err := e.api.RequestPlanPreview(e.ctx, &apiservice.RequestPlanPreviewRequest{RepoRemoteUrl: e.repo.Dir, HeadBranch: branch, HeadCommit: commit, BaseBranch: "main"})
	if err != nil || len(resp.GetCommands()) != 1 {
		t.Fatal(resp, err)
	}
	return resp.Commands[0]
}

// awaitPreview requests a plan preview as preview does, and waits until it is built.
func (e *env) awaitPreview(t *testing.T, branch string) string {
	t.Helper()
	id := e.preview(t, branch)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		resp, err := e.api.GetCommand(e.ctx, &apiservice.GetCommandRequest{CommandId: id})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Command.Status == modelv1.CommandStatus_COMMAND_SUCCEEDED {
			return id
		}
	}
	t.Fatalf("the plan preview %s was not built", id)
	return ""
}

// followPlanPreviews: a plan preview appears in the list when it is requested, its state changes
// when it has ended, and its page says what the change would do. The page is never loaded again
// before one asks for it.
func followPlanPreviews(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/plan-previews?branch=followed")
	tab.AwaitText("main", "Nothing matches")
	tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
	browsertest.Eval[bool](tab, `window.kept = true`)
	first := e.preview(t, "followed")
	tab.AwaitText("#preview-"+first, "Done")
	tab.AwaitText("#preview-"+first, "1 of 1 application changed")
	tab.Await("the same page", `window.kept === true`)
	tab.Open("/plan-previews?branch=followed")
	tab.Await("the stream of changes", `document.documentElement.hasAttribute("data-live")`)
	second := e.preview(t, "followed")
	tab.AwaitText("#resort", "1 new plan preview")
	tab.Click("#resort a", "1 new plan preview")
	tab.AwaitText("#preview-"+second, "Done")
	tab.Click("#preview-"+second+" .name a", "apps")
	tab.AwaitText("main h1", "This change would change 1 of 1 application.")
	tab.AwaitText("main", "Deployment web")
	tab.AwaitText(".diff .removed", "registry.example/web:v")
	tab.AwaitText(".diff .added", "registry.example/web:v7")
}

// saveFilter: a filter of the list is saved under a name, used again from there, and removed.
func saveFilter(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/applications?state=DRIFTED")
	tab.Click(".saved summary", "Save filter")
	tab.Click(".saved input[type=text]", "")
	tab.Keys("to heal\r")
	tab.AwaitText(".saved .chip[aria-current]", "to heal")
	tab.Open("/")
	tab.Open("/applications")
	tab.Click(".saved .chip", "to heal")
	tab.Await("the filter in the address", `location.search === "?state=DRIFTED"`)
	tab.AwaitText(rowOf("app", "drifting"), "drifting")
	tab.Click(".saved summary", "Edit filters")
	tab.Click(".saved .menu-body button", "Remove")
	tab.AwaitText(".saved summary", "Save filter")
	tab.AwaitGone(".saved .chip")
	if got := tab.Path(); got != "/applications?state=DRIFTED" {
		t.Errorf("after the removal, the address is %s", got)
	}
}

// chooseColumns: a column that is not wanted is hidden, until it is wanted again. The browser remembers
// the choice.
func chooseColumns(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/applications?q=drifting")
	hidden := func() bool {
		return browsertest.Eval[bool](tab, `[...document.querySelectorAll(".applications .live-commit")].every((e) => getComputedStyle(e).display === "none")`)
	}
	if hidden() {
		t.Error("a column is hidden by default")
	}
	tall := browsertest.Eval[int](tab, `document.querySelector(".applications tbody tr").offsetHeight`)
	tab.Click(".columns summary", "Columns")
	tab.Click(".columns label", "Live commit")
	tab.Click(".columns label", "Compact")
	tab.Click(".columns button", "Apply")
	tab.Await("the choice", `document.querySelector(".applications.compact")`)
	if got := tab.Path(); got != "/applications?q=drifting" {
		t.Errorf("the choice leads to %s", got)
	}
	tab.Open("/")
	tab.Open("/applications?q=drifting")
	tab.AwaitReady()
	if got := browsertest.Eval[int](tab, `document.querySelector(".applications tbody tr").offsetHeight`); !hidden() || got >= tall {
		t.Errorf("the column is shown, or compact rows have %d of %d pixels", got, tall)
	}
	for _, width := range []int64{360, 1280, 2560} {
		tab.Show(width, false)
		tab.Click(".columns summary", "Columns")
		if !browsertest.Eval[bool](tab, `(({ left, right }) => left >= 0 && right <= innerWidth)(document.querySelector(".columns .menu-body").getBoundingClientRect())`) {
			t.Errorf("the menu is cut off at %d pixels", width)
		}
		reportWide(t, tab, "columns", width)
		writePicture(t, tab, os.Getenv("PIPED_SCREENSHOTS"), fmt.Sprintf("columns-%d", width))
		tab.Click(".columns summary", "Columns")
	}
	tab.Click(".columns summary", "Columns")
	tab.Click(".columns label", "Live commit")
	tab.Click(".columns label", "Comfortable")
	tab.Click(".columns button", "Apply")
	tab.Await("the choice", `document.querySelector(".applications:not(.compact)")`)
	if hidden() {
		t.Error("the column stays hidden")
	}
}

// countApplications: the list says how many applications there are and match, as the API has them.
func countApplications(t *testing.T, e *env) {
	all := 0
	for _, disabled := range []bool{false, true} {
		resp, err := e.api.ListApplications(e.ctx, &apiservice.ListApplicationsRequest{Disabled: disabled})
		if err != nil {
			t.Fatal(err)
		}
		all += len(resp.Applications)
	}
	if all < len(fixtures("")) {
		t.Fatalf("the API lists %d applications, want all that the tests began with but one, and new ones", all)
	}
	tab := e.signIn(t, e.ownerKey(t), "/applications")
	tab.AwaitText("#total", fmt.Sprintf("%d applications", all))
	if got := tab.Count(`[id^="app-"]`); got != all {
		t.Errorf("the list has %d rows, want %d", got, all)
	}
	tab.Open("/applications?q=mail")
	tab.AwaitText("#total", fmt.Sprintf("1 of %d applications", all))
}
