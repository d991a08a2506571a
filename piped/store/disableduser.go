package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// DisableUser ends the sessions of a user and prevents new ones, in one transaction. It is
// idempotent: by and the time of the first call remain.
func (s *Store) DisableUser(ctx context.Context, issuer, subject, by string) error {
	err := s.write(ctx, func(t *tx) error {
		if err := t.lockSignIns(ctx); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `INSERT INTO disabled_users (issuer, subject, disabled_by, disabled_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (issuer, subject) DO NOTHING`, issuer, subject, by, toMilli(s.now())); err != nil {
			return err
		}
		return t.endSessionsOf(ctx, issuer, subject)
	})
	return s.fail(err, "disable user "+subject)
}

// EnableUser lets a disabled user sign in again. It is idempotent; sessions that have ended
// stay so.
func (s *Store) EnableUser(ctx context.Context, issuer, subject string) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "DELETE FROM disabled_users WHERE issuer = ? AND subject = ?", issuer, subject)
		return err
	})
	return s.fail(err, "enable user "+subject)
}

// DisabledUsers returns the disabled users by issuer and subject.
func (s *Store) DisabledUsers(ctx context.Context) ([]deploy.DisabledUser, error) {
	users, err := all(ctx, s, func(row scanner) (u deploy.DisabledUser, err error) {
		var at int64
		err = row.Scan(&u.Issuer, &u.Subject, &u.By, &at)
		u.At = fromMilli(at)
		return u, err
	}, "SELECT issuer, subject, disabled_by, disabled_at FROM disabled_users ORDER BY issuer, subject")
	return users, s.fail(err, "list the disabled users")
}
