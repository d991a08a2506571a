package store

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// maxSignIns bounds the number of stored sign-in states, because any client can begin to sign
// in.
const maxSignIns = 10_000

func signInOwner(hash []byte) string { return "sign-in " + hex.EncodeToString(hash) }

// PutSignInState stores, encrypted, what the answer of an issuer needs until a time. hash is
// that of the state parameter, by which the answer is recognised. The oldest states beyond
// 10,000 are deleted, and the expired ones. Exists if there is one with that hash.
func (s *Store) PutSignInState(ctx context.Context, hash, payload []byte, expires time.Time) error {
	sealed, err := s.encrypt(payload, signInOwner(hash))
	if err != nil {
		return err
	}
	err = s.write(ctx, func(t *tx) error {
		if err := t.lockSignIns(ctx); err != nil {
			return err
		}
		if err := t.dropExpiredSignIns(ctx); err != nil {
			return err
		}
		_, err := t.exec(ctx, "INSERT INTO sign_in_states (hash, payload, created_at, expires_at) VALUES (?, ?, ?, ?)", hash, sealed, toMilli(s.now()), toMilli(expires))
		if s.dialect.unique(err) {
			return deploy.Errorf(deploy.Exists, "there is a sign-in with this state already")
		}
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, excessSignIns, maxSignIns, maxSignIns)
		return err
	})
	return s.fail(err, "store a sign-in")
}

// excessSignIns deletes the oldest states beyond a number of them.
const excessSignIns = `DELETE FROM sign_in_states WHERE hash IN (
	SELECT hash FROM sign_in_states ORDER BY created_at DESC, hash LIMIT ? OFFSET ?)`

func (t *tx) dropExpiredSignIns(ctx context.Context) error {
	_, err := t.exec(ctx, "DELETE FROM sign_in_states WHERE expires_at <= ?", toMilli(t.store.now()))
	return err
}

// signIn is a stored sign-in state.
type signIn struct {
	payload []byte
	expires time.Time
}

func scanSignIn(row scanner) (v signIn, err error) {
	var expires int64
	err = row.Scan(&v.payload, &expires)
	v.expires = fromMilli(expires)
	return v, err
}

// TakeSignInState deletes a sign-in state and returns its payload: of concurrent calls, one.
// NotFound if there is none, or it has expired.
func (s *Store) TakeSignInState(ctx context.Context, hash []byte) (payload []byte, err error) {
	var taken signIn
	var found bool
	err = s.write(ctx, func(t *tx) (err error) {
		taken, found, err = one(ctx, t, scanSignIn, "DELETE FROM sign_in_states WHERE hash = ? RETURNING payload, expires_at", hash)
		return err
	})
	if err == nil && (!found || !s.now().Before(taken.expires)) {
		err = deploy.Errorf(deploy.NotFound, "this sign-in is unknown, was completed already, or took too long: begin again")
	}
	if err == nil {
		payload, err = s.decrypt(taken.payload, signInOwner(hash))
	}
	return payload, s.fail(err, "complete a sign-in")
}
