package cluster

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The state of a cluster follows from the result of the last request: a cancelled request
// gives no information, and a refused one is an answer.
func TestContactReportsHowTheLastRequestEnded(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
	}))
	defer server.Close()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c, err := NewCluster(ClusterConfig{Name: "test", MasterURL: server.URL, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(ctx context.Context) { _, _ = c.Capabilities(ctx) }
	check := func(when string, answered bool, says string, since time.Time) {
		t.Helper()
		got := c.Contact()
		text := ""
		if got.Err != nil {
			text = got.Err.Error()
		}
		if got.Answered != answered || (text == "") != (says == "") || !strings.Contains(text, says) || !got.FailingSince.Equal(since) {
			t.Errorf("%s: %+v, want answered %t, an error with %q, since %s", when, got, answered, says, since)
		}
	}
	check("before anything was asked", false, "", time.Time{})
	ask(t.Context())
	check("after an answer", true, "", time.Time{})
	code = http.StatusForbidden
	ask(t.Context())
	check("after a refusal", true, "", time.Time{})
	code = http.StatusUnauthorized
	ask(t.Context())
	check("once its credentials are not accepted", false, "renew those in its kubeconfig", now)
	gone, stop := context.WithCancel(t.Context())
	stop()
	since := now
	now = now.Add(time.Minute)
	ask(gone)
	check("after a request that was given up", false, "renew", since)
	server.Close()
	ask(t.Context())
	check("once it does not answer", false, "refused", since)
}
