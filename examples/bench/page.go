package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/web/page/browsertest"
)

const (
	pageApplications = 1000 // of the view Now
	pageSearched     = 10_000
	pageLines        = 50_000 // of a stage's log
	pageScrolled     = 10_000 // lines of the log that are scrolled through
	pageRounds       = 15
)

// pageBench is one run of measurePage.
type pageBench struct {
	*environment
	agent      *agenttest.Agent
	tab, plain *browsertest.Tab // plain shows a page that is nothing but a headline
}

// measurePage opens the page of a real agent in Chromium over loopback: the view Now with 1,000
// applications, a log of 50,000 lines, and the list of 10,000 applications, in which it types. The
// floor of a view is a page that is nothing but a headline, that of a search the fetch of a
// static file.
func measurePage(ctx context.Context, e *environment) (err error) {
	s, err := e.newScene(ctx, "page", agenttest.Options{Interval: defaultInterval})
	if err != nil {
		return err
	}
	defer s.agent.Close()
	b := &pageBench{environment: e, agent: s.agent}
	if err := b.fill(ctx, 0, pageApplications, true); err != nil {
		return err
	}
	browser, err := browsertest.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, browser.Close()) }()
	floor := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!DOCTYPE html><html lang="en"><title>Floor</title><link rel="icon" href="data:,"><h1>Floor</h1>`)
	}))
	defer floor.Close()
	err = browsertest.Try(func(tb browsertest.TB) error {
		b.tab, b.plain = browser.Tab(tb, "http://"+s.agent.WebAddress), browser.Tab(tb, floor.URL)
		b.tab.Permit("Failed to load resource") // streams that end when the agent restarts
		b.tab.Permit("sse")
		if err := b.signIn(); err != nil {
			return err
		}
		b.now()
		b.log()
		b.actions()
		b.tab.Open("/sign-in") // no stream while the agent restarts
		if err := b.fill(ctx, pageApplications, pageSearched, false); err != nil {
			return err
		}
		return b.search(ctx)
	})
	return errors.Join(err, s.agent.Close())
}

// fill stops the agent, stores applications and perhaps a long log, and starts it again. One of
// twenty applications is drifted.
func (b *pageBench) fill(ctx context.Context, from, to int, log bool) (err error) {
	if err := b.agent.Stop(); err != nil {
		return err
	}
	s, err := store.Open(ctx, "sqlite://"+filepath.Join(b.dir, "page", "piped", "piped.db"), store.Options{})
	if err != nil {
		return err
	}
	var apps []deploy.Application
	for i := from; i < to; i++ {
		name := fmt.Sprintf("service-%05d", i)
		app := deploy.Application{
			ID: name, Name: name, Kind: deploy.KindKubernetes, Provider: "devcluster", Description: "The service number " + fmt.Sprint(i),
			Git:    deploy.GitPath{RepoID: "old", Remote: "https://git.example.com/old.git", Branch: "main", Dir: "teams/" + name, ConfigFile: "app.pipecd.yaml"},
			Labels: map[string]string{"team": fmt.Sprint("team-", i%100), "env": []string{"dev", "staging", "prod"}[i%3]},
			Sync:   deploy.SyncState{Status: deploy.Synced, At: time.Now()},
		}
		if i%20 == 0 {
			app.Sync = deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "1 object differs", At: time.Now()}
		}
		apps = append(apps, app)
	}
	_, errs := s.PutApplications(ctx, apps)
	if err = errors.Join(errs...); err == nil && log {
		err = longLog(ctx, s, apps[0])
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return fmt.Errorf("fill the store: %w", err)
	}
	return b.agent.Restart(ctx)
}

// longLog stores a deployment with the long log.
func longLog(ctx context.Context, s *store.Store, app deploy.Application) error {
	if err := archiveOne(ctx, s, "long", app, 1); err != nil {
		return err
	}
	var lines []deploy.LogBlock
	for n := archivedLines; n < pageLines; n++ {
		lines = append(lines, deploy.LogBlock{DeploymentID: "long", StageID: "sync", Index: int64(n), Severity: deploy.SeverityInfo, Log: fmt.Sprintf("Line %d of what was done to apps/Deployment", n), At: time.Now()})
		if len(lines) == 1000 || n == pageLines-1 {
			if err := s.AppendStageLogs(ctx, lines); err != nil {
				return err
			}
			lines = nil
		}
	}
	return nil
}

// signIn signs in with the owner key.
func (b *pageBench) signIn() error {
	key, err := os.ReadFile(b.agent.KeyFile)
	if err != nil {
		return err
	}
	b.tab.Open("/")
	b.tab.Await("the sign-in page", `document.querySelector("#key")`)
	b.tab.Click("label", "API key")
	b.tab.Keys(strings.TrimSpace(string(key)) + "\r")
	b.tab.AwaitReady()
	return nil
}

// paint is what the browser measured of a view.
type paint struct{ First, Loaded, Bytes float64 }

// open opens a view and returns what the browser measured.
func open(t *browsertest.Tab, path string, cold bool) paint {
	if cold {
		t.EmptyCache()
	}
	t.Open(path)
	t.Await("a first paint", `document.readyState === "complete" && performance.getEntriesByName("first-contentful-paint").length && performance.getEntriesByType("navigation")[0].loadEventEnd`)
	return browsertest.Eval[paint](t, `(() => {
		const navigation = performance.getEntriesByType("navigation")[0];
		const all = [navigation, ...performance.getEntriesByType("resource")];
		return {
			First: performance.getEntriesByName("first-contentful-paint")[0].startTime,
			Loaded: navigation.loadEventEnd,
			Bytes: all.reduce((sum, e) => sum + e.transferSize, 0),
		};
	})()`)
}

func ofMilliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// now measures the view Now, with an empty cache and with a full one.
func (b *pageBench) now() {
	var cold, again, floors []time.Duration
	var first, later float64
	for range pageRounds {
		floors = append(floors, ofMilliseconds(open(b.plain, "/", true).First))
		p := open(b.tab, "/", true)
		cold, first = append(cold, ofMilliseconds(p.First)), max(first, p.Bytes)
		p = open(b.tab, "/", false)
		again, later = append(again, ofMilliseconds(p.First)), max(later, p.Bytes)
	}
	b.info("page.now.rows", float64(b.tab.Count("#now .row")), "")
	b.info("page.floor.first_paint.median", milliseconds(median(floors)), "ms")
	b.info("page.floor.first_paint.worst", milliseconds(worst(floors)), "ms")
	b.atMost("page.now.first_paint.median", milliseconds(median(cold)), "ms", 300)
	b.atMost("page.now.first_paint.worst", milliseconds(worst(cold)), "ms", 300)
	b.info("page.now.first_paint.per_floor", ratioOf(cold, floors), "x")
	b.info("page.now.first_paint_again.median", milliseconds(median(again)), "ms")
	b.atMost("page.now.bytes", first/1024, "KiB", 150)
	b.atMost("page.now.bytes_again", later/1024, "KiB", 30)
}

// log measures how long the view of a deployment takes to load with the end of its log, until the
// last line is painted, and then scrolls up through the last pageScrolled lines.
func (b *pageBench) log() {
	last := fmt.Sprintf(`document.querySelector("#line-%d .text").textContent.includes("Line %d of")`, pageLines, pageLines-1)
	var took, floors []time.Duration
	for range pageRounds {
		floors = append(floors, ofMilliseconds(open(b.plain, "/", true).Loaded))
		took = append(took, ofMilliseconds(open(b.tab, "/deployments/long", false).Loaded))
		b.tab.Await("the end of the log", last+` && (({ top, bottom }, box) => top >= box.top && bottom <= box.bottom)(document.querySelector("#log-lines > :nth-last-child(1 of [id])").getBoundingClientRect(), document.querySelector("[data-log]").getBoundingClientRect())`)
	}
	b.info("page.log.lines", pageLines, "")
	b.info("page.log.floor.median", milliseconds(median(floors)), "ms")
	b.atMost("page.log.loaded.median", milliseconds(median(took)), "ms", 500)
	b.atMost("page.log.loaded.worst", milliseconds(worst(took)), "ms", 500)
	b.info("page.log.per_floor", ratioOf(took, floors), "x")
	begin := time.Now()
	browsertest.Eval[browsertest.Nothing](b.tab, fmt.Sprintf(scrollUp, pageLines-pageScrolled+1))
	b.tab.Await("an earlier part of the log", "window.arrived")
	b.info("page.log.lines_scrolled", pageScrolled, "")
	b.info("page.log.scrolled", time.Since(begin).Seconds(), "s")
	b.atMost("page.log.lines_lost", browsertest.Eval[float64](b.tab, fmt.Sprintf("%d - [...window.seen].filter((n) => n > %d).length", pageScrolled, pageLines-pageScrolled)), "", 0)
	b.atMost("page.log.lines_doubled", browsertest.Eval[float64](b.tab, `(({ length }, ids) => length - ids.size)(window.numbers(), new Set(window.numbers()))`), "", 0)
}

// scrollUp scrolls up to a line of the log, by less than the height of its box, and collects the
// lines that are in the box after each step.
const scrollUp = `(() => {
	const box = document.querySelector("[data-log]");
	box.scrollIntoView({ block: "end" }); // what is below the window is in no frame
	window.numbers = () => [...document.querySelectorAll("#log-lines .number")].map((n) => Number(n.textContent));
	window.seen = new Set();
	const step = () => {
		const { left, top, bottom } = box.getBoundingClientRect();
		for (let y = top + 2; y < bottom; y += 6) {
			const number = document.elementFromPoint(left + 200, y)?.closest("li")?.querySelector(".number");
			if (number) window.seen.add(Number(number.textContent));
		}
		if (window.seen.has(%d)) { window.arrived = true; return; }
		box.scrollTop -= box.clientHeight / 2;
		requestAnimationFrame(step);
	};
	requestAnimationFrame(step);
})()`

// actions opens the dialog of an action, and does it, for other applications in turn.
func (b *pageBench) actions() {
	b.tab.Open("/applications")
	b.tab.AwaitReady()
	var floors, shown, done []time.Duration
	for i := range pageRounds {
		id := fmt.Sprintf("service-%05d", 20*i+1)
		floors = append(floors, ofMilliseconds(browsertest.Eval[float64](b.tab, fetched)))
		shown = append(shown, ofMilliseconds(browsertest.Eval[float64](b.tab, fmt.Sprintf(asked, "/actions/sync?application="+id, "{}", "Sync "+id))))
		done = append(done, ofMilliseconds(browsertest.Eval[float64](b.tab, fmt.Sprintf(asked, "/actions/sync", `{method: "POST", body: new URLSearchParams({application: "`+id+`", strategy: "AUTO"})}`, "Open "+id))))
	}
	b.info("page.action.floor.median", milliseconds(median(floors)), "ms")
	b.atMost("page.action.dialog.median", milliseconds(median(shown)), "ms", 100)
	b.atMost("page.action.dialog.worst", milliseconds(worst(shown)), "ms", 100)
	b.atMost("page.action.answer.median", milliseconds(median(done)), "ms", 100)
	b.atMost("page.action.answer.worst", milliseconds(worst(done)), "ms", 100)
	b.info("page.action.answer.per_floor", ratioOf(done, floors), "x")
}

// asked measures a request of a dialog until its answer, which must contain a text.
const asked = `(async () => {
	const from = performance.now();
	const resp = await fetch(%q, { headers: { "HX-Request": "true" }, ...%s });
	const text = await resp.text();
	if (!resp.ok || !text.includes(%q)) throw new Error(resp.status + ": " + text);
	return performance.now() - from;
})()`

// keyed measures in the browser from a key to the frame that shows the rows.
const keyed = `(() => {
	const field = document.querySelector("[data-find]");
	let began = 0;
	window.took = [];
	field.addEventListener("keydown", () => { began = performance.now(); }, true);
	document.addEventListener("htmx:after:swap", () => {
		if (!began) return;
		const from = began;
		began = 0;
		requestAnimationFrame(() => window.took.push(performance.now() - from));
	});
	field.focus();
})()`

// fetched measures the fetch of a static file, without the cache.
const fetched = `(async () => {
	const from = performance.now();
	await (await fetch(document.querySelector("link[rel=icon]").href, { cache: "reload" })).text();
	return performance.now() - from;
})()`

// search types into the list of applications, once the agent has stored of all of them that they
// were never deployed.
func (b *pageBench) search(ctx context.Context) error {
	if err := atRest(ctx, b.agent.PID(), 20*time.Second); err != nil {
		return err
	}
	b.tab.Open("/applications")
	b.tab.AwaitReady()
	b.tab.AwaitText("main", "10,000 applications")
	browsertest.Eval[browsertest.Nothing](b.tab, keyed)
	var floors []time.Duration
	n := 0
	for i := range pageRounds {
		// Backspace removes what was typed, with a search for each.
		word := fmt.Sprintf("service-%03d", i*7)
		for _, key := range word + strings.Repeat("\b", len(word)) {
			floors = append(floors, ofMilliseconds(browsertest.Eval[float64](b.tab, fetched)))
			n++
			b.tab.Keys(string(key))
			b.tab.Await("rows", fmt.Sprintf("window.took.length >= %d", n))
		}
	}
	var took []time.Duration
	for _, ms := range browsertest.Eval[[]float64](b.tab, "window.took") {
		took = append(took, ofMilliseconds(ms))
	}
	if len(took) != len(floors) {
		return fmt.Errorf("%d keys led to %d swaps", len(floors), len(took))
	}
	b.info("page.search.keys", float64(n), "")
	b.info("page.search.floor.median", milliseconds(median(floors)), "ms")
	b.info("page.search.floor.p95", milliseconds(quantile(floors, 0.95)), "ms")
	b.info("page.search.key_to_rows.median", milliseconds(median(took)), "ms")
	b.atMost("page.search.key_to_rows.p95", milliseconds(quantile(took, 0.95)), "ms", 80)
	b.info("page.search.key_to_rows.worst", milliseconds(worst(took)), "ms")
	b.info("page.search.per_floor", ratioOf(took, floors), "x")
	return nil
}
