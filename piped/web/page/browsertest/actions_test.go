package browsertest_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/c785c783/piped/piped/web/page/browsertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	stateSynced  = controlv1.ApplicationState_APPLICATION_STATE_SYNCED
	stateWaiting = controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL
)

// rowOf returns the selector of an application's row on Now or in the list.
func rowOf(view, name string) string { return fmt.Sprintf("#%s-%s", view, idOf(name)) }

// signInWithOwnerKey: the page leads to the sign-in page, and from there to where the user
// wanted to go; a wrong key leads nowhere. Signing out ends the session.
func signInWithOwnerKey(t *testing.T, e *env) {
	tab := e.tab(t)
	tab.Permit("status of 401")
	tab.Permit("status of 403")
	tab.Open("/")
	tab.Await("the sign-in page", `location.pathname === "/sign-in" && document.querySelector("#key")`)
	tab.Click("label", "API key")
	tab.Keys("wrong.key\r")
	tab.AwaitGone("#key")
	if n := tab.Count(".nav"); n != 0 {
		t.Errorf("a wrong key opens the page: %s", tab.Text("body"))
	}
	tab.Open("/")
	tab.Click("label", "API key")
	tab.Keys(e.ownerKey(t) + "\r")
	tab.AwaitReady()
	if got := tab.Path(); got != "/" {
		t.Errorf("signing in leads to %s, want /", got)
	}
	tab.AwaitText(".nav [aria-current]", "Now")
	tab.AwaitText(".who", "owner")
	tab.Click(".menu summary", "")
	tab.Click(".menu button", "Sign out")
	tab.AwaitGone(".nav")
	tab.Open("/applications")
	tab.Await("the sign-in page that leads back", `location.pathname === "/sign-in" && document.querySelector("[name=next]").value === "/applications"`)
}

// approveWithReason: an approver sees on Now what waits, approves it with a reason, and sees it
// leave the view, without loading the page again.
func approveWithReason(t *testing.T, e *env) {
	tab := e.signIn(t, e.ownerKey(t), "/")
	browsertest.Eval[bool](tab, `window.kept = true`)
	tab.AwaitText(rowOf("now", "checkout"), "approval")
	tab.Click(rowOf("now", "checkout")+" .button", "Approve")
	tab.AwaitText("dialog h1", "Approve checkout?")
	tab.Click("dialog label", "Reason")
	tab.Keys("tested by hand")
	tab.Click("dialog button", "Approve")
	tab.AwaitText("dialog", "You have approved checkout")
	e.await(t, "checkout", stateSynced)
	tab.Click("dialog [data-close]", "")
	tab.AwaitGone("dialog")
	tab.AwaitGone(rowOf("now", "checkout"))
	if !browsertest.Eval[bool](tab, `window.kept === true`) {
		t.Error("the page was loaded again")
	}
	decisions := decisionsOf(e.last(t, "checkout"))
	if want := "owner APPROVED: tested by hand"; decisions != want {
		t.Errorf("the decisions are %q, want %q", decisions, want)
	}
}

// decisionsOf returns who decided what about the stage "gate".
func decisionsOf(d *modelv1.Deployment) string {
	var out []string
	for _, s := range d.GetStages() {
		for _, decision := range s.GetDecisions() {
			out = append(out, fmt.Sprintf("%s %s: %s", decision.Subject, strings.TrimPrefix(decision.Verdict.String(), "VERDICT_"), decision.Reason))
		}
	}
	return strings.Join(out, "; ")
}

// approveAtOnce: two people press the button at the same moment, and both approvals count.
func approveAtOnce(t *testing.T, e *env) {
	people := []string{"ada", "grace"}
	tabs := make([]*browsertest.Tab, len(people))
	for i, who := range people {
		tabs[i] = e.signIn(t, e.key(t, who, "approver"), "/")
		tabs[i].Click(rowOf("now", "invoices")+" .button", "Approve")
		tabs[i].AwaitText("dialog h1", "Approve invoices?")
	}
	var both sync.WaitGroup
	for _, tab := range tabs {
		both.Go(func() { tab.Click("dialog button", "Approve") })
	}
	both.Wait()
	for _, tab := range tabs {
		tab.AwaitText("dialog", "You have approved invoices")
	}
	e.await(t, "invoices", stateSynced)
	decisions := decisionsOf(e.last(t, "invoices"))
	for _, who := range people {
		if n := strings.Count(decisions, who+" APPROVED"); n != 1 {
			t.Errorf("%d approvals of %s, want 1: %s", n, who, decisions)
		}
	}
	for _, tab := range tabs {
		tab.AwaitGone(rowOf("now", "invoices"))
	}
}

// endSessionDuringAction: the session ends while the dialog is open. Nothing is done, and the
// page says so and leads to the sign-in page and back.
func endSessionDuringAction(t *testing.T, e *env) {
	tab := e.signIn(t, e.key(t, "linus", "admin"), "/")
	tab.Permit("status of 401")
	tab.Click(rowOf("now", "balances")+" .button", "Approve")
	tab.AwaitText("dialog h1", "Approve balances?")
	sessions, err := e.control.ListSessions(e.ctx, &controlv1.ListSessionsRequest{Subject: "linus"})
	if err != nil || len(sessions.Sessions) != 1 {
		t.Fatalf("sessions: %v, %v", sessions, err)
	}
	if _, err := e.control.EndSession(e.ctx, &controlv1.EndSessionRequest{Id: sessions.Sessions[0].Id}); err != nil {
		t.Fatal(err)
	}
	tab.Click("dialog button", "Approve")
	tab.AwaitText("dialog", "Your session has ended")
	tab.AwaitText("dialog", "Nothing was done")
	if got := decisionsOf(e.last(t, "balances")); got != "" {
		t.Errorf("after the end of the session: %s", got)
	}
	tab.Click("dialog a", "Sign in again")
	tab.Await("the sign-in page that leads back", `location.pathname === "/sign-in" && document.querySelector("[name=next]").value === "/"`)
	e.await(t, "balances", stateWaiting)
}

// seeAsViewer: a viewer sees everything and no button, and what the viewer forges is refused.
func seeAsViewer(t *testing.T, e *env) {
	tab := e.signIn(t, e.key(t, "vera", "viewer"), "/")
	tab.Permit("status of 403")
	tab.AwaitText(rowOf("now", "ledger"), "ledger")
	if got := browsertest.Eval[string](tab, `[...document.querySelectorAll("main [data-dialog], main button")].map((b) => b.innerText).join()`); got != "" {
		t.Errorf("a viewer has the buttons %s on Now", got)
	}
	tab.Open("/applications")
	tab.AwaitText(rowOf("app", "ledger"), "ledger")
	if n := tab.Count("main input[type=checkbox]:not(.unseen, .columns *), main button:not(.columns *), main [data-dialog]"); n != 0 {
		t.Errorf("a viewer has %d controls in the list but the choice of columns", n)
	}
	d := e.last(t, "ledger")
	for action, form := range map[string]url.Values{
		"approve": {"deployment": {d.Id}, "stage": {"gate"}, "reason": {"forged"}},
		"sync":    {"application": {idOf("web")}},
		"disable": {"application": {idOf("web")}},
		"delete":  {"application": {idOf("web")}, "confirm": {"web"}},
	} {
		got := browsertest.Eval[int](tab, fmt.Sprintf(`fetch("/actions/%s", { method: "POST", headers: { "Content-Type": "application/x-www-form-urlencoded" }, body: %q }).then((r) => r.status)`, action, form.Encode()))
		if got != 403 {
			t.Errorf("a forged %s is answered with %d, want 403", action, got)
		}
	}
	if got := e.last(t, "ledger"); got.Status != d.Status || decisionsOf(got) != "" {
		t.Errorf("after the forged requests: %v", got)
	}
}

// syncSelected: applications are selected in the list, and synced together. The view that follows
// shows what becomes of each.
func syncSelected(t *testing.T, e *env) {
	before := map[string]string{}
	for _, name := range []string{"web", "search"} {
		before[name] = e.last(t, name).Id
	}
	tab := e.signIn(t, e.ownerKey(t), "/applications?"+url.Values{"label:team": {"shop"}, "state": {"SYNCED"}}.Encode())
	tab.AwaitText("#total", "2 of ")
	for name := range before {
		tab.Click(rowOf("app", name)+" .pick", "")
	}
	tab.AwaitText("[data-picked]", "2 selected")
	tab.Click(".bulk button", "Sync")
	tab.AwaitText("dialog h1", "Sync 2 applications?")
	tab.Click("dialog button", "Sync")
	tab.Await("the progress", `location.pathname === "/commands"`)
	tab.AwaitReady()
	tab.AwaitText("main h1", "2 requests to sync")
	browsertest.Eval[bool](tab, `window.kept = true`)
	for name, id := range before {
		tab.AwaitText("main td.name", name)
		e.awaitNext(t, name, id)
	}
	tab.AwaitText("main h1", "2 deployed.")
	tab.AwaitText("main td a", e.last(t, "web").Id[:7])
	if !browsertest.Eval[bool](tab, `window.kept === true`) {
		t.Error("the page was loaded again")
	}
	checkView(t, tab, "commands")
}
