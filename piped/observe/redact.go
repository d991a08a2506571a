package observe

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Redact returns a text with the application's secrets redacted. With a nil Redact, texts are
// stored unchanged.
type Redact func(ctx context.Context, app deploy.Application, text string) (string, error)

// save redacts the texts of a rollout's record, stores it, and returns the stored record.
func (r Redact) save(ctx context.Context, st *store.Store, rec deploy.Rollout) (deploy.Rollout, error) {
	if r == nil || rec.ApplicationID == "" || rec.Images == "" && rec.ImagesBefore == "" && rec.Reason == "" {
		return st.SaveRollout(ctx, rec)
	}
	app, err := st.Application(ctx, rec.ApplicationID)
	if deploy.IsKind(err, deploy.NotFound) {
		return st.SaveRollout(ctx, rec) // the application was removed; its secrets are unknown
	}
	for _, text := range []*string{&rec.Images, &rec.ImagesBefore, &rec.Reason} {
		if err == nil {
			*text, err = r(ctx, app, *text)
		}
	}
	if err != nil {
		return rec, fmt.Errorf("take the secrets of application %s out of the record of a rollout of %s: %w", rec.ApplicationName, rec.Workload, err)
	}
	return st.SaveRollout(ctx, rec)
}
