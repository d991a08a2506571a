package browsertest_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// hook is a receiver of notifications.
type hook struct {
	url     string
	refuses atomic.Bool // every notification, for good

	mu   sync.Mutex
	keys map[bool][]string // of notifications, by whether they were accepted
}

func newHook(t *testing.T) *hook {
	h := &hook{keys: map[bool][]string{}}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	h.url = server.URL
	return h
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	refuses := h.refuses.Load()
	h.keys[!refuses] = append(h.keys[!refuses], r.Header.Get("Piped-Delivery"))
	if refuses {
		w.WriteHeader(http.StatusGone)
	}
}

// notifications returns the keys of the notifications that were accepted or refused.
func (h *hook) notifications(accepted bool) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.keys[accepted])
}

// awaitDeadLetters waits until no notification to the hook waits, and some were given up.
func (e *env) awaitDeadLetters(t *testing.T, want int32) {
	t.Helper()
	var last []*controlv1.ReceiverStatus
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		state, err := e.control.GetStatus(e.ctx, &controlv1.GetStatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if last = state.Receivers; len(last) == 1 && last[0].Pending == 0 && last[0].DeadLetterCount == want {
			return
		}
	}
	t.Fatalf("the receivers are %v, want one with %d dead letters", last, want)
}

// loseNotification makes the hook refuse the notification of a deployment of mail.
func (e *env) loseNotification(t *testing.T) {
	t.Helper()
	e.hook.refuses.Store(true)
	before := e.last(t, "mail").Id
	if _, err := e.api.SyncApplication(e.ctx, &apiservice.SyncApplicationRequest{ApplicationId: idOf("mail")}); err != nil {
		t.Fatal(err)
	}
	e.awaitNext(t, "mail", before)
	e.awaitDeadLetters(t, 1)
	e.hook.refuses.Store(false)
}

// replayAndDrop: what a receiver refused is sent to it again. What it refuses later is deleted,
// which asks for its name, and is never sent.
func replayAndDrop(t *testing.T, e *env) {
	const row = "tr:has(.acts-cell)"
	e.awaitDeadLetters(t, 0) // what other tests have caused is delivered
	before := e.hook.notifications(true)
	e.loseNotification(t)
	tab := e.signIn(t, e.ownerKey(t), "/agent?tab=receivers")
	tab.Permit("status of 422")
	tab.AwaitText(row, "Lost some")
	openDialog(tab, row+" .button", "Replay", "Replay what hook did not get?")
	tab.AwaitText("dialog .consequences", "1 notification to hook")
	tab.AwaitText("dialog .consequences", "DEPLOYMENT_TRIGGERED")
	tab.Click("dialog button", "Replay")
	tab.AwaitText("dialog", "1 notification waits for delivery again")
	e.awaitDeadLetters(t, 0)
	lost, delivered := e.hook.notifications(false), e.hook.notifications(true)
	if want := append(before, lost...); len(lost) != 1 || !slices.Equal(delivered, want) {
		t.Errorf("after the replay of %v, delivered are %v, want %v", lost, delivered, want)
	}
	tab.Click("dialog a", "Show the receivers")
	tab.AwaitText(row, "Delivered")
	tab.AwaitGone(row + " .button")

	e.loseNotification(t)
	tab.Open("/agent?tab=receivers")
	openDialog(tab, row+" .button", "Drop", "Drop what hook did not get?")
	fill(tab, "Type hook to confirm", "another")
	tab.Click("dialog button", "Drop")
	tab.AwaitText("dialog [role=alert]", "Nothing was done")
	e.awaitDeadLetters(t, 1)
	fill(tab, "Type hook to confirm", "hook")
	tab.Click("dialog button", "Drop")
	tab.AwaitText("dialog", "1 notification is deleted")
	e.awaitDeadLetters(t, 0)
	if got := e.hook.notifications(true); !slices.Equal(got, delivered) {
		t.Errorf("after the drop, delivered are %v, want %v", got, delivered)
	}
	tab.Click("dialog a", "Show the receivers")
	tab.AwaitText(row, "Delivered")
}

// disabledUsers returns who disabled which users of the issuer, by their subjects.
func (e *env) disabledUsers(t *testing.T) map[string]string {
	t.Helper()
	resp, err := e.control.ListDisabledUsers(e.ctx, &controlv1.ListDisabledUsersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range resp.Users {
		if u.Issuer == "corp" {
			out[u.Subject] = u.DisabledBy
		}
	}
	return out
}

// disableAndEnableUser: a user whose session is open is disabled. The session ends, and the user
// can only sign in again once enabled. A user without a session is disabled by name.
func disableAndEnableUser(t *testing.T, e *env) {
	const signIn = "Sign in with corp"
	theirs := e.tab(t)
	theirs.Permit("status of 401")
	theirs.Permit("status of 403")
	theirs.Open("/sign-in?next=/applications")
	theirs.Click("a", signIn)
	theirs.AwaitText(".who", "ann")

	tab := e.signIn(t, e.ownerKey(t), "/agent?tab=sessions")
	openDialog(tab, `tr:has(a[title="What ann did"]) .button`, "Disable user", "Disable ann?")
	tab.AwaitText("dialog", "1 session ends")
	tab.Click("dialog button", "Disable")
	tab.AwaitText("dialog", "ann can no longer sign in")
	sessions, err := e.control.ListSessions(e.ctx, &controlv1.ListSessionsRequest{Issuer: "corp", Subject: "ann"})
	if err != nil || len(sessions.Sessions) != 0 {
		t.Errorf("sessions of a disabled user: %v, %v", sessions, err)
	}
	if by := e.disabledUsers(t)["ann"]; by != "owner" {
		t.Errorf("the user is disabled by %q, want owner", by)
	}
	theirs.Open("/applications")
	theirs.Click("a", signIn)
	theirs.AwaitText("h1", "Sign-in failed")

	tab.Click("dialog a", "Disabled users")
	openDialog(tab, `tr:has(a[href*="subject=ann"]) .button`, "Enable", "Enable ann?")
	tab.Click("dialog button", "Enable")
	tab.AwaitText("dialog", "ann can sign in again")
	if by, ok := e.disabledUsers(t)["ann"]; ok {
		t.Errorf("the user is still disabled by %s", by)
	}
	theirs.Open("/sign-in?next=/applications")
	theirs.Click("a", signIn)
	theirs.AwaitText(".who", "ann")

	tab.Click("dialog a", "Disabled users")
	openDialog(tab, ".toolbar .button", "Disable a user", "Disable a user")
	fill(tab, "User", "trudy")
	fill(tab, "Issuer", "corp")
	tab.Click("dialog button", "Disable")
	tab.AwaitText("dialog", "trudy can no longer sign in")
	if by := e.disabledUsers(t)["trudy"]; by != "owner" {
		t.Errorf("the user without a session is disabled by %q, want owner", by)
	}
	tab.Click("dialog a", "Disabled users")
	tab.AwaitText(`tr:has(a[href*="subject=trudy"])`, "by owner")
}
