package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// SetAdoption stores the list of objects that an application would take over. An accepted
// adoption that covers the objects does not change, nor does an equal list that awaits a
// decision. Any other list awaits a new decision; Since stays if a decision was awaited
// already. For a deleted application nothing is stored. changed reports whether anything was
// written. NotFound if there is no such application.
func (s *Store) SetAdoption(ctx context.Context, a deploy.Adoption) (changed bool, err error) {
	body, err := encode(a)
	if err != nil {
		return false, s.fail(err, "store the adoption of application "+a.ApplicationID)
	}
	known, ok, err := s.Adoption(ctx, a.ApplicationID)
	if err != nil || ok && stays(known, a) {
		return false, err
	}
	err = s.write(ctx, func(t *tx) error {
		changed = false
		app, err := t.lockApplication(ctx, a.ApplicationID)
		if err != nil || app.Deleted {
			return err // deleted in the meantime
		}
		known, ok, err := one(ctx, t, scanAdoption, selectAdoption+" WHERE application_id = ?"+t.store.dialect.forUpdate(), a.ApplicationID)
		if err != nil || ok && stays(known, a) {
			return err
		}
		since := toMilli(t.store.now())
		if ok && !known.Accepted {
			since = toMilli(known.Since)
		}
		changed = true
		return t.insert(ctx, "adoptions", "application_id, token, accepted, body, since",
			"ON CONFLICT (application_id) DO UPDATE SET token = excluded.token, accepted = excluded.accepted, body = excluded.body, since = excluded.since",
			[][]any{{a.ApplicationID, a.Token, false, body, since}})
	})
	return changed && err == nil, s.fail(err, "store the adoption of application "+a.ApplicationID)
}

// stays reports whether the adoption known remains valid for the new list next, so that no new
// decision is needed.
func stays(known, next deploy.Adoption) bool {
	if known.Accepted {
		return known.Covers(next.Objects)
	}
	return known.Token == next.Token
}

// DropAdoption deletes an adoption that awaits a decision, because there is nothing to take
// over any more. An accepted adoption is not deleted.
func (s *Store) DropAdoption(ctx context.Context, appID string) error {
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec(ctx, "DELETE FROM adoptions WHERE application_id = ? AND accepted = FALSE", appID)
		return err
	})
	return s.fail(err, "forget the adoption of application "+appID)
}

// DecideAdoption applies the decision of a CommandDecideAdoption and completes the command
// with success. An accepted adoption remains until the application is deleted or has further
// objects to take over. A rejected one is deleted, and its application is disabled. In both
// cases the application's notice is removed. Illegal if no decision is awaited, or if the
// decision was made on another list.
func (s *Store) DecideAdoption(ctx context.Context, c deploy.Command) error {
	err := s.write(ctx, func(t *tx) error {
		if _, err := t.lockPresent(ctx, c.ApplicationID); err != nil {
			return err
		}
		a, ok, err := one(ctx, t, scanAdoption, selectAdoption+" WHERE application_id = ?"+t.store.dialect.forUpdate(), c.ApplicationID)
		if err == nil {
			err = checkDecision(a, ok, c)
		}
		if err != nil {
			return err
		}
		if err := t.decideAdoption(ctx, c); err != nil {
			return err
		}
		return t.finishCommand(ctx, c.ID, deploy.CommandSucceeded, nil)
	})
	return s.fail(err, "decide on the adoption of application "+c.ApplicationID)
}

// decideAdoption stores the decision of c, which is already checked.
func (t *tx) decideAdoption(ctx context.Context, c deploy.Command) error {
	if c.Accept {
		if _, err := t.exec(ctx, "UPDATE adoptions SET accepted = TRUE WHERE application_id = ?", c.ApplicationID); err != nil {
			return err
		}
		return t.updateApplication(ctx, c.ApplicationID, "notice = '', notice_at = 0")
	}
	if _, err := t.exec(ctx, "DELETE FROM adoptions WHERE application_id = ?", c.ApplicationID); err != nil {
		return err
	}
	t.changed(deploy.TopicRegistration, c.ApplicationID, c.ApplicationID)
	return t.updateApplication(ctx, c.ApplicationID, "disabled = TRUE, notice = '', notice_at = 0")
}

// checkDecision returns an error of kind Illegal if no decision is awaited or if it was made
// on another list. ok reports whether a exists.
func checkDecision(a deploy.Adoption, ok bool, c deploy.Command) error {
	switch {
	case !ok || a.Accepted:
		return deploy.Errorf(deploy.Illegal, "no decision on taking over live objects is awaited for application %s", c.ApplicationID)
	case a.Token != c.Token:
		return deploy.Errorf(deploy.Illegal, "what application %s would take over has changed since it was listed: list it again and decide on that", c.ApplicationID)
	}
	return nil
}

// CheckDecision returns the error with which DecideAdoption would reject a decision on
// the adoption of that token, nil if the decision is awaited.
func (s *Store) CheckDecision(ctx context.Context, appID, token string) error {
	a, ok, err := s.Adoption(ctx, appID)
	if err != nil {
		return err
	}
	return checkDecision(a, ok, deploy.Command{ApplicationID: appID, Token: token})
}

const selectAdoption = "SELECT application_id, token, accepted, body, since FROM adoptions"

func scanAdoption(row scanner) (a deploy.Adoption, err error) {
	var body string
	var since int64
	if err := row.Scan(&a.ApplicationID, &a.Token, &a.Accepted, &body, &since); err != nil {
		return a, err
	}
	a.Since = fromMilli(since)
	return a, decode(body, &a)
}

// Adoption returns the adoption of an application, whether it awaits a decision or is
// accepted. ok is false if there is none.
func (s *Store) Adoption(ctx context.Context, appID string) (a deploy.Adoption, ok bool, err error) {
	a, ok, err = one(ctx, s, scanAdoption, selectAdoption+" WHERE application_id = ?", appID)
	return a, ok, s.fail(err, "read the adoption of application "+appID)
}

// Adoptions returns the adoptions that await a decision, the oldest first.
func (s *Store) Adoptions(ctx context.Context) ([]deploy.Adoption, error) {
	as, err := all(ctx, s, scanAdoption, selectAdoption+" WHERE accepted = FALSE ORDER BY since, application_id")
	return as, s.fail(err, "list adoptions")
}
