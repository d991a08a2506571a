package bigquery

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is one response of the fake.
type answer struct {
	status int
	body   string
	header http.Header
}

// fake is an HTTP server that issues tokens for a service account key and answers
// inserts with its answers, the last one repeatedly.
type fake struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu      sync.Mutex
	tokens  int
	refuse  int // status of token requests; 0: success
	answers []answer
	paths   []string
	bodies  []map[string]any
}

func newFake(t *testing.T, answers ...answer) *fake {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{key: key, answers: answers}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", f.token)
	mux.HandleFunc("/", f.insert)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) token(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens++
	if f.refuse != 0 {
		http.Error(w, `{"error": "invalid_grant"}`, f.refuse)
		return
	}
	if r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" || strings.Count(r.FormValue("assertion"), ".") != 2 {
		http.Error(w, "no assertion", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"access_token": "let-me-in", "token_type": "Bearer", "expires_in": 3600}`)
}

func (f *fake) insert(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer let-me-in" {
		http.Error(w, "who are you", http.StatusUnauthorized)
		return
	}
	var body map[string]any
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	f.paths, f.bodies = append(f.paths, r.Method+" "+r.URL.Path), append(f.bodies, body)
	a := f.answers[0]
	if len(f.answers) > 1 {
		f.answers = f.answers[1:]
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// credentials returns the key file of a service account that the fake accepts.
func (f *fake) credentials(t *testing.T) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(f.key)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "piped@project.example", "private_key_id": "1", "token_uri": f.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (f *fake) receiver(t *testing.T) *Receiver {
	t.Helper()
	return New(Config{
		Project: "shop", Dataset: "delivery", Table: "rollouts", Endpoint: f.URL, Credentials: f.credentials(t),
		Now: func() time.Time { return time.Unix(1000, 0) },
	})
}

func notice(r deploy.Rollout) notify.Notice {
	end := r.Ended()
	return notify.Notice{
		Event: deploy.Event{Key: r.ID, Type: deploy.EventRolloutEnded}, Key: r.ID, Details: deploy.EventPayload{Rollout: &end},
	}
}

func example() deploy.Rollout {
	at := time.Date(2026, time.March, 1, 12, 0, 0, int(5*time.Millisecond), time.UTC)
	return deploy.Rollout{
		ID: "d/s/c/apps/Deployment/shop/web", Kind: deploy.RolloutKindRollout, ApplicationID: "a", ApplicationName: "web", DeploymentID: "d", StageID: "s",
		Commit: "c0ffee", Cluster: "c", Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		UID: "u", Revision: 7, TargetName: "web-7d9f", Images: "web:2 log:1", Phase: deploy.RolloutComplete, Reason: "3 of 3",
		StartedAt: at, CompletedAt: at.Add(1500 * time.Millisecond), UpdatedAt: at.Add(1520 * time.Millisecond),
		Parts:          deploy.RolloutParts{Schedule: deploy.Took{Measured: true}, Pull: deploy.Took{Measured: true, Time: time.Second}},
		ReplicasBefore: 2, ReplicasAfter: 3,
	}
}

// TestRow: a row has every column, and the record's ID as insert ID.
func TestRow(t *testing.T) {
	f := newFake(t, answer{status: 200, body: `{"kind": "bigquery#tableDataInsertAllResponse"}`})
	r := f.receiver(t)
	for range 2 { // the second reuses the token
		if err := r.Deliver(t.Context(), notice(example())); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/row.json")
	if err != nil {
		t.Fatal(err)
	}
	var wanted map[string]any
	if err := json.Unmarshal(want, &wanted); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wanted, f.bodies[0]); diff != "" {
		t.Errorf("what is inserted (-want +got):\n%s", diff)
	}
	if path := "POST /bigquery/v2/projects/shop/datasets/delivery/tables/rollouts/insertAll"; f.paths[0] != path || f.tokens != 1 {
		t.Errorf("%s with %d tokens, want %s with one", f.paths[0], f.tokens, path)
	}
	long := example()
	long.ID = strings.Repeat("long-", 40)
	if err := r.Deliver(t.Context(), notice(long)); err != nil {
		t.Fatal(err)
	}
	rows, _ := f.bodies[2]["rows"].([]any)
	row, _ := rows[0].(map[string]any)
	if id, _ := row["insertId"].(string); len(id) != 64 {
		t.Errorf("the insert ID of a long record's is %q", id)
	}
}

// TestRefusals: BigQuery's response decides whether and when to retry.
func TestRefusals(t *testing.T) {
	tooMuch := `{"error": {"code": 403, "message": "Exceeded rate limits", "errors": [{"reason": "rateLimitExceeded"}]}}`
	for name, c := range map[string]struct {
		answer answer
		kind   deploy.Kind
		says   string
		after  time.Duration // from now; 0: no time given
	}{
		"a row that does not fit":      {answer{status: 200, body: `{"insertErrors": [{"index": 0, "errors": [{"reason": "invalid", "location": "pull_ms", "message": "no such field"}]}]}`}, deploy.Denied, "pull_ms: no such field", 0},
		"a row that was stopped":       {answer{status: 200, body: `{"insertErrors": [{"index": 0, "errors": [{"reason": "stopped"}]}]}`}, deploy.Unavailable, "stopped", 0},
		"an error without a reason":    {answer{status: 200, body: `{"insertErrors": [{"index": 0}]}`}, deploy.Unavailable, "no reason", 0},
		"no table":                     {answer{status: 404, body: `{"error": {"message": "Not found: Table"}}`}, deploy.Denied, "shop.delivery.rollouts", 0},
		"no right":                     {answer{status: 403, body: `{"error": {"message": "Permission denied", "errors": [{"reason": "accessDenied"}]}}`}, deploy.Denied, "Permission denied", 0},
		"too much":                     {answer{status: 403, body: tooMuch}, deploy.Unavailable, "Exceeded rate limits", 0},
		"too much, and when to return": {answer{status: 429, body: tooMuch, header: http.Header{"Retry-After": {"17"}}}, deploy.Unavailable, "429", 17 * time.Second},
		"a fault of theirs":            {answer{status: 503, body: "upstream"}, deploy.Unavailable, "Service Unavailable", 0},
		"another server":               {answer{status: 200, body: "<html>"}, deploy.Unavailable, "endpoint", 0},
		"a redirect":                   {answer{status: 307, header: http.Header{"Location": {"/elsewhere"}}}, deploy.Denied, "307", 0},
		"too large":                    {answer{status: 413}, deploy.Invalid, "large", 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, c.answer)
			err := f.receiver(t).Deliver(t.Context(), notice(example()))
			if !deploy.IsKind(err, c.kind) || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Fatalf("error %v, want one of kind %v that says %q", err, c.kind, c.says)
			}
			if strings.Contains(err.Error(), "let-me-in") || strings.Contains(err.Error(), f.URL) {
				t.Errorf("the error reveals too much: %v", err)
			}
			var later interface{ RetryAt() time.Time }
			if found := errors.As(err, &later); found != (c.after > 0) || found && !later.RetryAt().Equal(time.Unix(1000, 0).Add(c.after)) {
				t.Errorf("error %v says when to try again: %t", err, found)
			}
			if len(f.bodies) != 1 {
				t.Errorf("asked %d times", len(f.bodies))
			}
		})
	}
}

// TestRecovery: after failures the same row is inserted under the same insert ID.
func TestRecovery(t *testing.T) {
	f := newFake(t, answer{status: 500}, answer{status: 200, body: `{"insertErrors": [{"errors": [{"reason": "timeout"}]}]}`}, answer{status: 200, body: "{}"})
	r := f.receiver(t)
	failures := 0
	for range 3 {
		if err := r.Deliver(t.Context(), notice(example())); err != nil {
			failures++
		}
	}
	if failures != 2 {
		t.Errorf("%d failures, want 2", failures)
	}
	if diff := cmp.Diff(f.bodies[0], f.bodies[2]); diff != "" {
		t.Errorf("the last attempt differs from the first:\n%s", diff)
	}
}

// TestCredentials: without a token nothing is sent, and the error does not contain the
// credentials.
func TestCredentials(t *testing.T) {
	f := newFake(t, answer{status: 200, body: "{}"})
	for name, c := range map[string]struct {
		text   string
		refuse int
		kind   deploy.Kind
	}{
		"no JSON":                 {"swordfish", 0, deploy.Denied},
		"another type":            {`{"type": "swordfish"}`, 0, deploy.Denied},
		"an account that is gone": {f.credentials(t), 400, deploy.Denied},
		"Google is not well":      {f.credentials(t), 503, deploy.Unavailable},
	} {
		f.refuse = c.refuse
		r := New(Config{Project: "p", Dataset: "d", Table: "t", Endpoint: f.URL, Credentials: c.text})
		err := r.Deliver(t.Context(), notice(example()))
		if !deploy.IsKind(err, c.kind) || strings.Contains(fmt.Sprint(err), "swordfish") {
			t.Errorf("%s: %v, want an error of kind %v that does not show them", name, err, c.kind)
		}
	}
	if len(f.bodies) != 0 {
		t.Errorf("%d rows without a token", len(f.bodies))
	}
	f.Close()
	err := New(Config{Project: "p", Dataset: "d", Table: "t", Endpoint: f.URL, Credentials: f.credentials(t)}).Deliver(t.Context(), notice(example()))
	if !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("no server: %v", err)
	}
}

// TestWants: the receiver wants ended rollouts and scalings only, in no order.
func TestWants(t *testing.T) {
	r := New(Config{Project: "p", Dataset: "d", Table: "t"})
	end := deploy.RolloutEnd{ID: "x"}
	for _, kind := range deploy.EventTypes() {
		n := notify.Notice{Event: deploy.Event{Type: kind}, Details: deploy.EventPayload{Rollout: &end}}
		if want := kind == deploy.EventRolloutEnded || kind == deploy.EventScalingEnded; r.Wants(context.Background(), n) != want {
			t.Errorf("%s: wanted %t", kind, !want)
		}
		if r.Wants(context.Background(), notify.Notice{Event: n.Event}) || r.Order(n) != "" {
			t.Errorf("%s without a record, or in order %q", kind, r.Order(n))
		}
	}
	if r.Name() != "bigquery/p.d.t" || !strings.HasPrefix(r.url, DefaultEndpoint+"/") {
		t.Errorf("name %s, URL %s", r.Name(), r.url)
	}
}
