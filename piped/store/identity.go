package store

import (
	"context"

	"github.com/google/uuid"
)

// identityTable contains the store's identity. Restore does not restore it.
const identityTable = "store_identity"

// Identity returns the random ID of the store, created when it was first opened. All
// agents of the store share it. A store that was restored from a backup gets a new one.
func (s *Store) Identity(ctx context.Context) (string, error) {
	const query = "SELECT id FROM store_identity"
	id, ok, err := one(ctx, s, scanText, query)
	if err != nil || ok {
		return id, s.fail(err, "read the identity of the store")
	}
	err = s.write(ctx, func(t *tx) error {
		if _, err := t.exec(ctx, "INSERT INTO store_identity (position, id) VALUES (1, ?) ON CONFLICT (position) DO NOTHING", uuid.NewString()); err != nil {
			return err
		}
		id, _, err = one(ctx, t, scanText, query)
		return err
	})
	return id, s.fail(err, "store the identity of the store")
}
