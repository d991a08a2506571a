package kubernetes

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestPlans compares whole plans for the cases of TestDecisions.
func TestPlans(t *testing.T) {
	eachCase(t, "plan", func(t *testing.T, c decisionCase) string {
		plan, _, err := c.plan(t, func([]manifest.Object) {})
		if err != nil {
			t.Fatal(err)
		}
		checkLegal(t, plan)
		return describe(t, plan)
	})
}

// describe formats all fields of a plan but its summary.
func describe(t *testing.T, p deploy.Plan) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s, at most %s; rollback at most %s", p.Strategy, p.Timeout, p.RollbackTimeout)
	if p.NoAutoRollback {
		b.WriteString(", only when asked for")
	}
	b.WriteString("\n")
	if p.EnvironmentURL != "" {
		b.WriteString("seen at " + p.EnvironmentURL + "\n")
	}
	for _, v := range p.Versions {
		fmt.Fprintf(&b, "version %s %s %s %s\n", v.Kind, v.Name, v.Version, v.URL)
	}
	for _, s := range p.Stages {
		fmt.Fprintf(&b, "\n%d %s %s\n", s.Index, s.ID, s.Name)
		metadata := ""
		if s.Metadata != nil {
			text, err := json.Marshal(s.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			metadata = string(text)
		}
		timeout := ""
		if s.Timeout > 0 {
			timeout = s.Timeout.String()
		}
		for _, line := range []struct{ name, value string }{
			{"desc", s.Desc}, {"requires", strings.Join(s.Requires, " ")}, {"timeout", timeout},
			{"options", string(s.Options)}, {"skipOn", string(s.SkipOn)}, {"metadata", metadata},
			{"runs", map[bool]string{true: "on rollback"}[s.Rollback]}, {"shown", map[bool]string{true: "always"}[s.Visible]},
		} {
			if line.value != "" {
				fmt.Fprintf(&b, "  %s: %s\n", line.name, line.value)
			}
		}
	}
	return b.String()
}

// checkLegal fails unless the deployment accepts the plan.
func checkLegal(t *testing.T, p deploy.Plan) {
	t.Helper()
	before := deploy.Deployment{ID: "d", Status: deploy.Pending}
	after := before.Clone()
	if err := after.Plan(p, before.CreatedAt); err != nil {
		t.Fatal(err)
	}
	if err := after.CheckMove(&before); err != nil {
		t.Error(err)
	}
}
