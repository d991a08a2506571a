package slack

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/notify/notifytest"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const receiver = "chat"

func newStore(t *testing.T) *store.Store {
	t.Helper()
	s := storetest.New(t, nil)
	if err := s.RegisterReceivers(t.Context(), receiver); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestMessages compares the messages of all events with the golden file.
func TestMessages(t *testing.T) {
	s := New(Config{HookURL: "https://hook", Accounts: []string{"U0", "U1"}, Groups: []string{"S0"}, ProjectID: "shop-project"})
	var got strings.Builder
	write := func(name string, n notify.Notice) {
		text, a := s.compose(n)
		fmt.Fprintf(&got, "%s\n  %s %s\n  above: %s\n  title: %s (%s)\n  text:  %s\n", name, a.Color, a.Ts, text, a.Title, a.TitleLink, a.Text)
		for _, f := range a.Fields {
			fmt.Fprintf(&got, "  field: %s = %s\n", f.Title, f.Value)
		}
	}
	for _, kind := range deploy.EventTypes() {
		write(string(kind), notifytest.Notice(kind))
	}
	for _, kind := range []deploy.EventType{deploy.EventRolloutStarted, deploy.EventRolloutEnded, deploy.EventRolloutRecovered, deploy.EventScalingEnded} {
		write(string(kind)+" without an application", notifytest.Foreign(kind))
	}
	file := filepath.Join("testdata", "messages.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLinks: with an address of the page, messages lead to it; the commit stays linked.
func TestLinks(t *testing.T) {
	const commit = "<https://git.example.com/apps/commit/c0ffee|c0ffee0>"
	for _, base := range []string{"https://piped.example.com", "https://example.com/tools/piped/"} {
		s := New(Config{HookURL: "https://hook", Page: func() string { return base }})
		at := strings.TrimSuffix(base, "/")
		deployment, application := at+"/deployments/0123456789abcdef", at+"/applications/app-1"
		for kind, title := range map[deploy.EventType]string{
			deploy.EventStarted: deployment, deploy.EventWaitApproval: deployment, deploy.EventStageFailed: deployment, deploy.EventRolloutEnded: deployment,
			deploy.EventOutOfSync: application, deploy.EventTriggerFailed: application,
			deploy.EventPipedStarted: at + "/agent",
		} {
			_, a := s.compose(notifytest.Notice(kind))
			got := map[string]string{"title": a.TitleLink}
			for _, f := range a.Fields {
				got[f.Title] = f.Value
			}
			want := map[string]string{"title": title}
			if kind != deploy.EventPipedStarted {
				want["Application"], want["Commit"] = "<"+application+"|web>", commit
			}
			if title == deployment {
				want["Deployment"] = "<" + deployment + "|01234567...>"
			}
			for name, value := range want {
				if got[name] != value {
					t.Errorf("%s: %s is %q, want %q", kind, name, got[name], value)
				}
			}
		}
	}
}

// TestAnApprovalLeadsToThePage: the link and the commands are never shortened.
func TestAnApprovalLeadsToThePage(t *testing.T) {
	n := notifytest.Notice(deploy.EventWaitApproval)
	n.Stage.Desc = strings.Repeat("<check>", maxText)
	_, a := New(Config{HookURL: "https://hook", Page: func() string { return "https://piped.example.com" }}).compose(n)
	want := "…\n<https://piped.example.com/deployments/0123456789abcdef|Approve or reject it on the page>, " +
		"or run `pipectl deployment approve --deployment-id 0123456789abcdef`, or `reject` with the same ID"
	if !strings.HasSuffix(a.Text, want) || strings.Contains(a.Text, "<check>") {
		t.Errorf("text: %s", a.Text)
	}
}

// fakeSlack answers chat.postMessage and, at every other path, as an incoming webhook.
type fakeSlack struct {
	answers []string // JSON of the next answers; further ones are successes
	code    int      // status of the incoming webhook, and of answers that are not JSON
	after   string
	posts   []url.Values
	bodies  []string
}

func (f *fakeSlack) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.bodies = append(f.bodies, string(body))
	answer := fmt.Sprintf(`{"ok": true, "channel": "C1", "ts": "%d.0"}`, len(f.posts)+1)
	if r.URL.Path == "/chat.postMessage" {
		form, _ := url.ParseQuery(string(body))
		f.posts = append(f.posts, form)
	}
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	if f.after != "" {
		w.Header().Set("Retry-After", f.after)
	}
	if f.code != 0 {
		w.WriteHeader(f.code)
	}
	_, _ = io.WriteString(w, answer)
}

func serve(t *testing.T, f *fakeSlack) (address string) {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL + "/"
}

func bot(address string, notes Notes) *Sender {
	return New(Config{
		Receiver: receiver, Token: "xoxb-hunter2", ChannelID: "C1", APIURL: address, ProjectID: "shop", Notes: notes,
		Now: func() time.Time { return notifytest.At },
	})
}

func deliver(t *testing.T, s *Sender, kinds ...deploy.EventType) {
	t.Helper()
	for _, kind := range kinds {
		if err := s.Deliver(t.Context(), notifytest.Notice(kind)); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
	}
}

// TestThread: the messages of one deployment form one thread, also after a restart, and
// its end is broadcast to the channel.
func TestThread(t *testing.T) {
	f, notes := &fakeSlack{}, newStore(t)
	address := serve(t, f)
	deliver(t, bot(address, notes), deploy.EventTriggered, deploy.EventPipedStarted, deploy.EventStarted)
	deliver(t, bot(address, notes), deploy.EventSucceeded)
	var got []string
	for _, p := range f.posts {
		got = append(got, fmt.Sprintf("%s in %q broadcast %q", p.Get("channel"), p.Get("thread_ts"), p.Get("reply_broadcast")))
	}
	want := []string{
		`C1 in "" broadcast ""`, // starts the thread
		`C1 in "" broadcast ""`, // concerns no deployment
		`C1 in "1.0" broadcast ""`,
		`C1 in "1.0" broadcast "true"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("posted (-want +got):\n%s", diff)
	}
	if text := f.posts[0].Get("text"); text != "<@U1>" {
		t.Errorf("the text is %q", text)
	}
	var attachments []struct{ Title, Color string }
	if err := json.Unmarshal([]byte(f.posts[3].Get("attachments")), &attachments); err != nil || len(attachments) != 1 || attachments[0].Color != successColor {
		t.Errorf("attachments %+v, %v", attachments, err)
	}
}

// TestThreadDeleted: if the first message of a thread was deleted, a new thread starts.
func TestThreadDeleted(t *testing.T) {
	f, notes := &fakeSlack{}, newStore(t)
	s := bot(serve(t, f), notes)
	deliver(t, s, deploy.EventTriggered)
	f.answers = []string{`{"ok": false, "error": "thread_not_found"}`}
	deliver(t, s, deploy.EventStarted, deploy.EventSucceeded)
	var threads []string
	for _, p := range f.posts {
		threads = append(threads, p.Get("thread_ts"))
	}
	if diff := cmp.Diff([]string{"", "1.0", "", "3.0"}, threads); diff != "" {
		t.Errorf("threads (-want +got):\n%s", diff)
	}
}

// TestRefusals: errors of Slack say what to do and contain neither token nor address.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		hook   bool
		code   int
		answer string
		kind   deploy.Kind
		says   string
	}{
		"a wrong token":                  {false, 0, `{"ok": false, "error": "invalid_auth"}`, deploy.Denied, "write a valid bot token"},
		"no such channel":                {false, 0, `{"ok": false, "error": "channel_not_found"}`, deploy.Denied, "set channelID to the channel's ID"},
		"not invited":                    {false, 0, `{"ok": false, "error": "not_in_channel"}`, deploy.Denied, "invite it"},
		"no right":                       {false, 0, `{"ok": false, "error": "missing_scope"}`, deploy.Denied, "chat:write"},
		"too long":                       {false, 0, `{"ok": false, "error": "msg_too_long"}`, deploy.Invalid, "rejects this message"},
		"something new":                  {false, 0, `{"ok": false, "error": "fatal_error"}`, deploy.Unavailable, "fatal_error"},
		"broken":                         {false, 500, `oops`, deploy.Unavailable, "500"},
		"a removed incoming webhook":     {true, 404, "no_service", deploy.Denied, "create a new one"},
		"an incoming webhook's mistake":  {true, 400, "invalid_payload", deploy.Invalid, "rejects this message"},
		"an archived channel":            {true, 410, "channel_is_archived", deploy.Denied, "archived"},
		"an incoming webhook breaks":     {true, 500, "rollup_error", deploy.Unavailable, "500"},
		"an incoming webhook that is no": {true, 200, "ok", deploy.Internal, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeSlack{answers: []string{c.answer}, code: c.code}
			address := serve(t, f)
			s := bot(address, newStore(t))
			if c.hook {
				s = New(Config{HookURL: address + "hunter2", Now: time.Now})
			}
			err := s.Deliver(t.Context(), notifytest.Notice(deploy.EventFailed))
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || deploy.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %v of kind %s, want %s and %q", err, deploy.KindOf(err), c.kind, c.says)
			}
		})
	}
}

func TestRateLimit(t *testing.T) {
	f := &fakeSlack{answers: []string{`{"ok": false, "error": "ratelimited"}`}, code: 429, after: "30"}
	err := bot(serve(t, f), newStore(t)).Deliver(t.Context(), notifytest.Notice(deploy.EventFailed))
	var later interface{ RetryAt() time.Time }
	if !errors.As(err, &later) || !later.RetryAt().Equal(notifytest.At.Add(30*time.Second)) || !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("error %v", err)
	}
}

func TestIncomingWebhook(t *testing.T) {
	f := &fakeSlack{}
	s := New(Config{HookURL: serve(t, f), Now: time.Now})
	deliver(t, s, deploy.EventFailed)
	var m struct {
		Username, Text string
		Attachments    []struct{ Title, Text string }
	}
	if err := json.Unmarshal([]byte(f.bodies[0]), &m); err != nil {
		t.Fatal(err)
	}
	if m.Username != "PipeCD" || m.Text != "<@U1> <!subteam^S1>" || len(m.Attachments) != 1 || m.Attachments[0].Text != "because of &lt;that&gt; &amp; more" {
		t.Errorf("posted %+v", m)
	}
}

// TestUnreachable: the error does not contain the address.
func TestUnreachable(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	for _, s := range []*Sender{bot(server.URL+"/hunter2/", noNotes{}), New(Config{HookURL: server.URL + "/hunter2", Now: time.Now})} {
		err := s.Deliver(t.Context(), notifytest.Notice(deploy.EventPipedStarted))
		if !deploy.IsKind(err, deploy.Unavailable) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v of kind %s", err, deploy.KindOf(err))
		}
	}
}

type noNotes struct{}

func (noNotes) ReceiverNote(context.Context, string, string) (string, error)  { return "", nil }
func (noNotes) PutReceiverNote(context.Context, string, string, string) error { return nil }
