package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/notify/notifytest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post delivers n to a server with the given handler and returns the request that it got.
func post(t *testing.T, secret string, n notify.Notice, answer http.HandlerFunc) (header http.Header, body []byte, err error) {
	t.Helper()
	return postAt(t, notifytest.At, secret, n, answer)
}

func postAt(t *testing.T, now time.Time, secret string, n notify.Notice, answer http.HandlerFunc) (header http.Header, body []byte, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header = r.Header
		if body, _ = io.ReadAll(r.Body); answer != nil {
			answer(w, r)
		}
	}))
	defer server.Close()
	s := New(Config{
		URL: server.URL + "/hunter2", SignatureKey: "PipeCD-Signature", SignatureValue: "known", HMACSecret: secret, PipedID: "piped-1", ProjectID: "shop",
		Now: func() time.Time { return now },
	})
	err = s.Deliver(t.Context(), n)
	return header, body, err
}

// TestMessages compares the body of each event with its golden file.
func TestMessages(t *testing.T) {
	notices := map[string]notify.Notice{}
	for _, kind := range deploy.EventTypes() {
		notices[string(kind)] = notifytest.Notice(kind)
	}
	for _, kind := range []deploy.EventType{deploy.EventRolloutStarted, deploy.EventRolloutEnded, deploy.EventRolloutRecovered, deploy.EventScalingEnded} {
		notices[string(kind)+"_foreign"] = notifytest.Foreign(kind)
	}
	for name, n := range notices {
		t.Run(name, func(t *testing.T) {
			_, body, err := post(t, "", n, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			if err := json.Indent(&got, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			got.WriteString("\n")
			file := filepath.Join("testdata", strings.ToLower(name)+".golden.json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o600); err != nil {
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
		})
	}
}

// TestDeletedDeployment: the body for a deleted deployment has its ID.
func TestDeletedDeployment(t *testing.T) {
	n := notifytest.Notice(deploy.EventStageFailed)
	n.Deployment, n.Application, n.Stage = nil, nil, nil
	n.Details.To = string(deploy.StageFailure)
	_, body, err := post(t, "", n, nil)
	want := `{"Type":403,"Metadata":{"deployment":{"id":"0123456789abcdef","application_id":"app-1","application_name":"web","piped_id":"piped-1",` +
		`"project_id":"shop"},"stage":{"id":"stage-1","status":3}}}`
	if err != nil || string(body) != want {
		t.Errorf("posted %s, %v; want %s", body, err, want)
	}
}

// genuine is the check that docs/reference/notifications.md shows.
func genuine(r *http.Request, body []byte, hmacSecret string) bool {
	sent, err := strconv.ParseInt(r.Header.Get("Piped-Timestamp"), 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return false
	}
	mac := hmac.New(sha256.New, []byte(hmacSecret))
	fmt.Fprintf(mac, "%d\n%s\n%s\n%s", sent, r.Header.Get("Piped-Delivery"), r.Header.Get("Piped-Event"), body)
	return hmac.Equal([]byte(r.Header.Get("Piped-Signature-256")), []byte("sha256="+hex.EncodeToString(mac.Sum(nil))))
}

func TestSignature(t *testing.T) {
	now := time.Now()
	header, body, err := postAt(t, now, "s3cret", notifytest.Notice(deploy.EventSucceeded), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range []string{"Content-Type", "PipeCD-Signature", HeaderEvent, HeaderDelivery, HeaderTimestamp} {
		got[name] = header.Get(name)
	}
	want := map[string]string{
		"Content-Type": "application/json", "PipeCD-Signature": "known", HeaderEvent: "DEPLOYMENT_SUCCEEDED",
		HeaderDelivery: "key-DEPLOYMENT_SUCCEEDED", HeaderTimestamp: fmt.Sprint(now.Unix()),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	message := &http.Request{Header: header}
	if !genuine(message, body, "s3cret") || genuine(message, body, "known") || genuine(message, append(body, ' '), "s3cret") {
		t.Error("the signature does not distinguish a genuine message from a forged one")
	}
	for _, name := range []string{HeaderEvent, HeaderDelivery, HeaderTimestamp} {
		forged := &http.Request{Header: header.Clone()}
		forged.Header.Set(name, header.Get(name)+"1")
		if genuine(forged, body, "s3cret") {
			t.Errorf("a message with another %s is taken for genuine", name)
		}
	}
	old := &http.Request{Header: header.Clone()}
	old.Header.Set(HeaderTimestamp, fmt.Sprint(time.Now().Add(-time.Hour).Unix()))
	if genuine(old, body, "s3cret") {
		t.Error("an old message is taken for genuine")
	}
	for name, values := range header {
		if strings.Contains(strings.Join(values, " "), "s3cret") {
			t.Errorf("header %s has the secret that messages are signed with", name)
		}
	}
}

// TestNotSigned: without an HMAC secret nothing is signed, also if PipeCD's header has a
// value.
func TestNotSigned(t *testing.T) {
	header, _, err := post(t, "", notifytest.Notice(deploy.EventSucceeded), nil)
	if err != nil || header.Get("PipeCD-Signature") != "known" || header.Get(HeaderSignature)+header.Get(HeaderTimestamp) != "" {
		t.Errorf("without a secret: %v, %v", header, err)
	}
}

// TestAnswers: the status decides kind and time of the next attempt. The error contains
// neither the address nor the response body.
func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		code  int
		after string
		kind  deploy.Kind
		at    time.Time
		says  string
	}{
		"taken":                {204, "", deploy.Internal, time.Time{}, ""},
		"broken":               {500, "", deploy.Unavailable, time.Time{}, "500 Internal Server Error"},
		"busy for a while":     {503, "90", deploy.Unavailable, notifytest.At.Add(90 * time.Second), "503"},
		"limited until":        {429, notifytest.At.Add(time.Hour).Format(http.TimeFormat), deploy.Unavailable, notifytest.At.Add(time.Hour), "429"},
		"no time at all":       {429, "soon", deploy.Unavailable, time.Time{}, "429"},
		"redirected":           {302, "", deploy.Denied, time.Time{}, "redirects are not followed"},
		"not let in":           {403, "", deploy.Denied, time.Time{}, "are not accepted"},
		"not there":            {404, "", deploy.Denied, time.Time{}, "there is no webhook"},
		"gone for good":        {410, "", deploy.Invalid, time.Time{}, "remove the receiver"},
		"larger than it takes": {413, "", deploy.Invalid, time.Time{}, "limit on the size"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := post(t, "s3cret", notifytest.Notice(deploy.EventSucceeded), func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.after)
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, "s3cret and more")
			})
			if c.says == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || deploy.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error %v of kind %s, want %s and %q", err, deploy.KindOf(err), c.kind, c.says)
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is shown: %v", err)
			}
			var later interface{ RetryAt() time.Time }
			if errors.As(err, &later) != !c.at.IsZero() || later != nil && !later.RetryAt().Equal(c.at) {
				t.Errorf("retry at %v, want %s", later, c.at)
			}
		})
	}
}

func TestNoAnswer(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	s := New(Config{URL: server.URL + "/hunter2", SignatureKey: "X", Now: time.Now})
	err := s.Deliver(t.Context(), notifytest.Notice(deploy.EventSucceeded))
	if !deploy.IsKind(err, deploy.Unavailable) || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v of kind %s", err, deploy.KindOf(err))
	}
}
