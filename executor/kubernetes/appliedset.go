package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
)

// storedSet is the stored form of a set (deploy.AppliedSet.Objects).
type storedSet struct {
	Spec    setSpec                      `json:"spec"`
	Objects []*unstructured.Unstructured `json:"objects"`
	// Secrets were decrypted for the objects. A rollback redacts them, too.
	Secrets map[string]string `json:"secrets,omitempty"`

	commit string
}

// decodeSet decodes the set that storeSet stored.
func decodeSet(set deploy.AppliedSet) (storedSet, error) {
	stored := storedSet{commit: set.Commit}
	if err := json.Unmarshal(set.Objects, &stored); err != nil {
		return storedSet{}, fmt.Errorf("decode the applied set of commit %s: %w", deploy.ShortHash(set.Commit), err)
	}
	return stored, nil
}

// objects returns the objects of the set. Their Origin names the commit, because the set
// does not contain their file names.
func (s storedSet) objects() (out []manifest.Object) {
	for _, u := range s.Objects {
		out = append(out, manifest.Object{Unstructured: u, Origin: manifest.Origin{File: "commit " + deploy.ShortHash(s.commit)}})
	}
	return out
}

// storeSet stores the set as the deployment's own. If the deployment succeeds, later
// ones roll back to it.
func storeSet(ctx context.Context, w *work) error {
	stored := storedSet{Spec: w.set.Spec, Secrets: w.hide.Secrets()}
	for _, o := range w.set.Objects {
		stored.Objects = append(stored.Objects, o.Unstructured)
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode the applied set: %w", err)
	}
	return w.Store.SaveAppliedSet(ctx, deploy.AppliedSet{
		ApplicationID: w.run.Application.ID, DeploymentID: w.run.Deployment.ID, Commit: w.set.Commit, Objects: data,
	})
}

// restoreSet loads the set of the last success. If the store cannot return it, for example
// because its encryption key was lost, the set is rendered from Git. The error is of kind
// Invalid if there is no earlier success.
func restoreSet(ctx context.Context, w *work) error {
	d := w.run.Deployment
	if d.RunningCommit == "" {
		return deploy.Errorf(deploy.Invalid, "there is no earlier success to roll back to")
	}
	applied, err := w.Store.AppliedSet(ctx, d.RunningDeploymentID)
	if err != nil {
		w.log.Infof("The applied set of commit %s cannot be used (%v); rendering it from Git instead", deploy.ShortHash(d.RunningCommit), err)
		return w.rerender(ctx)
	}
	stored, err := decodeSet(applied)
	if err != nil {
		return err
	}
	w.set = set{Commit: applied.Commit, Spec: stored.Spec, Objects: stored.objects()}
	w.hide = secret.NewRedactor(stored.Secrets)
	w.log = w.hide.Log(w.log)
	return nil
}

// Kept is the content of a stored applied set.
type Kept struct {
	Objects  []deploy.ObjectRef
	Checks   []config.HealthCheck // spec.healthChecks
	Redactor *secret.Redactor     // redacts the secrets in the objects from messages about them
}

// ReadKept decodes a stored applied set.
func ReadKept(set deploy.AppliedSet) (Kept, error) {
	stored, err := decodeSet(set)
	if err != nil {
		return Kept{}, err
	}
	return Kept{Objects: objectRefs(stored.objects()), Checks: stored.Spec.HealthChecks, Redactor: secret.NewRedactor(stored.Secrets)}, nil
}
