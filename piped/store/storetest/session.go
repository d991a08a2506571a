package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// session returns an open session of a user.
func (e *env) session(id, subject string) deploy.Session {
	at := e.clock.now().UTC().Truncate(time.Millisecond)
	return deploy.Session{
		ID: id, Hash: []byte("hash of " + id), User: deploy.User{Issuer: "corp", Subject: subject, Name: "Jane Doe", Groups: []string{"dev", "ops"}},
		Refresh: []byte("refresh of " + id), Remote: "192.0.2.1", Client: "page", CreatedAt: at, ExpiresAt: at.Add(time.Hour), LastUsedAt: at, GroupsAt: at,
	}
}

func (e *env) putSession(t testing.TB, v deploy.Session) deploy.Session {
	t.Helper()
	must(t, e.store.CreateSession(t.Context(), v))
	return v
}

// open returns which of these sessions are open, and asserts that every lookup agrees.
func (e *env) open(t testing.TB, ids ...string) (open []string) {
	t.Helper()
	for _, id := range ids {
		_, byID := e.store.Session(t.Context(), id)
		_, byHash := e.store.SessionByHash(t.Context(), []byte("hash of "+id))
		if deploy.KindOf(byID) != deploy.KindOf(byHash) || byID != nil && !deploy.IsKind(byID, deploy.NotFound) {
			t.Errorf("session %s by ID: %v; by hash: %v", id, byID, byHash)
		}
		if byID == nil {
			open = append(open, id)
		}
	}
	listed := e.sessionIDs(t, store.SessionQuery{OpenOnly: true})
	for _, id := range ids {
		if slices.Contains(listed, id) != slices.Contains(open, id) {
			t.Errorf("session %s: open are %v, listed as open %v", id, open, listed)
		}
	}
	return open
}

// sessionIDs reads all pages of a list.
func (e *env) sessionIDs(t testing.TB, q store.SessionQuery) (ids []string) {
	t.Helper()
	for {
		page, next, err := e.store.Sessions(t.Context(), q)
		must(t, err)
		for _, v := range page {
			if v.Hash != nil || v.Refresh != nil {
				t.Errorf("session %s is listed with its secrets", v.ID)
			}
			ids = append(ids, v.ID)
		}
		if q.Limit > 0 && (next != "" && len(page) != q.Limit || len(page) > q.Limit) {
			t.Errorf("a page of %d for the limit %d", len(page), q.Limit)
		}
		if next == "" {
			return ids
		}
		q.Cursor = next
	}
}

// ends returns the sessions whose ends a watch has reported.
func ends(w *store.Watch) (ids []string) {
	for _, c := range w.Take() {
		if c.Topic == deploy.TopicSession {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func testSessions(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	watch := s.Watch()
	defer watch.Close()
	want := e.putSession(t, e.session("s1", "jane"))
	for how, read := range map[string]func() (deploy.Session, error){
		"ID":   func() (deploy.Session, error) { return s.Session(ctx, "s1") },
		"hash": func() (deploy.Session, error) { return s.SessionByHash(ctx, []byte("hash of s1")) },
	} {
		got, err := read()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("by %s: %v (-want +got):\n%s", how, err, diff)
		}
	}
	again := e.session("s1", "jane")
	again.Hash = []byte("another")
	wantKind(t, s.CreateSession(ctx, again), deploy.Exists, "s1")
	again.ID, again.Hash = "s2", want.Hash
	wantKind(t, s.CreateSession(ctx, again), deploy.Exists, "s2")
	e.putSession(t, deploy.Session{ID: "bare", Hash: []byte("hash of bare"), User: deploy.User{Issuer: "corp", Subject: "bare"}, ExpiresAt: epoch.Add(time.Hour)})
	if got, err := s.Session(ctx, "bare"); err != nil || got.Refresh != nil || got.CreatedAt.IsZero() || got.LastUsedAt != got.CreatedAt && got.LastUsedAt.IsZero() || got.GroupsAt.IsZero() {
		t.Errorf("a session without anything optional: %+v, %v", got, err)
	}
	if got := watch.Take(); got != nil {
		t.Errorf("new sessions were published: %v", got)
	}
	_, err := s.Session(ctx, "nobody")
	wantKind(t, err, deploy.NotFound, "nobody")
	_, err = s.SessionByHash(ctx, []byte("nobody"))
	wantKind(t, err, deploy.NotFound, "sign in again")
	wantKind(t, s.EndSession(ctx, "nobody"), deploy.NotFound, "nobody")
	for range 2 {
		must(t, s.EndSession(ctx, "s1"))
		same(t, "open", []string{"bare"}, e.open(t, "s1", "bare"))
	}
	same(t, "published", []string{"s1"}, ends(watch))
	_, _, err = s.Sessions(ctx, store.SessionQuery{Cursor: "nonsense"})
	wantKind(t, err, deploy.Invalid, "cursor")
}

// testSessionLists: lists are filtered and paged, and show ended sessions.
func testSessionLists(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	must(t, s.CreateAPIKey(ctx, deploy.APIKey{ID: "k1", Name: "ci", Role: deploy.ReadOnly, Hash: []byte("k")}))
	for i, subject := range []string{"jane", "joe", "jane", "jane", "ci"} {
		v := e.session(fmt.Sprint("s", i), subject)
		if subject == "ci" {
			v.User, v.KeyID = deploy.User{Subject: "ci"}, "k1"
		}
		e.putSession(t, v)
	}
	other := e.session("s5", "jane")
	other.User.Issuer, other.CreatedAt = "github", other.CreatedAt.Add(-time.Minute) // it is the oldest
	e.putSession(t, other)
	expired := e.session("s6", "joe")
	expired.ExpiresAt = expired.CreatedAt
	e.putSession(t, expired)
	must(t, s.EndSession(ctx, "s2"))
	for name, c := range map[string]struct {
		q    store.SessionQuery
		want []string
	}{
		"all":                   {store.SessionQuery{}, []string{"s6", "s4", "s3", "s2", "s1", "s0", "s5"}},
		"open":                  {store.SessionQuery{OpenOnly: true}, []string{"s4", "s3", "s1", "s0", "s5"}},
		"of a subject":          {store.SessionQuery{Subject: "jane"}, []string{"s3", "s2", "s0", "s5"}},
		"of a user, open":       {store.SessionQuery{Issuer: "corp", Subject: "jane", OpenOnly: true}, []string{"s3", "s0"}},
		"of an issuer":          {store.SessionQuery{Issuer: "github"}, []string{"s5"}},
		"of a key":              {store.SessionQuery{KeyID: "k1"}, []string{"s4"}},
		"of a user without any": {store.SessionQuery{Subject: "nobody"}, nil},
	} {
		for _, limit := range []int{0, 1, 2, 3, 7} {
			c.q.Limit = limit
			same(t, fmt.Sprintf("%s, pages of %d", name, limit), c.want, e.sessionIDs(t, c.q))
		}
	}
	found, _, err := s.Sessions(ctx, store.SessionQuery{Subject: "jane", Issuer: "corp"})
	if err != nil || found[1].ID != "s2" || found[1].EndedAt.Before(found[1].CreatedAt) || found[1].EndedAt.IsZero() || found[1].Remote != "192.0.2.1" {
		t.Errorf("an ended session: %+v, %v", found, err)
	}
}

// testSessionExpiry: a session is found until it expires, and not at that moment.
func testSessionExpiry(t *testing.T, e *env) {
	e.clock.stand.Store(true)
	v := e.session("s", "jane")
	v.ExpiresAt = v.CreatedAt.Add(10 * time.Millisecond)
	e.putSession(t, v)
	e.clock.ms.Add(9)
	same(t, "before", []string{"s"}, e.open(t, "s"))
	e.clock.ms.Add(1)
	same(t, "then", nil, e.open(t, "s"))
	wantKind(t, e.store.UpdateSessionUser(t.Context(), "s", v.User, nil, v.CreatedAt), deploy.NotFound, "sign in again")
}

func testSessionUse(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	v := e.putSession(t, e.session("s", "jane"))
	e.putSession(t, e.session("idle", "jane"))
	watch := s.Watch()
	defer watch.Close()
	minute := v.CreatedAt.Add(time.Minute)
	for _, at := range []time.Time{minute, minute.Add(time.Minute), minute} {
		must(t, s.NoteSessionUse(ctx, map[string]time.Time{"s": at, "unknown": at}))
	}
	must(t, s.NoteSessionUse(ctx, nil))
	if got, err := s.Session(ctx, "s"); err != nil || !got.LastUsedAt.Equal(minute.Add(time.Minute)) {
		t.Errorf("used: %+v, %v", got, err)
	}
	if got, err := s.Session(ctx, "idle"); err != nil || !got.LastUsedAt.Equal(got.CreatedAt) {
		t.Errorf("not used: %+v, %v", got, err)
	}
	if got := watch.Take(); got != nil {
		t.Errorf("published: %v", got)
	}
}

func testSessionUser(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	want := e.putSession(t, e.session("s", "jane"))
	want.User.Name, want.User.Groups, want.Refresh, want.GroupsAt = "Jane Roe", []string{"ops"}, []byte("next"), want.GroupsAt.Add(time.Hour/2)
	must(t, s.UpdateSessionUser(ctx, "s", want.User, want.Refresh, want.GroupsAt))
	got, err := s.Session(ctx, "s")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("updated: %v (-want +got):\n%s", err, diff)
	}
	for _, other := range []deploy.User{{Issuer: "corp", Subject: "joe"}, {Issuer: "github", Subject: "jane"}} {
		wantKind(t, s.UpdateSessionUser(ctx, "s", other, nil, want.GroupsAt), deploy.Invalid, "belongs to jane")
	}
	must(t, s.UpdateSessionUser(ctx, "s", want.User, nil, want.GroupsAt))
	if got, err := s.Session(ctx, "s"); err != nil || got.Refresh != nil {
		t.Errorf("without anything that reads groups: %q, %v", got.Refresh, err)
	}
	must(t, s.EndSession(ctx, "s"))
	wantKind(t, s.UpdateSessionUser(ctx, "s", want.User, nil, want.GroupsAt), deploy.NotFound, "sign in again")
	wantKind(t, s.UpdateSessionUser(ctx, "nobody", want.User, nil, want.GroupsAt), deploy.NotFound, "nobody")
}

// testSessionsOfKey: the sessions of an API key end with it, and it opens no other one.
func testSessionsOfKey(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	for _, id := range []string{"k1", "k2"} {
		must(t, s.CreateAPIKey(ctx, deploy.APIKey{ID: id, Name: id, Role: deploy.ReadOnly, Hash: []byte(id)}))
	}
	withKey := func(id, key string) deploy.Session {
		v := e.session(id, "ci")
		v.User.Issuer, v.KeyID = "", key
		return v
	}
	for id, key := range map[string]string{"a": "k1", "b": "k1", "c": "k2", "d": "k2"} {
		e.putSession(t, withKey(id, key))
	}
	e.putSession(t, e.session("jane", "jane"))
	watch := s.Watch()
	defer watch.Close()
	must(t, s.EndSession(ctx, "b"))
	same(t, "published", []string{"b"}, ends(watch))
	must(t, s.DisableAPIKey(ctx, "k1"))
	same(t, "published when the key is disabled", []string{"a"}, ends(watch))
	same(t, "open", []string{"c", "d", "jane"}, e.open(t, "a", "b", "c", "d", "jane"))
	wantKind(t, s.CreateSession(ctx, withKey("e", "k1")), deploy.Denied, "k1")
	wantKind(t, s.CreateSession(ctx, withKey("e", "unknown")), deploy.Denied, "unknown")
	must(t, s.EndSessionsOfKey(ctx, "")) // not those of users without a key
	must(t, s.EndSessionsOfKey(ctx, "k2"))
	same(t, "published", []string{"c", "d"}, ends(watch))
	same(t, "open", []string{"jane", "f"}, e.open(t, "c", "d", "jane", e.putSession(t, withKey("f", "k2")).ID))
}

// testDisabledUsers: the sessions of a disabled user end, and no new one begins.
func testDisabledUsers(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	e.putSession(t, e.session("a", "jane"))
	e.putSession(t, e.session("b", "jane"))
	e.putSession(t, e.session("c", "joe"))
	other := e.session("d", "jane")
	other.User.Issuer = "github"
	e.putSession(t, other)
	watch := s.Watch()
	defer watch.Close()
	must(t, s.EndSession(ctx, "b"))
	watch.Take()
	for _, by := range []string{"boss", "somebody else"} {
		must(t, s.DisableUser(ctx, "corp", "jane", by))
	}
	same(t, "published", []string{"a"}, ends(watch))
	same(t, "open", []string{"c", "d"}, e.open(t, "a", "b", "c", "d"))
	wantKind(t, s.CreateSession(ctx, e.session("e", "jane")), deploy.Denied, "jane is disabled")
	must(t, s.DisableUser(ctx, "corp", "ann", "boss")) // who never signed in
	users, err := s.DisabledUsers(ctx)
	if err != nil || len(users) != 2 || users[0].At.IsZero() {
		t.Fatalf("disabled: %+v, %v", users, err)
	}
	want := []deploy.DisabledUser{{Issuer: "corp", Subject: "ann", By: "boss", At: users[0].At}, {Issuer: "corp", Subject: "jane", By: "boss", At: users[1].At}}
	if diff := cmp.Diff(want, users); diff != "" {
		t.Errorf("disabled (-want +got):\n%s", diff)
	}
	for range 2 {
		must(t, s.EnableUser(ctx, "corp", "jane"))
	}
	same(t, "open", []string{"c", "d", "f"}, e.open(t, "a", "b", "c", "d", e.putSession(t, e.session("f", "jane")).ID))
	must(t, s.EndSessionsOf(ctx, "github", "jane"))
	same(t, "published", []string{"d"}, ends(watch))
	same(t, "open", []string{"c", "f"}, e.open(t, "a", "b", "c", "d", "f"))
}

// testConcurrentSignIns: a user or key that is disabled while it signs in has no open session
// afterwards.
func testConcurrentSignIns(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	const rounds, writers = 5, 4
	for round := range rounds {
		subject, key := fmt.Sprint("user", round), fmt.Sprint("key", round)
		must(t, s.CreateAPIKey(ctx, deploy.APIKey{ID: key, Name: key, Role: deploy.ReadOnly, Hash: []byte(key)}))
		var ids []string
		var g sync.WaitGroup
		for i := range 2 * writers {
			v := e.session(fmt.Sprintf("s-%d-%d", round, i), subject)
			if i%2 == 0 {
				v.User, v.KeyID = deploy.User{Subject: key}, key
			}
			ids = append(ids, v.ID)
			g.Go(func() {
				if err := s.CreateSession(ctx, v); err != nil && !deploy.IsKind(err, deploy.Denied) {
					t.Error(err)
				}
			})
			if i == writers {
				g.Go(func() { failed(t, s.DisableUser(ctx, "corp", subject, "boss")) })
				g.Go(func() { failed(t, s.DisableAPIKey(ctx, key)) })
			}
		}
		g.Wait()
		same(t, "open after the disabling", nil, e.open(t, ids...))
	}
}

// testOldSessions: sessions are deleted a time after their end.
func testOldSessions(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	expired := e.session("expired", "jane")
	expired.ExpiresAt = expired.CreatedAt.Add(time.Millisecond)
	e.putSession(t, expired)
	for _, id := range []string{"open", "ended", "ended too", "ended later"} {
		e.putSession(t, e.session(id, "jane"))
	}
	must(t, s.PutSignInState(ctx, []byte("h"), []byte("{}"), e.clock.now().Add(time.Millisecond)))
	must(t, s.EndSession(ctx, "ended"))
	must(t, s.EndSession(ctx, "ended too"))
	before := e.clock.now()
	must(t, s.EndSession(ctx, "ended later"))
	for _, want := range []int{2, 1, 0} {
		if n, err := s.RemoveSessions(ctx, before, 2); err != nil || n != want {
			t.Fatalf("removed %d, %v, want %d", n, err, want)
		}
	}
	same(t, "left", []string{"ended later", "open"}, e.sessionIDs(t, store.SessionQuery{}))
	if n := len(records(t, Raw(t, e.dsn), "SELECT hash FROM sign_in_states")); n != 0 {
		t.Errorf("%d expired sign-ins are left", n)
	}
}
