package watch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestAnOutageIsLoggedOnce: each outage of the cluster is one line in the log, not one for
// each kind and one for the Lease.
func TestAnOutageIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
	}))
	defer server.Close()
	way := &clustertest.Link{Down: true}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: "test", MasterURL: server.URL, Now: func() time.Time { now = now.Add(time.Second); return now },
		WrapTransport: way.Wrap,
		Logger:        slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	controller := New(c)
	fail := func() {
		_, err := c.Capabilities(t.Context())
		for _, kind := range []string{"pods", "deployments", "configmaps"} {
			w := &Watch{controller: controller}
			w.resource.Resource = kind
			w.logFailure(t.Context(), nil, fmt.Errorf("%s: %w", kind, err))
		}
		renewing, stop := context.WithCancel(t.Context())
		lease := cluster.NewStoreLease(cluster.StoreLeaseConfig{Cluster: c, PipedID: "test", StoreID: "store", Logger: c.Logger(), Now: time.Now, RetryEvery: time.Hour})
		ended := make(chan struct{})
		go func() { defer close(ended); lease.Run(renewing) }()
		_ = lease.Problem(renewing) // after the first attempt
		stop()
		<-ended
	}
	fail()
	fail()
	if got := strings.Count(log.String(), "level=WARN"); got != 1 {
		t.Errorf("%d lines about the first outage, want 1:\n%s", got, &log)
	}
	way.Set(func() { way.Down = false })
	if _, err := c.Capabilities(t.Context()); err != nil {
		t.Logf("it answers: %v", err)
	}
	way.Set(func() { way.Down = true })
	fail()
	if got := strings.Count(log.String(), "level=WARN"); got != 2 {
		t.Errorf("%d lines about two outages, want 2:\n%s", got, &log)
	}
}
