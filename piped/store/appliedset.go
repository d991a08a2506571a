package store

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"io"

	"github.com/c785c783/piped/piped/deploy"
)

// newAEAD returns AES-256-GCM with random nonces, nil without a key.
func newAEAD(key []byte) (cipher.AEAD, error) {
	if key == nil {
		return nil, nil
	}
	if len(key) != 32 {
		return nil, deploy.Errorf(deploy.Invalid, "the key that encrypts applied sets has %d bytes instead of 32: its file in the data directory is damaged, restore it from a backup", len(key))
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// SaveAppliedSet stores the complete set of objects that a deployment applied, compressed,
// encrypted and bound to the deployment's ID. It replaces an earlier set of the deployment. It
// deletes the application's other sets, except those of the last success and of an active
// deployment. NotFound if the deployment does not exist.
func (s *Store) SaveAppliedSet(ctx context.Context, set deploy.AppliedSet) error {
	sealed, err := s.seal(set)
	if err != nil {
		return err
	}
	err = s.write(ctx, func(t *tx) error {
		if _, err := t.exec(ctx, `INSERT INTO applied_sets (deployment_id, application_id, commit_hash, sealed, created_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (deployment_id) DO UPDATE SET commit_hash = excluded.commit_hash, sealed = excluded.sealed`,
			set.DeploymentID, set.ApplicationID, set.Commit, sealed, toMilli(t.store.now())); err != nil {
			return err
		}
		_, err := t.exec(ctx, `DELETE FROM applied_sets WHERE application_id = ? AND deployment_id <> ?
			AND deployment_id NOT IN (SELECT last_successful_id FROM applications WHERE id = ?)
			AND deployment_id NOT IN (SELECT id FROM deployments WHERE application_id = ? AND status IN ('PLANNED', 'RUNNING', 'ROLLING_BACK'))`,
			set.ApplicationID, set.DeploymentID, set.ApplicationID, set.ApplicationID)
		return err
	})
	if s.dialect.foreign(err) {
		return deploy.Errorf(deploy.NotFound, "there is no deployment %s to keep the applied set of: %w", set.DeploymentID, err)
	}
	return s.fail(err, "save the applied set of deployment "+set.DeploymentID)
}

// seal compresses and encrypts a set.
func (s *Store) seal(set deploy.AppliedSet) ([]byte, error) {
	if s.aead == nil {
		return nil, noKey(set.DeploymentID)
	}
	zipped, err := s.zip(set.Objects)
	if err != nil {
		return nil, s.fail(err, "compress the applied set of deployment "+set.DeploymentID)
	}
	return s.aead.Seal(nil, nil, zipped, []byte(set.DeploymentID)), nil
}

// zip compresses data. Compressors are pooled, because one allocates far more memory than most
// inputs.
func (s *Store) zip(data []byte) ([]byte, error) {
	zw, ok := s.zippers.Get().(*gzip.Writer)
	if !ok {
		var err error
		if zw, err = gzip.NewWriterLevel(nil, gzip.BestSpeed); err != nil {
			return nil, err
		}
	}
	defer s.zippers.Put(zw)
	var buf bytes.Buffer
	zw.Reset(&buf)
	if _, err := zw.Write(data); err != nil {
		return nil, err
	}
	err := zw.Close()
	return buf.Bytes(), err
}

func noKey(deploymentID string) error {
	return deploy.Errorf(deploy.Internal, "the store was opened without the key for the applied set of deployment %s", deploymentID)
}

// AppliedSet returns the set of objects that a deployment applied. NotFound if none is stored;
// Invalid if it cannot be decrypted with the key.
func (s *Store) AppliedSet(ctx context.Context, deploymentID string) (deploy.AppliedSet, error) {
	if s.aead == nil {
		return deploy.AppliedSet{}, noKey(deploymentID)
	}
	var sealed []byte
	set, ok, err := one(ctx, s, func(row scanner) (a deploy.AppliedSet, err error) {
		return a, row.Scan(&a.DeploymentID, &a.ApplicationID, &a.Commit, &sealed)
	}, "SELECT deployment_id, application_id, commit_hash, sealed FROM applied_sets WHERE deployment_id = ?", deploymentID)
	if err == nil && !ok {
		err = deploy.Errorf(deploy.NotFound, "no applied set of deployment %s is kept", deploymentID)
	}
	if err == nil {
		set.Objects, err = s.unseal(sealed, deploymentID)
	}
	if err != nil {
		return deploy.AppliedSet{}, s.fail(err, "read the applied set of deployment "+deploymentID)
	}
	return set, nil
}

// unseal decrypts and decompresses a set.
func (s *Store) unseal(sealed []byte, deploymentID string) ([]byte, error) {
	plain, err := s.aead.Open(nil, nil, sealed, []byte(deploymentID))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the applied set of deployment %s cannot be decrypted: "+
			"the key in the data directory is not the one it was written with, put that one back", deploymentID)
	}
	zr, err := gzip.NewReader(bytes.NewReader(plain))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return io.ReadAll(zr)
}
