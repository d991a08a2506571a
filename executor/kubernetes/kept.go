package kubernetes

import (
	"encoding/json"
	"fmt"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
)

// Kept is what a deployment's applied set tells about what it applied.
type Kept struct {
	Objects  []deploy.ObjectRef
	Checks   []config.HealthCheck // spec.healthChecks
	Redactor *secret.Redactor     // takes the secrets in the objects out of messages about them
}

// ReadKept reads an applied set.
func ReadKept(set deploy.AppliedSet) (Kept, error) {
	var stored storedSet
	if err := json.Unmarshal(set.Objects, &stored); err != nil {
		return Kept{}, fmt.Errorf("decode the applied set of commit %s: %w", deploy.ShortHash(set.Commit), err)
	}
	kept := Kept{Checks: stored.Spec.HealthChecks, Redactor: secret.NewRedactor(stored.Secrets)}
	for _, u := range stored.Objects {
		kept.Objects = append(kept.Objects, manifest.Ref(u))
	}
	return kept, nil
}
