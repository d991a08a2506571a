package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// DegradedApplications returns the IDs of the applications that were last reported as
// degraded, sorted.
func (s *Store) DegradedApplications(ctx context.Context) ([]string, error) {
	ids, err := all(ctx, s, scanText, "SELECT application_id FROM degraded_applications ORDER BY application_id")
	return ids, s.fail(err, "list the degraded applications")
}

// Degradations returns the applications that were last reported as degraded, sorted by ID.
func (s *Store) Degradations(ctx context.Context) ([]deploy.Degradation, error) {
	list, err := all(ctx, s, scanDegradation, "SELECT application_id, reason, told_at FROM degraded_applications ORDER BY application_id")
	return list, s.fail(err, "read the degraded applications")
}

func scanDegradation(row scanner) (d deploy.Degradation, err error) {
	var since int64
	err = row.Scan(&d.ApplicationID, &d.Reason, &since)
	d.Since = fromMilli(since)
	return d, err
}

// SetDegraded stores whether an application is degraded and why, and publishes e in the same
// transaction. It does nothing if degraded is unchanged. changed reports whether anything was
// stored. Conflict while the application has an active deployment.
func (s *Store) SetDegraded(ctx context.Context, appID string, degraded bool, reason string, e deploy.Event) (changed bool, err error) {
	err = s.write(ctx, func(t *tx) error {
		changed = false
		app, err := t.lockApplication(ctx, appID)
		if err != nil {
			return err
		}
		if app.Deploying {
			return deploy.Errorf(deploy.Conflict, "a deployment of application %s is under way", app.Name)
		}
		var n int64
		if degraded {
			n, err = t.exec(ctx, "INSERT INTO degraded_applications (application_id, reason, told_at) VALUES (?, ?, ?) ON CONFLICT (application_id) DO NOTHING",
				appID, reason, toMilli(e.At))
		} else {
			n, err = t.exec(ctx, "DELETE FROM degraded_applications WHERE application_id = ?", appID)
		}
		if err != nil || n == 0 {
			return err
		}
		changed = true
		t.events = append(t.events, e)
		return nil
	})
	return changed && err == nil, s.fail(err, "store the health of application "+appID)
}

// InventoryKinds returns, sorted, those of the kinds (of API group apps) of which applications
// have applied objects to a cluster.
func (s *Store) InventoryKinds(ctx context.Context, cluster string, kinds ...string) ([]string, error) {
	args := append([]any{cluster}, anys(kinds)...)
	found, err := all(ctx, s, scanText, "SELECT DISTINCT kind FROM inventory WHERE cluster = ? AND api_group = 'apps' AND kind IN ("+
		placeholders(len(kinds))+") ORDER BY kind", args...)
	return found, s.fail(err, "list the kinds of what was applied to "+cluster)
}
