package store

import (
	"context"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// PutInventory stores the objects that applications applied, replacing entries of the
// same objects. UpdatedAt is the time of the write. NotFound if an application does not
// exist.
func (s *Store) PutInventory(ctx context.Context, items ...deploy.InventoryItem) error {
	if len(items) == 0 {
		return nil
	}
	now := toMilli(s.now())
	// A statement must not contain an object twice: the last entry counts.
	at := map[[3]string]int{}
	var rows [][]any
	for _, it := range items {
		o := it.Object
		row := []any{it.ApplicationID, it.Cluster, o.Group, o.Kind, o.Namespace, o.Name, o.Version, it.Variant, it.UID,
			it.DesiredDigest, it.OwnedHash, it.Mark, it.ValuesDigest, it.ConfigHash, it.DeploymentID, it.CreatedBy, now}
		key := [3]string{it.ApplicationID, it.Cluster, o.Key()}
		if i, dup := at[key]; dup {
			rows[i] = row
			continue
		}
		at[key] = len(rows)
		rows = append(rows, row)
	}
	err := s.write(ctx, func(t *tx) error {
		return t.insert(ctx, "inventory", inventoryColumns, `ON CONFLICT (application_id, cluster, api_group, kind, namespace, name) DO UPDATE SET
			version = excluded.version, variant = excluded.variant, uid = excluded.uid, desired_digest = excluded.desired_digest,
			owned_hash = excluded.owned_hash, mark = excluded.mark, values_digest = excluded.values_digest, config_hash = excluded.config_hash, deployment_id = excluded.deployment_id, created_by = excluded.created_by, updated_at = excluded.updated_at`, rows)
	})
	if s.dialect.foreign(err) {
		return deploy.Errorf(deploy.NotFound, "the inventory is of an application that does not exist: %w", err)
	}
	return s.fail(err, "store the inventory")
}

const inventoryColumns = `application_id, cluster, api_group, kind, namespace, name, version, variant, uid,
	desired_digest, owned_hash, mark, values_digest, config_hash, deployment_id, created_by, updated_at`

// marksBatch is how many marks are written in one transaction.
const marksBatch = 200

// LearnMarks stores Mark and ValuesDigest of items whose objects were found unchanged in a
// newer version than the recorded one. It ignores items that were applied again or deleted
// after they were read. It publishes nothing.
func (s *Store) LearnMarks(ctx context.Context, items ...deploy.InventoryItem) error {
	for batch := range slices.Chunk(items, marksBatch) {
		err := s.write(ctx, func(t *tx) error {
			for _, it := range batch {
				if err := t.learnMark(ctx, it); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return s.fail(err, "store the marks of applied objects")
		}
	}
	return nil
}

func (t *tx) learnMark(ctx context.Context, it deploy.InventoryItem) error {
	o := it.Object
	_, err := t.exec(ctx, `UPDATE inventory SET mark = ?, values_digest = ?
		WHERE application_id = ? AND cluster = ? AND api_group = ? AND kind = ? AND namespace = ? AND name = ?
		AND uid = ? AND owned_hash = ? AND desired_digest = ? AND deployment_id = ?`,
		it.Mark, it.ValuesDigest, it.ApplicationID, it.Cluster, o.Group, o.Kind, o.Namespace, o.Name,
		it.UID, it.OwnedHash, it.DesiredDigest, it.DeploymentID)
	return err
}

// DeleteInventory deletes inventory entries of an application in a cluster, regardless of
// their API version, and the claims to these objects. Unknown objects are ignored.
func (s *Store) DeleteInventory(ctx context.Context, appID, cluster string, refs ...deploy.ObjectRef) error {
	if len(refs) == 0 {
		return nil
	}
	err := s.write(ctx, func(t *tx) error {
		for _, o := range refs {
			if err := t.deleteInventory(ctx, appID, cluster, o); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(err, "delete inventory of application "+appID)
}

func (t *tx) deleteInventory(ctx context.Context, appID, cluster string, o deploy.ObjectRef) error {
	_, err := t.exec(ctx, "DELETE FROM inventory WHERE application_id = ? AND cluster = ? AND api_group = ? AND kind = ? AND namespace = ? AND name = ?",
		appID, cluster, o.Group, o.Kind, o.Namespace, o.Name)
	if err != nil {
		return err
	}
	if err := t.release(ctx, appID, cluster, o); err != nil {
		return err
	}
	return t.forgetPropagation(ctx, appID, cluster, o)
}

// Inventory returns the objects that an application applied, by cluster, kind and name.
func (s *Store) Inventory(ctx context.Context, appID string) ([]deploy.InventoryItem, error) {
	items, err := all(ctx, s, scanInventory, "SELECT "+inventoryColumns+` FROM inventory WHERE application_id = ?
		ORDER BY cluster, api_group, kind, namespace, name`, appID)
	return items, s.fail(err, "read the inventory of application "+appID)
}

func scanInventory(row scanner) (it deploy.InventoryItem, err error) {
	var at int64
	o := &it.Object
	err = row.Scan(&it.ApplicationID, &it.Cluster, &o.Group, &o.Kind, &o.Namespace, &o.Name, &o.Version, &it.Variant, &it.UID,
		&it.DesiredDigest, &it.OwnedHash, &it.Mark, &it.ValuesDigest, &it.ConfigHash, &it.DeploymentID, &it.CreatedBy, &at)
	it.UpdatedAt = fromMilli(at)
	return it, err
}

// InventoryOwner returns the IDs of the applications, without deleted ones, whose inventory
// contains the object, regardless of its API version.
func (s *Store) InventoryOwner(ctx context.Context, cluster string, ref deploy.ObjectRef) ([]string, error) {
	ids, err := all(ctx, s, scanText, `SELECT a.id FROM inventory i JOIN applications a ON a.id = i.application_id AND a.deleted = FALSE
		WHERE i.cluster = ? AND i.api_group = ? AND i.kind = ? AND i.namespace = ? AND i.name = ? ORDER BY a.id`,
		cluster, ref.Group, ref.Kind, ref.Namespace, ref.Name)
	return ids, s.fail(err, "find the owner of "+ref.String())
}
