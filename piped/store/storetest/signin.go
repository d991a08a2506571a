package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// testSignInStates: a state is taken once, until it expires.
func testSignInStates(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	put := func(hash string, lasting time.Duration) {
		t.Helper()
		must(t, s.PutSignInState(ctx, []byte(hash), []byte(`{"verifier":"`+hash+`"}`), e.clock.now().Add(lasting)))
	}
	put("a", time.Hour)
	put("b", time.Hour)
	wantKind(t, s.PutSignInState(ctx, []byte("a"), []byte("{}"), e.clock.now().Add(time.Hour)), deploy.Exists, "already")
	if got, err := s.TakeSignInState(ctx, []byte("a")); err != nil || string(got) != `{"verifier":"a"}` {
		t.Errorf("taken: %s, %v", got, err)
	}
	for _, hash := range []string{"a", "unknown"} {
		_, err := s.TakeSignInState(ctx, []byte(hash))
		wantKind(t, err, deploy.NotFound, "begin again")
	}
	put("a", time.Millisecond)
	e.clock.ms.Add(5)
	_, err := s.TakeSignInState(ctx, []byte("a"))
	wantKind(t, err, deploy.NotFound, "begin again")
	put("a", time.Millisecond)
	e.clock.ms.Add(5)
	put("a", time.Hour) // the one that expired is gone
	if got, err := s.TakeSignInState(ctx, []byte("b")); err != nil || string(got) != `{"verifier":"b"}` {
		t.Errorf("taken: %s, %v", got, err)
	}
}

// testConcurrentTakes: of concurrent takers one gets the state.
func testConcurrentTakes(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	for round := range 5 {
		hash := fmt.Append(nil, "state", round)
		must(t, s.PutSignInState(ctx, hash, []byte("{}"), e.clock.now().Add(time.Hour)))
		var won atomic.Int64
		var g sync.WaitGroup
		for range 8 {
			g.Go(func() {
				switch payload, err := s.TakeSignInState(ctx, hash); {
				case err == nil && string(payload) == "{}":
					won.Add(1)
				case !deploy.IsKind(err, deploy.NotFound):
					t.Errorf("taken: %q, %v", payload, err)
				}
			})
		}
		g.Wait()
		if won.Load() != 1 {
			t.Errorf("%d took the state", won.Load())
		}
	}
}

// testSignInLimit: beyond 10,000 states the oldest are deleted.
func testSignInLimit(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	const limit = 10_000
	put := func(hash string) {
		t.Helper()
		must(t, s.PutSignInState(ctx, []byte(hash), []byte("{}"), e.clock.now().Add(time.Hour)))
	}
	put("oldest")
	put("second")
	hash := "CAST('filler' || i AS BLOB)"
	if s.State(ctx).Engine == "postgres" {
		hash = "convert_to('filler' || i, 'UTF8')"
	}
	at := e.clock.now().UnixMilli()
	execute(t, Raw(t, e.dsn), fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO sign_in_states (hash, payload, created_at, expires_at) SELECT %s, %s, %d, %d FROM n`, limit-2, hash, hash, at, at+3_600_000))
	put("next")
	count := func() int { return len(records(t, Raw(t, e.dsn), "SELECT hash FROM sign_in_states")) }
	if n := count(); n != limit {
		t.Errorf("%d states are stored, want %d", n, limit)
	}
	_, err := s.TakeSignInState(ctx, []byte("oldest"))
	wantKind(t, err, deploy.NotFound, "begin again")
	for _, hash := range []string{"second", "next"} {
		if _, err := s.TakeSignInState(ctx, []byte(hash)); err != nil {
			t.Errorf("%s: %v", hash, err)
		}
	}
	if n := count(); n != limit-2 {
		t.Errorf("%d states are left, want %d", n, limit-2)
	}
}
