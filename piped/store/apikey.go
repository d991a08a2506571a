package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

const (
	apiKeyColumns = "id, name, subject, role, hash, creator, disabled, created_at, updated_at, last_used_at, restriction"
	selectAPIKey  = "SELECT " + apiKeyColumns + " FROM api_keys"
)

// adminRole is the built-in role that may do everything, as READ_WRITE.
const adminRole = "admin"

func scanAPIKey(row scanner) (k deploy.APIKey, err error) {
	var created, updated, used int64
	var limit string
	if err := row.Scan(&k.ID, &k.Name, &k.Subject, &k.Role, &k.Hash, &k.Creator, &k.Disabled, &created, &updated, &used, &limit); err != nil {
		return k, err
	}
	err = decode(limit, &k.Limit)
	k.CreatedAt, k.UpdatedAt, k.LastUsedAt = fromMilli(created), fromMilli(updated), fromMilli(used)
	return k, err
}

// CreateAPIKey stores a new key and sets CreatedAt if it is zero. Exists if there is a key
// with that ID or an enabled key with that name. It publishes no change.
func (s *Store) CreateAPIKey(ctx context.Context, k deploy.APIKey) error {
	if k.CreatedAt.IsZero() {
		k.CreatedAt = s.now()
	}
	limit := ""
	if k.Limit != nil {
		var err error
		if limit, err = encode(k.Limit); err != nil {
			return s.fail(err, "create API key "+k.ID)
		}
	}
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "INSERT INTO api_keys ("+apiKeyColumns+") VALUES ("+placeholders(11)+")",
			k.ID, k.Name, k.Subject, string(k.Role), k.Hash, k.Creator, k.Disabled, toMilli(k.CreatedAt), toMilli(k.CreatedAt), toMilli(k.LastUsedAt), limit)
		if s.dialect.unique(err) {
			return deploy.Errorf(deploy.Exists, "there is an enabled API key named %q already, or one of the ID %s: choose another name, or disable that key first", k.Name, k.ID)
		}
		return err
	})
	return s.fail(err, "create API key "+k.ID)
}

// APIKey returns a key, disabled or not. NotFound if there is none.
func (s *Store) APIKey(ctx context.Context, id string) (deploy.APIKey, error) {
	k, ok, err := one(ctx, s, scanAPIKey, selectAPIKey+" WHERE id = ?", id)
	if err == nil && !ok {
		err = noAPIKey(id)
	}
	return k, s.fail(err, "read API key "+id)
}

func noAPIKey(id string) error { return deploy.Errorf(deploy.NotFound, "there is no API key %s", id) }

// APIKeys returns all keys, disabled ones included, the oldest first.
func (s *Store) APIKeys(ctx context.Context) ([]deploy.APIKey, error) {
	ks, err := all(ctx, s, scanAPIKey, selectAPIKey+" ORDER BY created_at, id")
	return ks, s.fail(err, "list API keys")
}

// DisableAPIKey disables a key permanently and ends its sessions. It is idempotent. Illegal if
// the key is the last enabled one with the role READ_WRITE or admin that is not limited to
// some applications, because no other key could be created without it.
func (s *Store) DisableAPIKey(ctx context.Context, id string) error {
	err := s.write(ctx, func(t *tx) error {
		key, ok, err := one(ctx, t, scanAPIKey, selectAPIKey+" WHERE id = ?", id)
		switch {
		case err != nil:
			return err
		case !ok:
			return noAPIKey(id)
		case key.Disabled:
			return nil
		}
		// Lock all keys, so that one of two concurrent calls sees the effect of the other.
		writers, err := all(ctx, t, scanText, "SELECT id FROM api_keys WHERE role IN (?, ?) AND restriction = '' AND disabled = FALSE ORDER BY id"+t.store.dialect.forUpdate(),
			string(deploy.ReadWrite), adminRole)
		if err != nil {
			return err
		}
		if slices.Equal(writers, []string{id}) {
			return deploy.Errorf(deploy.Illegal, "API key %s is the last enabled one with the role %s or %s for all applications, without which no other can be created: create one first",
				id, deploy.ReadWrite, adminRole)
		}
		if err := t.lockSignIns(ctx); err != nil {
			return err
		}
		if _, err := t.exec(ctx, "UPDATE api_keys SET disabled = TRUE, updated_at = ? WHERE id = ?", toMilli(s.now()), id); err != nil {
			return err
		}
		t.changed(deploy.TopicAPIKey, id, "")
		return t.endSessionsOfKey(ctx, id)
	})
	return s.fail(err, "disable API key "+id)
}

// NoteAPIKeyUse stores the times of last use of keys, by ID. It never sets an earlier time,
// ignores unknown keys and publishes no change.
func (s *Store) NoteAPIKeyUse(ctx context.Context, used map[string]time.Time) error {
	if len(used) == 0 {
		return nil
	}
	err := s.write(ctx, func(t *tx) error {
		for _, id := range slices.Sorted(maps.Keys(used)) { // one locking order avoids deadlocks
			at := toMilli(used[id])
			if _, err := t.exec(ctx, "UPDATE api_keys SET last_used_at = ? WHERE id = ? AND last_used_at < ?", at, id, at); err != nil {
				return err
			}
		}
		return nil
	})
	return s.fail(err, "note the use of API keys")
}
