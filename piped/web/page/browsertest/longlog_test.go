package browsertest_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/web/page"
	"github.com/c785c783/piped/piped/web/page/browsertest"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

const lineInSight = `(({ top, bottom }, box) => top >= box.top - 1 && bottom <= box.bottom + 1)(document.querySelector("#line-%d").getBoundingClientRect(), document.querySelector("[data-log]").getBoundingClientRect())`

// TestLongLog: one scrolls up and down through the windows of a log that grows, over a broken
// connection; no line is lost or doubled, and those that are shown do not move.
func TestLongLog(t *testing.T) {
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Policy = access.NewPolicy(nil) })
	agent.Deployment("d", agent.Application("web", nil), "")
	agent.Move("d", deploy.Running, "")
	add := func(from, to int) {
		var blocks []deploy.LogBlock
		for n := from; n <= to; n++ {
			blocks = append(blocks, deploy.LogBlock{DeploymentID: "d", StageID: controltest.SyncStage, Index: int64(n - 1), Severity: deploy.SeverityInfo, Log: fmt.Sprintf("line %d", n), At: agent.Now()})
		}
		if err := agent.Store.AppendStageLogs(t.Context(), blocks); err != nil {
			t.Fatal(err)
		}
	}
	add(1, 1800)
	token := agent.SignInWithKey(agent.LimitedKey("admin", nil))
	server := httptest.NewServer(page.New(page.Config{Conn: agent.Server.Conn(), Now: agent.Now, Token: func(*http.Request) string { return token }}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	browser, err := browsertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = browser.Close() })
	tab := browser.Tab(t, server.URL)
	tab.Permit("sse")
	tab.Permit("ERR_")
	tab.Permit("Failed to")
	scrollTop := func() float64 {
		return browsertest.Eval[float64](tab, `document.querySelector("[data-log]").scrollTop`)
	}
	numbers := func(test string) bool {
		return browsertest.Eval[bool](tab, `[...document.querySelectorAll("#log-lines .number")].map((n) => Number(n.textContent)).every(`+test+`)`)
	}
	tab.Open("/deployments/d")
	tab.Await("the end", fmt.Sprintf(lineInSight, 1800))
	add(1801, 1850)
	tab.Await("the end that follows", `document.querySelector("#line-1850") && `+fmt.Sprintf(lineInSight, 1850))
	for n := tab.Count("#log-lines .number"); n < 1500; n = tab.Count("#log-lines .number") {
		before := browsertest.Eval[float64](tab, `(() => {
			const box = document.querySelector("[data-log]");
			box.scrollTop = -box.scrollHeight;
			window.first = document.querySelector("#log-lines .number").closest("li");
			return window.first.getBoundingClientRect().top;
		})()`)
		tab.Await("earlier lines", fmt.Sprintf(`document.querySelectorAll("#log-lines .number").length > %d`, n))
		if after := browsertest.Eval[float64](tab, `window.first.getBoundingClientRect().top`); after < before-40 || after > before+40 {
			t.Errorf("the lines moved from %v to %v", before, after)
		}
	}
	shown := browsertest.Eval[float64](tab, `(window.first = document.elementFromPoint(300, document.querySelector("[data-log]").getBoundingClientRect().top + 60).closest("li"), window.first.getBoundingClientRect().top)`)
	server.CloseClientConnections() // the stream breaks while lines are added
	add(1851, 1900)
	tab.Await("the lines that are added", `document.querySelector("#line-1900")`)
	// Before it draws, the browser moves the lines back by what is added below them.
	browsertest.Eval[bool](tab, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
	if now := browsertest.Eval[float64](tab, `window.first.getBoundingClientRect().top`); now < shown-2 || now > shown+2 || scrollTop() > -100 {
		t.Errorf("new lines moved those that are shown from %v to %v", shown, now)
	}
	tab.Await("the beginning", `(document.querySelector("[data-log]").scrollTop = -1e6, document.querySelector("#line-1") && !document.querySelector(".log-more"))`)
	if n := tab.Count("#log-lines .number"); n != 1900 || !numbers(`(n, i) => n === i + 1`) {
		t.Errorf("the page has %d lines, not 1 to 1900 each once", n)
	}
	tab.Open("/deployments/d?line=300#line-300")
	tab.Await("the linked line", fmt.Sprintf(lineInSight, 300))
	browsertest.Eval[bool](tab, `(document.querySelector("[data-log]").scrollTop = 0, true)`)
	tab.Await("later lines", `document.querySelector("#line-1049")`)
	if scrollTop() > -100 {
		t.Error("later lines scrolled to their end")
	}
	tab.Await("all lines", `(document.querySelector("[data-log]").scrollTop = 0, document.querySelector("#line-1900"))`)
	if !numbers(`(n, i, all) => n === all[0] + i`) {
		t.Error("lines are lost or doubled on the way down")
	}
	tab.Click("[data-log-find]", "")
	tab.Keys("LINE 42\r")
	tab.Click(".log-found a .text", "line 42")
	tab.Await("the line that was found", `document.querySelector("#line-42[aria-current]") && `+fmt.Sprintf(lineInSight, 42))
}

// talkative writes lines until it is cancelled, again from the first after a restart: ten a second, and
// from the 30th on one a second, so that a view which a busy machine opens late still begins with the first.
const talkative = `
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: talk, name: SCRIPT_RUN, with: {onInterrupted: rerun, run: 'n=0; while true; do n=$((n+1)); echo "line $n"; if [ $n -lt 30 ]; then sleep 0.1; else sleep 1; fi; done'}}
      - {id: sync, name: K8S_SYNC}
`

// restartDuringLog: the agent restarts while a stage writes its log. The page says so, reconnects
// without being loaded again, and shows each line of both runs once and in order, as the API has
// them.
func restartDuringLog(t *testing.T, e *env) {
	const (
		name  = "talkative"
		lines = `[...document.querySelectorAll("#log-lines > li:has(> .text)")].map((l) => l.querySelector(".number").textContent + " " + l.querySelector(".text").textContent.trim())`
	)
	e.push(t, "A script that talks", fixture{name: name, labels: "{team: office}", spec: talkative, version: "v1"})
	e.await(t, name, controlv1.ApplicationState_APPLICATION_STATE_DEPLOYING)
	d := e.last(t, name).Id
	tab := e.signIn(t, e.ownerKey(t), "/deployments/"+d+"?stage=talk")
	tab.Permit("net::ERR_")
	tab.Permit("htmx:sse:error: Failed to fetch")
	tab.Await("lines of the first run", lines+`.filter((l) => l.endsWith(" line 20")).length === 1`)
	browsertest.Eval[bool](tab, `window.kept = true`)
	e.stop()
	tab.AwaitText("#lost", "The connection was lost")
	e.run(t)
	tab.AwaitGone("#lost")
	tab.Await("lines of both runs", lines+`.filter((l) => l.endsWith(" line 20")).length === 2`)
	if _, err := e.control.CancelDeployment(e.ctx, &controlv1.CancelDeploymentRequest{DeploymentId: d, ForceNoRollback: true}); err != nil {
		t.Fatal(err)
	}
	want := e.completedLog(t, d, "talk")
	tab.Await("the end of the log", fmt.Sprintf(`document.querySelector("#line-%d")`, len(want)))
	if diff := cmp.Diff(want, browsertest.Eval[[]string](tab, lines)); diff != "" {
		t.Error("the lines differ (-API +page):\n" + diff)
	}
	if !browsertest.Eval[bool](tab, `window.kept === true`) {
		t.Error("the page was loaded again")
	}
}

// completedLog waits until a stage has ended, and returns the lines of its log with their numbers.
func (e *env) completedLog(t *testing.T, deployment, stage string) (lines []string) {
	t.Helper()
	stream, err := e.control.FollowStageLogs(e.ctx, &controlv1.FollowStageLogsRequest{DeploymentId: deployment, StageId: stage})
	for err == nil {
		var m *controlv1.FollowStageLogsResponse
		if m, err = stream.Recv(); err == nil {
			for _, b := range m.Blocks {
				lines = append(lines, fmt.Sprintf("%d %s", b.Index+1, strings.TrimSpace(b.Log)))
			}
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Fatalf("follow the log of %s: %v", stage, err)
	}
	return lines
}
