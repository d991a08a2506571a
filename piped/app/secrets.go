package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

const (
	storeKeyFile = "store.key" // encrypts applied objects in the store
	ownerKeyFile = "owner.key" // the first API key

	storeKeySize = 32
)

// storeKey returns the key of store.keyFile, or of the data directory. There the first start
// creates one, which the caller stores after the store is open: a backup can be restored only
// into a directory without a key.
func storeKey(cfg *config.Piped) (key []byte, made bool, err error) {
	path := storeKeyPath(cfg)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) && cfg.Store.KeyFile == "" {
		key = make([]byte, storeKeySize)
		rand.Read(key) // never fails
		return key, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("key of the store: %w", err)
	}
	key, err = keyIn(cfg, data)
	return key, false, err
}

// keyIn returns the key in a file: its bytes, or what they are in base64.
func keyIn(cfg *config.Piped, data []byte) (key []byte, err error) {
	if len(data) == storeKeySize {
		return data, nil
	}
	if key, err = base64.StdEncoding.DecodeString(strings.TrimSpace(string(data))); err == nil && len(key) == storeKeySize {
		return key, nil
	}
	remedy := "restore it from a backup, or remove it and lose the states to roll back to"
	if cfg.Store.KeyFile != "" {
		remedy = fmt.Sprintf("write one with `openssl rand -base64 %d` unless there was one", storeKeySize)
	}
	return nil, deploy.Errorf(deploy.Invalid, "%s must hold %d bytes, as such or in base64, it holds %d: %s", storeKeyPath(cfg), storeKeySize, len(data), remedy)
}

// storeKeyPath returns the file with the key.
func storeKeyPath(cfg *config.Piped) string {
	return cmp.Or(cfg.Store.KeyFile, filepath.Join(cfg.DataDir, storeKeyFile))
}

// keepStoreKey writes the key into the data directory.
func keepStoreKey(dataDir string, key []byte) error {
	if err := writeSecret(filepath.Join(dataDir, storeKeyFile), key); err != nil {
		return fmt.Errorf("key of the data directory: %w", err)
	}
	return nil
}

// ensureOwnerKey creates the owner's API key at the first start. After a loss of the database
// it registers the key of the file again.
func ensureOwnerKey(ctx context.Context, s *store.Store, dataDir string, now time.Time) (path string, err error) {
	path = filepath.Join(dataDir, ownerKeyFile)
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		return path, readmit(ctx, s, path, strings.TrimSpace(string(text)), now)
	case !errors.Is(err, fs.ErrNotExist):
		return path, fmt.Errorf("owner key: %w", err)
	}
	keys, err := s.APIKeys(ctx)
	if err != nil || len(keys) > 0 { // deleted on purpose: other keys may be in use
		return path, err
	}
	record, key, err := access.NewAPIKey("owner", "owner", deploy.ReadWrite, now, rand.Reader)
	if err != nil {
		return path, err
	}
	if err := writeSecret(path, []byte(key+"\n")); err != nil {
		return path, fmt.Errorf("owner key: %w", err)
	}
	return path, s.CreateAPIKey(ctx, record)
}

// readmit registers the key of the owner file in the store.
func readmit(ctx context.Context, s *store.Store, path, key string, now time.Time) error {
	record, err := access.RecordOf(key, "owner", "owner", deploy.ReadWrite, now)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, err = s.APIKey(ctx, record.ID)
	if !deploy.IsKind(err, deploy.NotFound) {
		return err
	}
	err = s.CreateAPIKey(ctx, record)
	if deploy.IsKind(err, deploy.Exists) { // the former key of the file is enabled
		record.Name += " " + record.ID
		err = s.CreateAPIKey(ctx, record)
	}
	return err
}

// writeSecret writes a file that only its owner may read, atomically.
func writeSecret(path string, data []byte) error {
	file, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}
