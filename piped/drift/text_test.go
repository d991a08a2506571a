package drift

import (
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// TestFieldText: the text of a field, without the values of secrets.
func TestFieldText(t *testing.T) {
	for want, f := range map[string]deploy.FieldDrift{
		`spec.replicas: 2 in Git, 5 live, by kubectl`:               {Path: "spec.replicas", Git: "2", Live: "5", Manager: "kubectl"},
		`spec.paused: nothing in Git, true live`:                    {Path: "spec.paused", Live: "true"},
		`data.key: another value than in Git (secret), by somebody`: {Path: "data.key", Git: `"***"`, Live: `"***"`, Masked: true, Manager: "somebody"},
		`data.key: a secret in Git, nothing live`:                   {Path: "data.key", Git: `"***"`, Masked: true},
	} {
		if got := fieldText(f); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
}
