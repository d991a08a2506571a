package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

const selectAPIKey = "SELECT id, name, subject, role, hash, disabled, created_at FROM api_keys"

func scanAPIKey(row scanner) (k deploy.APIKey, err error) {
	var at int64
	err = row.Scan(&k.ID, &k.Name, &k.Subject, &k.Role, &k.Hash, &k.Disabled, &at)
	k.CreatedAt = fromMilli(at)
	return k, err
}

// CreateAPIKey stores a new key; CreatedAt is set when it is zero. Exists if
// there is a key of that ID.
func (s *Store) CreateAPIKey(ctx context.Context, k deploy.APIKey) error {
	if k.CreatedAt.IsZero() {
		k.CreatedAt = s.now()
	}
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "INSERT INTO api_keys (id, name, subject, role, hash, disabled, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
			k.ID, k.Name, k.Subject, string(k.Role), k.Hash, k.Disabled, toMilli(k.CreatedAt))
		if s.dialect.unique(err) {
			return deploy.Errorf(deploy.Exists, "API key %s exists already", k.ID)
		}
		return err
	})
	return s.fail(err, "create API key "+k.ID)
}

// APIKey returns a key, disabled or not.
func (s *Store) APIKey(ctx context.Context, id string) (deploy.APIKey, error) {
	k, ok, err := one(ctx, s, scanAPIKey, selectAPIKey+" WHERE id = ?", id)
	if err == nil && !ok {
		err = noAPIKey(id)
	}
	return k, s.fail(err, "read API key "+id)
}

func noAPIKey(id string) error { return deploy.Errorf(deploy.NotFound, "there is no API key %s", id) }

// APIKeys returns all keys, the oldest first.
func (s *Store) APIKeys(ctx context.Context) ([]deploy.APIKey, error) {
	ks, err := all(ctx, s, scanAPIKey, selectAPIKey+" ORDER BY created_at, id")
	return ks, s.fail(err, "list API keys")
}

// DisableAPIKey disables a key for good.
func (s *Store) DisableAPIKey(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		n, err := t.exec(ctx, "UPDATE api_keys SET disabled = TRUE WHERE id = ?", id)
		if err == nil && n == 0 {
			err = noAPIKey(id)
		}
		return err
	})
	return s.fail(err, "disable API key "+id)
}
