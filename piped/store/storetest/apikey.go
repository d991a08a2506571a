package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

func testAPIKeys(t *testing.T, e *env) {
	ctx := t.Context()
	watch := e.store.Watch(deploy.TopicAPIKey)
	defer watch.Close()
	want := deploy.APIKey{ID: "k1", Name: "owner", Subject: "jane", Role: deploy.ReadWrite, Hash: []byte{0, 1, 255}, Creator: "joe"}
	create := func(k deploy.APIKey) {
		t.Helper()
		if err := e.store.CreateAPIKey(ctx, k); err != nil {
			t.Fatal(err)
		}
	}
	create(want)
	create(deploy.APIKey{ID: "k2", Name: "other", Role: deploy.ReadWrite, Hash: []byte{3}})
	wantKind(t, e.store.CreateAPIKey(ctx, deploy.APIKey{ID: "k1", Name: "new", Hash: []byte{4}}), deploy.Exists, "k1")
	wantKind(t, e.store.CreateAPIKey(ctx, deploy.APIKey{ID: "k3", Name: "owner", Hash: []byte{5}}), deploy.Exists, `"owner"`)
	if got := watch.Take(); got != nil {
		t.Errorf("changes after two keys: %+v", got)
	}
	if err := e.store.DisableAPIKey(ctx, "k1"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]deploy.Change{{Topic: deploy.TopicAPIKey, ID: "k1"}}, watch.Take()); diff != "" {
		t.Errorf("changes when it is disabled (-want +got):\n%s", diff)
	}
	got, err := e.store.APIKey(ctx, "k1")
	if err != nil || got.CreatedAt.IsZero() || got.UpdatedAt.Before(got.CreatedAt) {
		t.Fatalf("key: %+v, %v", got, err)
	}
	want.Disabled, want.CreatedAt, want.UpdatedAt = true, got.CreatedAt, got.UpdatedAt
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("key (-want +got):\n%s", diff)
	}
	create(deploy.APIKey{ID: "k3", Name: "owner", Role: deploy.ReadOnly, Hash: []byte{6}}) // the name is free again
	keys, err := e.store.APIKeys(ctx)
	if err != nil || len(keys) != 3 || keys[0].ID != "k1" || keys[2].ID != "k3" {
		t.Errorf("keys: %+v, %v", keys, err)
	}
	_, err = e.store.APIKey(ctx, "nobody")
	wantKind(t, err, deploy.NotFound, "nobody")
	wantKind(t, e.store.DisableAPIKey(ctx, "nobody"), deploy.NotFound, "nobody")
}

// testLastAPIKey: one enabled key with READ_WRITE remains, even after concurrent disabling.
func testLastAPIKey(t *testing.T, e *env) {
	ctx := t.Context()
	ids := []string{"a", "b", "c", "d"}
	for _, id := range ids {
		if err := e.store.CreateAPIKey(ctx, deploy.APIKey{ID: id, Name: id, Role: deploy.ReadWrite, Hash: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.store.CreateAPIKey(ctx, deploy.APIKey{ID: "reader", Name: "reader", Role: deploy.ReadOnly, Hash: []byte("reader")}); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, len(ids))
	var all sync.WaitGroup
	for i, id := range ids {
		all.Go(func() { errs[i] = e.store.DisableAPIKey(ctx, id) })
	}
	all.Wait()
	refused := -1
	for i, err := range errs {
		if err == nil {
			continue
		}
		wantKind(t, err, deploy.Illegal, "last enabled")
		if refused >= 0 {
			t.Errorf("both %s and %s are left", ids[refused], ids[i])
		}
		refused = i
	}
	if refused < 0 {
		t.Fatal("no key that may write is left")
	}
	for i, id := range ids {
		if err := e.store.DisableAPIKey(ctx, id); (err == nil) != (i != refused) {
			t.Errorf("disable %s again: %v", id, err)
		}
	}
	if err := e.store.DisableAPIKey(ctx, "reader"); err != nil {
		t.Errorf("a key that only reads: %v", err)
	}
}

func testAPIKeyUse(t *testing.T, e *env) {
	ctx := t.Context()
	for _, id := range []string{"used", "idle"} {
		if err := e.store.CreateAPIKey(ctx, deploy.APIKey{ID: id, Name: id, Role: deploy.ReadWrite, Hash: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	watch := e.store.Watch(deploy.TopicAPIKey)
	defer watch.Close()
	minute := time.Date(2026, 3, 4, 5, 6, 0, 0, time.UTC)
	for _, at := range []time.Time{minute, minute.Add(time.Minute), minute} {
		if err := e.store.NoteAPIKeyUse(ctx, map[string]time.Time{"used": at, "unknown": at}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.store.NoteAPIKeyUse(ctx, nil); err != nil {
		t.Errorf("without keys: %v", err)
	}
	used, err := e.store.APIKey(ctx, "used")
	if err != nil || !used.LastUsedAt.Equal(minute.Add(time.Minute)) || !used.UpdatedAt.Equal(used.CreatedAt) {
		t.Errorf("used: %+v, %v", used, err)
	}
	if idle, err := e.store.APIKey(ctx, "idle"); err != nil || !idle.LastUsedAt.IsZero() {
		t.Errorf("never used: %+v, %v", idle, err)
	}
	if got := watch.Take(); got != nil {
		t.Errorf("announced: %+v", got)
	}
}

// testAPIKeyLimits: limits are stored, and a limited key is not counted among those that can
// create others.
func testAPIKeyLimits(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	limit := &deploy.Selector{Labels: map[string]string{"team": "a"}, Names: []string{"web*"}, Repositories: []string{"r"}}
	for _, k := range []deploy.APIKey{
		{ID: "writer", Role: deploy.ReadWrite}, {ID: "admin", Role: "admin"}, {ID: "limited", Role: deploy.ReadWrite, Limit: limit},
		{ID: "limited-admin", Role: "admin", Limit: &deploy.Selector{}}, {ID: "custom", Role: "release team"},
	} {
		k.Name, k.Hash = k.ID, []byte(k.ID)
		must(t, s.CreateAPIKey(ctx, k))
		got, err := s.APIKey(ctx, k.ID)
		if diff := cmp.Diff(k.Limit, got.Limit); err != nil || diff != "" || got.Role != k.Role {
			t.Errorf("%s: role %q, %v, limit (-want +got):\n%s", k.ID, got.Role, err, diff)
		}
	}
	must(t, s.DisableAPIKey(ctx, "writer")) // the other one has all rights, too
	wantKind(t, s.DisableAPIKey(ctx, "admin"), deploy.Illegal, "last enabled")
	for _, id := range []string{"limited", "limited-admin", "custom"} {
		must(t, s.DisableAPIKey(ctx, id))
	}
}
