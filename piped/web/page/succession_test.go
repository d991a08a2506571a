package page

import (
	"strings"
	"testing"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestSuccessionIsLinked: a deployment leads to the one that superseded it, to the one that it
// repeats, and to its chain, and to none without them.
func TestSuccessionIsLinked(t *testing.T) {
	text := func(d *modelv1.Deployment) string {
		v := &visit{Handler: calm(t).page(), r: request("GET", "/deployments/d1", ""), ctx: signedIn(t), now: noon, allowed: map[string]bool{}}
		body, err := html(t.Context(), deploymentSummary(v, &deploymentView{d: d}))
		if err != nil {
			t.Fatal(err)
		}
		return body
	}
	d := &modelv1.Deployment{Id: "d1", ApplicationId: "web-id", ApplicationName: "web", Status: modelv1.DeploymentStatus_DEPLOYMENT_CANCELLED, CreatedAtMs: minutesAgo(8)}
	if body := text(d); strings.Contains(body, "superseded") || strings.Contains(body, "repeats") || strings.Contains(body, "chain") {
		t.Error(body)
	}
	d.SupersededBy, d.RetryOf, d.DeploymentChainId = "d2", "d0", "c1"
	body := text(d)
	for _, want := range []string{`<a href="/deployments/d2">superseded by a newer deployment</a>`, `<a href="/deployments/d0">repeats an earlier one</a>`, `<a href="/chains/c1">its deployment chain</a>`} {
		if !strings.Contains(body, want) {
			t.Errorf("the summary lacks %q: %s", want, body)
		}
	}
}
