package apply

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/c785c783/piped/piped/deploy"
)

// TestManyChangesAtOnce: the results that are available within the time limit are
// reported. The remaining objects are compared later and do not delay the result.
func TestManyChangesAtOnce(t *testing.T) {
	l := newEnv(t)
	l.apply(t, shop)
	l.dryRuns.limit = rate.NewLimiter(rate.Every(time.Hour), 1)
	l.as("kubectl-edit").patch(t, "v1", "ConfigMap", "settings", `{"data":{"color":"red"}}`)
	l.as("kubectl-edit").patch(t, "apps/v1", "Deployment", "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"web:2"}]`)
	results := l.compare(t, shop) // with a time limit of one minute
	drifts, later := 0, 0
	for _, c := range results {
		switch {
		case c.Drift != nil && c.Drift.Kind == deploy.DriftChanged:
			drifts++
		case strings.Contains(c.Problem, "is compared later"):
			later++
		}
	}
	if drifts != 1 || later != 1 {
		t.Errorf("%d objects differ and %d are to be compared later, want one of each: %+v", drifts, later, results)
	}
}
