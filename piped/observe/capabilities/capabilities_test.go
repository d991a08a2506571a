package capabilities

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store/storetest"
)

// fixed are clusters with the given capabilities; the others do not answer.
type fixed map[string]deploy.Capabilities

// Names implements Clusters.
func (f fixed) Names() []string { return []string{"a", "b"} }

// Capabilities implements Clusters.
func (f fixed) Capabilities(_ context.Context, provider string) (deploy.Capabilities, error) {
	c, ok := f[provider]
	if !ok {
		return c, errors.New("no answer")
	}
	return c, nil
}

// TestReader: capabilities are stored, retried after a failure and refreshed after a
// success.
func TestReader(t *testing.T) {
	t.Parallel()
	st, now := storetest.New(t, nil), time.Now()
	clusters := fixed{"a": {KubeVersion: "1.30.0", APIVersions: []string{"v1"}}}
	read := func(want map[string]string) {
		t.Helper()
		r, err := New(t.Context(), st, clusters, slog.New(slog.DiscardHandler), func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		r.readDue(t.Context())
		if diff := cmp.Diff(want, r.Versions()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		for _, provider := range clusters.Names() {
			after := retryAfter
			if _, answers := clusters[provider]; answers {
				after = refreshAfter
			}
			if due := r.due[provider]; !due.Equal(now.Add(after)) {
				t.Errorf("the next request to %s is due after %s, want %s", provider, due.Sub(now), after)
			}
		}
	}
	read(map[string]string{"a": "1.30.0"})
	delete(clusters, "a")
	clusters["b"] = deploy.Capabilities{KubeVersion: "1.31.0"}
	read(map[string]string{"a": "1.30.0", "b": "1.31.0"})
}
