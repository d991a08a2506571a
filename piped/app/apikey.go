package app

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// APIKeyCreator is the creator of keys from CreateAPIKey.
const APIKeyCreator = "piped apikey create"

// CreateAPIKey creates an API key and returns it; subject may be "" for the name. It
// needs no key, but the data directory and the store of an agent, which may be running:
// for when no key is left. It changes nothing else, and rejects a store with another
// schema version.
func CreateAPIKey(ctx context.Context, cfg *config.Piped, name, subject string, role deploy.Role) (key string, err error) {
	if subject == "" {
		subject = name
	}
	if err := control.CheckAPIKeyText(name, subject); err != nil {
		return "", err
	}
	if role != deploy.ReadOnly && role != deploy.ReadWrite {
		return "", deploy.Errorf(deploy.Invalid, "there is no role %q of API keys: use %s or %s", role, deploy.ReadOnly, deploy.ReadWrite)
	}
	if err := hasRun(cfg); err != nil {
		return "", err
	}
	st, err := store.Open(ctx, cfg.Store.DSN.Reveal(), store.Options{Existing: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	record, key, err := access.NewAPIKey(name, subject, role, time.Time{}, rand.Reader)
	if err != nil {
		return "", err
	}
	record.Creator = APIKeyCreator
	if err := st.CreateAPIKey(ctx, record); err != nil {
		return "", err
	}
	return key, nil
}
