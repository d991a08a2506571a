package signin

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Sessions are the stored sessions, whose Refresh is encrypted at rest. Unknown sessions, and
// those that have ended, are errors of kind NotFound.
type Sessions interface {
	// OpenSessions returns a page of open sessions, which may lack Refresh, and the cursor of the
	// next page. The cursor "" is that of the first page, and is returned with the last one.
	OpenSessions(ctx context.Context, cursor string) (page []deploy.Session, next string, err error)
	// Session returns an open session with its Refresh.
	Session(ctx context.Context, id string) (deploy.Session, error)
	// UpdateSessionUser stores what an issuer reported of the user of an open session at a time,
	// and what reads it again.
	UpdateSessionUser(ctx context.Context, id string, user deploy.User, refresh []byte, at time.Time) error
	// EndSession ends a session.
	EndSession(ctx context.Context, id string) error
}

// GroupsBound is how old the groups of an open session can become: the session ends when they
// could not be read for this time.
const GroupsBound = 24 * time.Hour

// rereadEvery is the longest interval at which sessions are examined.
const rereadEvery = time.Minute

// Rereader reads the groups of signed-in users again. It must run once per store: issuers that
// replace refresh tokens end the sign-in if one is used twice.
type Rereader struct {
	Sessions Sessions
	Issuers  *Issuers
	// Interval is the configured time between two reads of a user's groups.
	Interval func() time.Duration
	Now      func() time.Time
	Logger   *slog.Logger
}

// Run reads groups until ctx ends.
func (r *Rereader) Run(ctx context.Context) {
	for {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			r.Logger.WarnContext(ctx, "cannot read the groups of signed-in users again; retrying", "error", err)
		}
		pause := time.NewTimer(min(rereadEvery, r.Interval()))
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// pass examines each session whose groups are older than the interval. After an issuer could
// not be reached, its other sessions wait for the next pass.
func (r *Rereader) pass(ctx context.Context) error {
	away, cursor := map[string]error{}, ""
	for {
		page, next, err := r.Sessions.OpenSessions(ctx, cursor)
		if err != nil {
			return err
		}
		for _, s := range page {
			if ctx.Err() != nil {
				return nil
			}
			if err := r.examine(ctx, s, away); err != nil && !deploy.IsKind(err, deploy.NotFound) { // it ended meanwhile
				return err
			}
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// examine reads the groups of a session that is due. It returns only errors of the store.
func (r *Rereader) examine(ctx context.Context, s deploy.Session, away map[string]error) error {
	if !r.due(s) {
		return nil
	}
	s, err := r.Sessions.Session(ctx, s.ID)
	if err != nil || !r.due(s) {
		return err
	}
	return r.reread(ctx, s, away)
}

// due reports whether a session's groups are to be read. Those of API keys have none.
func (r *Rereader) due(s deploy.Session) bool {
	return s.KeyID == "" && r.Now().Sub(s.GroupsAt) >= r.Interval()
}

// lastAnswer is how long an answer is awaited after Run was stopped: a refresh token may be
// used up already, and its successor must be stored.
const lastAnswer = 3 * time.Second

// outliving returns a context that ends lastAnswer after ctx.
func outliving(ctx context.Context) (_ context.Context, cancel context.CancelFunc) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		last := time.NewTimer(lastAnswer)
		defer last.Stop()
		select {
		case <-last.C:
			end()
		case <-later.Done():
		}
	})
	return later, func() { stop(); end() }
}

// errNoToken is why the groups of some sessions are never read again.
var errNoToken = errors.New("the issuer gave no token to read the groups with")

// reread reads the groups of one session. It returns only errors of the store.
func (r *Rereader) reread(ctx context.Context, s deploy.Session, away map[string]error) error {
	ctx, cancel := outliving(ctx)
	defer cancel()
	log := r.Logger.With("issuer", s.User.Issuer, "subject", s.User.Subject, "session", s.ID)
	got, err := r.ask(ctx, s, away)
	switch {
	case err == nil:
		return r.Sessions.UpdateSessionUser(ctx, s.ID, got.User, r.refresh(s, got), r.Now())
	case deploy.IsKind(err, deploy.Denied):
		log.InfoContext(ctx, "session ended: the issuer refuses the user", "reason", err)
		return r.Sessions.EndSession(ctx, s.ID)
	case !r.Now().Before(s.GroupsAt.Add(GroupsBound)):
		log.InfoContext(ctx, "session ended: the groups could not be read for "+GroupsBound.String(), "reason", err)
		return r.Sessions.EndSession(ctx, s.ID)
	case deploy.IsKind(err, deploy.Unavailable):
		away[s.User.Issuer] = err
	case errors.Is(err, errNoToken):
	default:
		log.WarnContext(ctx, "cannot read the groups of a user; retrying", "error", err)
	}
	if got.Refresh == nil {
		return nil
	}
	// The issuer replaced the token before the error.
	return r.Sessions.UpdateSessionUser(ctx, s.ID, s.User, got.Refresh, s.GroupsAt)
}

// ask asks the issuer of a session.
func (r *Rereader) ask(ctx context.Context, s deploy.Session, away map[string]error) (Identity, error) {
	issuer, ok := r.Issuers.Find(s.User.Issuer)
	switch {
	case !ok:
		return Identity{}, deploy.Errorf(deploy.Denied, "issuer %s is not configured any more", s.User.Issuer)
	case s.Refresh == nil:
		return Identity{}, errNoToken
	case away[s.User.Issuer] != nil:
		return Identity{}, away[s.User.Issuer]
	}
	return issuer.Reread(ctx, s.User, s.Refresh)
}

// refresh returns what reads the groups next time: the old token if there is no new one.
func (r *Rereader) refresh(s deploy.Session, got Identity) []byte {
	if got.Refresh == nil {
		return s.Refresh
	}
	return got.Refresh
}
