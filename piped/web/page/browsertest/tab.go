package browsertest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// patience is the timeout for an expected event on an overloaded machine.
const patience = 3 * time.Minute

// TB is the part of testing.TB that this package uses.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Tab is a page of a browser with cookies of its own, as if it were another person's. What the
// browser reports as an error fails the test: a violation of the Content-Security-Policy, an
// exception, a failed request, a message box.
type Tab struct {
	tb      TB
	ctx     context.Context
	address string // of the server

	mu        sync.Mutex
	problems  []string
	permitted []string
}

// Tab opens a page that shows a server, until the test ends.
func (b *Browser) Tab(tb TB, address string) *Tab {
	tb.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	t := &Tab{tb: tb, ctx: ctx, address: address}
	tb.Cleanup(func() {
		t.report()
		// chromedp waits 5 s. A browser that has not answered by then closes the page later, or when it ends.
		if err := chromedp.Cancel(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			tb.Errorf("close the page: %v", err)
		}
		cancel()
	})
	t.check("open a page", chromedp.Listen(ctx, t.observe))
	_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
	t.check("ask for the issues of the page", err)
	// A page in the background pauses its stream of changes.
	_, err = chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	t.check("bring the page to the front", err)
	t.Show(1280, false)
	return t
}

// Permit accepts problems that contain a text, which the test itself causes.
func (t *Tab) Permit(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.permitted = append(t.permitted, text)
}

// observe records what is wrong.
func (t *Tab) observe(event any) {
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" || e.Entry.Source == "security" {
			t.add(fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "assert" || e.Type == "warning" {
			t.add(fmt.Sprintf("console.%s: %s", e.Type, texts(e.Args)))
		}
	case *runtime.EventExceptionThrown:
		t.add("exception: " + exception(e.ExceptionDetails))
	case *audits.EventIssueAdded:
		if d := e.Issue.Details.ContentSecurityPolicyIssueDetails; d != nil {
			t.add(fmt.Sprintf("violation of the Content-Security-Policy: %s %s", d.ViolatedDirective, d.BlockedURL))
		}
	case *page.EventJavascriptDialogOpening:
		t.add("message box: " + e.Message)
		go t.dismiss() // commands cannot be sent here; until then the page is blocked
	}
}

// dismiss closes a message box. It fails if the page is gone.
func (t *Tab) dismiss() {
	_, _ = chromedp.Call(t.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
}

func (t *Tab) add(problem string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, problem)
}

// report fails the test for each problem that it does not permit.
func (t *Tab) report() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.problems {
		if !containsOne(p, t.permitted) {
			t.tb.Errorf("the browser reports: %s", p)
		}
	}
}

func containsOne(text string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(text, p) {
			return true
		}
	}
	return false
}

func texts(args []*runtime.RemoteObject) string {
	var out []string
	for _, a := range args {
		out = append(out, a.Description+string(a.Value))
	}
	return strings.Join(out, " ")
}

func exception(d *runtime.ExceptionDetails) string {
	if d.Exception != nil {
		return d.Exception.Description
	}
	return d.Text
}

func (t *Tab) check(what string, err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatalf("%s: %v; %s", what, err, t.state())
	}
}

// state describes what the page shows, for a failed test.
func (t *Tab) state() string {
	ctx, cancel := context.WithTimeout(t.ctx, 10*time.Second)
	defer cancel()
	shown, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + (document.body ? document.body.innerText.slice(0, 2000) : "")`))
	if err != nil {
		return err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("the page shows %s\nproblems: %q", shown, t.problems)
}

// do runs an action within a time.
func (t *Tab) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	t.check(what, chromedp.Do(ctx, actions...))
}

// Open opens a path of the server and waits until it is loaded.
func (t *Tab) Open(path string) {
	t.tb.Helper()
	t.do("open "+path, chromedp.Navigate(t.address+path))
}

// EmptyCache removes what the browser stores of responses. Cookies remain.
func (t *Tab) EmptyCache() {
	t.tb.Helper()
	_, err := chromedp.Call(t.ctx, network.ClearBrowserCache, cdp.Empty{})
	t.check("empty the cache", err)
}

// Before runs a script in the pages that the tab opens from now on, before their own.
func (t *Tab) Before(script string) {
	t.tb.Helper()
	_, err := chromedp.Call(t.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	t.check("add a script to every page", err)
}

// Show sets the width of the page, and whether the user prefers dark colours.
func (t *Tab) Show(width int64, dark bool) {
	t.tb.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(t.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}})
	t.check("choose the colours", err)
	t.do("set the width", chromedp.EmulateViewport(width, 800))
}

// DisableScripts makes the tab run no scripts of the pages that it opens from now on.
func (t *Tab) DisableScripts() {
	t.tb.Helper()
	_, err := chromedp.Call(t.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	t.check("disable scripts", err)
}

// Hover moves the mouse to the middle of the first visible element that matches a selector.
func (t *Tab) Hover(selector string) {
	t.tb.Helper()
	t.AwaitText(selector, "")
	at := Eval[[]float64](t, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll(%s)].find((e) => e.checkVisibility());
		e.scrollIntoView({ block: "center" });
		const r = e.getBoundingClientRect();
		return [r.x + r.width / 2, r.y + r.height / 2];
	})()`, quote(selector)))
	t.do("move the mouse to "+selector, chromedp.MouseEvent(chromedp.MouseMoved, at[0], at[1]))
}

// Await waits until a JavaScript expression is true. The page may be replaced meanwhile.
func (t *Tab) Await(what, expression string) {
	t.tb.Helper()
	last := "it is false"
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(30 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		cancel()
		if ok && err == nil {
			return
		}
		if err != nil {
			last = err.Error()
		}
	}
	t.tb.Fatalf("after %s the page does not show %s (%s): %s; %s", patience, what, expression, last, t.state())
}

// AwaitText waits until an element that matches a selector shows a text.
func (t *Tab) AwaitText(selector, text string) {
	t.tb.Helper()
	t.Await(fmt.Sprintf("%q in %s", text, selector), shows(selector, text))
}

// shows returns an expression for whether an element that matches a selector shows a text.
func shows(selector, text string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(%s)].some((e) => e.checkVisibility() && e.innerText.includes(%s))`, quote(selector), quote(text))
}

// AwaitGone waits until no visible element matches a selector.
func (t *Tab) AwaitGone(selector string) {
	t.tb.Helper()
	t.Await("no "+selector, fmt.Sprintf(`![...document.querySelectorAll(%s)].some((e) => e.checkVisibility())`, quote(selector)))
}

// AwaitReady waits until the page is loaded, and its script and the stream of changes run.
func (t *Tab) AwaitReady() {
	t.tb.Helper()
	t.Await("a loaded page", `document.readyState === "complete" && window.htmx && document.querySelector("main :is(h1, h2)")`)
}

// Click clicks with the mouse on the first visible element that matches a selector and has a
// text, once the page is loaded: before its scripts have begun, a link opens no dialog. If the page
// moves it away under the mouse, nothing gets the click, and Click tries again.
func (t *Tab) Click(selector, text string) {
	t.tb.Helper()
	for hit := false; !hit; {
		t.Await(fmt.Sprintf("%q in %s of a loaded page", text, selector), `document.readyState === "complete" && `+shows(selector, text))
		at := Eval[[]float64](t, fmt.Sprintf(`(() => {
			const e = [...document.querySelectorAll(%s)].find((e) => e.checkVisibility() && e.innerText.includes(%s));
			e.scrollIntoView({ block: "center" });
			window.missed = true;
			window.clicked?.abort(); // what an earlier try left
			window.clicked = new AbortController();
			document.addEventListener("click", (event) => {
				window.missed = !e.contains(event.target);
				if (window.missed) { event.preventDefault(); event.stopImmediatePropagation(); }
			}, { capture: true, once: true, signal: window.clicked.signal });
			const r = e.getBoundingClientRect();
			return [r.x + r.width / 2, r.y + r.height / 2];
		})()`, quote(selector), quote(text)))
		t.do("click on "+selector, chromedp.MouseClickXY(at[0], at[1]))
		hit = t.wasHit()
	}
}

// wasHit reports whether the last click hit its element. The page may be replaced meanwhile: a click
// that led to another page has hit.
func (t *Tab) wasHit() bool {
	t.tb.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.ctx, patience)
		hit, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!window.missed"))
		cancel()
		if err == nil {
			return hit
		}
		if time.Now().After(end) || t.ctx.Err() != nil {
			t.check("see what the click has hit", err)
		}
	}
}

// Keys presses keys, one after another: characters, Tab, Enter ("\r") and Escape ("\x1b").
func (t *Tab) Keys(keys string) {
	t.tb.Helper()
	for _, r := range keys {
		t.check(fmt.Sprintf("press %q", r), t.press(r))
	}
}

// press presses and releases a key. The text is a part of the first event, so that nothing is
// typed if the page handles the key; chromedp sends the text on its own.
func (t *Tab) press(r rune) error {
	key, ok := kb.Keys[r]
	if !ok {
		return fmt.Errorf("no keyboard has %q", r)
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	event := input.DispatchKeyEventParams{
		Type: "keyDown", Key: key.Key, Code: key.Code, Text: key.Text, UnmodifiedText: key.Unmodified,
		WindowsVirtualKeyCode: key.Windows, NativeVirtualKeyCode: key.Native,
	}
	if key.Shift {
		event.Modifiers = 8
	}
	_, err := chromedp.Call(ctx, input.DispatchKeyEvent, event)
	event.Type, event.Text, event.UnmodifiedText = "keyUp", "", ""
	_, upErr := chromedp.Call(ctx, input.DispatchKeyEvent, event)
	return errors.Join(err, upErr)
}

// Path returns the path and query that the browser shows.
func (t *Tab) Path() string {
	t.tb.Helper()
	return Eval[string](t, "location.pathname + location.search")
}

// Text returns what the first element that matches a selector shows; "" without one.
func (t *Tab) Text(selector string) string {
	t.tb.Helper()
	return Eval[string](t, fmt.Sprintf(`document.querySelector(%s)?.innerText ?? ""`, quote(selector)))
}

// Count returns how many elements match a selector.
func (t *Tab) Count(selector string) int {
	t.tb.Helper()
	return Eval[int](t, fmt.Sprintf(`document.querySelectorAll(%s).length`, quote(selector)))
}

// Picture returns the whole page as a PNG; while a dialog is open, whose backdrop covers the window
// alone, what is in sight.
func (t *Tab) Picture() []byte {
	t.tb.Helper()
	take := chromedp.FullScreenshot(100)
	if t.Count("dialog[open]") > 0 {
		take = chromedp.CaptureScreenshot()
	}
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	png, err := chromedp.Run(ctx, take)
	t.check("take a picture", err)
	return png
}

// Nothing is the value of an expression that is not read.
type Nothing = chromedp.Void

// Eval returns the value of a JavaScript expression; that of a promise once it is there.
func Eval[T any](t *Tab, expression string) T {
	t.tb.Helper()
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	t.check("evaluate "+expression[:min(len(expression), 200)], err)
	return value
}

// quote returns a text as JavaScript.
func quote(text string) string { return strconv.Quote(text) }
