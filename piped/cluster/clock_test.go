package cluster

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestSkewOfTheCluster: the skew is computed from the API server's time, which has whole
// seconds, whatever the agent's clock shows.
func TestSkewOfTheCluster(t *testing.T) {
	for name, c := range map[string]struct {
		ahead     time.Duration // the cluster's clock
		low, high time.Duration
	}{
		"the same clock":          {0, 0, 0},
		"less than a second off":  {300 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond},
		"the cluster is ahead":    {5 * time.Minute, 5*time.Minute - 500*time.Millisecond, 5*time.Minute + 500*time.Millisecond},
		"the cluster is behind":   {-5 * time.Minute, -5*time.Minute - 500*time.Millisecond, -5*time.Minute + 500*time.Millisecond},
		"the cluster's clock set": {time.Hour, time.Hour - 500*time.Millisecond, time.Hour + 500*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			ahead := c.ahead
			if name == "the cluster's clock set" {
				ahead = 0
			}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", now.Add(ahead).UTC().Format(http.TimeFormat))
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"major":"1","minor":"36","gitVersion":"v1.36.3"}`))
			}))
			defer server.Close()
			cluster, err := NewCluster(ClusterConfig{Name: "test", MasterURL: server.URL, Now: func() time.Time { return now }})
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			for range 10 {
				now = now.Add(70 * time.Millisecond)
				_, _ = cluster.Capabilities(t.Context())
			}
			ahead = c.ahead
			for range 20 {
				now = now.Add(170 * time.Millisecond)
				_, _ = cluster.Capabilities(t.Context())
			}
			if got := cluster.Skew(); got < c.low || got > c.high {
				t.Errorf("skew %s, want %s to %s", got, c.low, c.high)
			}
		})
	}
}
