package store

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Claim is a request for the exclusive right to write objects.
type Claim struct {
	ApplicationID string
	Cluster       string // identity of the cluster, equal for all its platform providers
	Provider      string // the platform provider
	DeploymentID  string
	TakeOver      bool // also claim objects of other applications
}

// TakenObject is an object that another application has claimed.
type TakenObject struct {
	Object        deploy.ObjectRef
	ApplicationID string
}

// ClaimObjects gives an application the exclusive right to write objects, regardless of their
// API version. If other applications have claimed some of them, it claims none and returns
// these, sorted. A claim is valid while its application is not deleted and either has the
// object in its inventory or runs the deployment that made the claim. DeleteInventory ends it.
// NotFound if the application does not exist.
//
// If the identity of a provider's cluster changes, because it was unknown before or the
// provider refers to another cluster now, all claims of the provider move to the new identity.
func (s *Store) ClaimObjects(ctx context.Context, c Claim, refs ...deploy.ObjectRef) ([]TakenObject, error) {
	missing, err := s.unclaimed(ctx, c, refs)
	if err != nil || len(missing) == 0 {
		return nil, s.fail(err, "read the claims of application "+c.ApplicationID)
	}
	var taken []TakenObject
	claim := func(t *tx) (err error) {
		if err = t.moveClaims(ctx, c); err != nil {
			return err
		}
		if taken, err = t.claim(ctx, c, missing); err == nil && len(taken) > 0 {
			err = errTaken
		}
		return err
	}
	if err = s.write(ctx, claim); s.dialect.unique(err) {
		err = s.write(ctx, claim) // another provider's claims were moved to the cluster concurrently
	}
	switch {
	case errors.Is(err, errTaken):
		return taken, nil
	case s.dialect.foreign(err):
		return nil, deploy.Errorf(deploy.NotFound, "claim objects for application %s, which does not exist: %w", c.ApplicationID, err)
	}
	return nil, s.fail(err, "claim objects for application "+c.ApplicationID)
}

// errTaken rolls the transaction back.
var errTaken = errors.New("objects are claimed by other applications")

// unclaimed returns, sorted, those of the objects that the application has not both claimed
// and applied.
func (s *Store) unclaimed(ctx context.Context, c Claim, refs []deploy.ObjectRef) ([]deploy.ObjectRef, error) {
	known, err := all(ctx, s, scanRef, `SELECT c.api_group, c.kind, c.namespace, c.name FROM claims c JOIN inventory i ON i.application_id = c.application_id
		AND i.cluster = c.provider AND i.api_group = c.api_group AND i.kind = c.kind AND i.namespace = c.namespace AND i.name = c.name
		WHERE c.application_id = ? AND c.provider = ? AND c.cluster = ?`, c.ApplicationID, c.Provider, c.Cluster)
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, ref := range known {
		have[ref.Key()] = true
	}
	var out []deploy.ObjectRef
	for _, ref := range refs {
		if !have[ref.Key()] {
			have[ref.Key()] = true
			out = append(out, ref)
		}
	}
	slices.SortFunc(out, func(a, b deploy.ObjectRef) int { return cmp.Compare(a.Key(), b.Key()) }) // avoids deadlocks
	return out, nil
}

func scanRef(row scanner) (o deploy.ObjectRef, err error) {
	return o, row.Scan(&o.Group, &o.Kind, &o.Namespace, &o.Name)
}

// moveClaims moves all claims of a provider to the identity of its cluster. If another
// provider's application has claimed an object there, the existing claim remains and the moved
// one is deleted.
func (t *tx) moveClaims(ctx context.Context, c Claim) error {
	if _, err := t.exec(ctx, `DELETE FROM claims WHERE provider = ? AND cluster <> ? AND EXISTS (SELECT 1 FROM claims o WHERE o.cluster = ?
		AND o.api_group = claims.api_group AND o.kind = claims.kind AND o.namespace = claims.namespace AND o.name = claims.name)`,
		c.Provider, c.Cluster, c.Cluster); err != nil {
		return err
	}
	_, err := t.exec(ctx, "UPDATE claims SET cluster = ? WHERE provider = ? AND cluster <> ?", c.Cluster, c.Provider, c.Cluster)
	return err
}

// claim writes the claims and returns the objects that other applications have claimed.
func (t *tx) claim(ctx context.Context, c Claim, refs []deploy.ObjectRef) (taken []TakenObject, err error) {
	for _, o := range refs {
		key := []any{c.Cluster, o.Group, o.Kind, o.Namespace, o.Name}
		n, err := t.exec(ctx, `INSERT INTO claims (cluster, api_group, kind, namespace, name, provider, application_id, deployment_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (cluster, api_group, kind, namespace, name)
			DO UPDATE SET provider = excluded.provider, application_id = excluded.application_id, deployment_id = excluded.deployment_id
			WHERE claims.application_id = excluded.application_id OR ? = TRUE OR NOT (
				EXISTS (SELECT 1 FROM applications a WHERE a.id = claims.application_id AND a.deleted = FALSE) AND (
				EXISTS (SELECT 1 FROM deployments d WHERE d.id = claims.deployment_id AND d.status IN ('RUNNING', 'ROLLING_BACK')) OR
				EXISTS (SELECT 1 FROM inventory i WHERE i.application_id = claims.application_id AND i.cluster = claims.provider AND i.api_group = claims.api_group
					AND i.kind = claims.kind AND i.namespace = claims.namespace AND i.name = claims.name)))`,
			append(slices.Clone(key), c.Provider, c.ApplicationID, c.DeploymentID, c.TakeOver)...)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			continue
		}
		owner, _, err := one(ctx, t, scanText, "SELECT application_id FROM claims WHERE cluster = ? AND api_group = ? AND kind = ? AND namespace = ? AND name = ?", key...)
		if err != nil {
			return nil, err
		}
		taken = append(taken, TakenObject{o, owner})
	}
	return taken, nil
}

// release ends the claim of an application to an object of a provider's cluster.
func (t *tx) release(ctx context.Context, appID, provider string, o deploy.ObjectRef) error {
	_, err := t.exec(ctx, "DELETE FROM claims WHERE application_id = ? AND provider = ? AND api_group = ? AND kind = ? AND namespace = ? AND name = ?",
		appID, provider, o.Group, o.Kind, o.Namespace, o.Name)
	return err
}
