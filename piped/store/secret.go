package store

import "github.com/c785c783/piped/piped/deploy"

// encrypt encrypts a secret and binds it to owner, which is unique among all that the store
// encrypts. Empty secrets are stored as such.
func (s *Store) encrypt(secret []byte, owner string) ([]byte, error) {
	if len(secret) == 0 {
		return []byte{}, nil
	}
	if s.aead == nil {
		return nil, deploy.Errorf(deploy.Internal, "the store was opened without the key for the secret of %s", owner)
	}
	return s.aead.Seal(nil, nil, secret, []byte(owner)), nil
}

// decrypt returns a secret that encrypt has bound to owner.
func (s *Store) decrypt(sealed []byte, owner string) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	if s.aead == nil {
		return nil, deploy.Errorf(deploy.Internal, "the store was opened without the key for the secret of %s", owner)
	}
	secret, err := s.aead.Open(nil, nil, sealed, []byte(owner))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the secret of %s cannot be decrypted: the key in the data directory is not the one it was written with: sign in again, or put that key back", owner)
	}
	return secret, nil
}
