package storetest

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// auditIDs reads all pages of a list and returns the targets' values "n".
func (e *env) auditIDs(t testing.TB, q store.AuditQuery) string {
	t.Helper()
	var found []string
	for {
		page, next, err := e.store.ListAudit(t.Context(), q)
		must(t, err)
		for _, r := range page {
			found = append(found, r.Target["n"])
		}
		if q.Limit > 0 && (next != "" && len(page) != q.Limit || len(page) > q.Limit) {
			t.Errorf("a page of %d for the limit %d", len(page), q.Limit)
		}
		if next == "" {
			return strings.Join(found, " ")
		}
		q.Cursor = next
	}
}

// testAudit: records are stored as they are, numbered, and listed by all that they name.
func testAudit(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	watch := s.Watch()
	defer watch.Close()
	at := e.clock.now().UTC().Truncate(time.Millisecond)
	full := deploy.AuditRecord{
		At: at, Subject: "jane", Issuer: "corp", CallerID: "s1", Session: true, Remote: "192.0.2.1", Method: "Sync", Permission: deploy.PermSync,
		ApplicationID: "app-web", DeploymentID: "d1", Code: "PermissionDenied", Reason: "no role grants \x1b sync", Duration: 1500 * time.Microsecond,
		Target: map[string]string{"n": "1"}, Result: map[string]string{"command": "c1"},
	}
	must(t, s.AppendAudit(ctx))
	must(t, s.AppendAudit(ctx, full))
	got, cursor, err := s.ListAudit(ctx, store.AuditQuery{})
	want := full
	want.ID = 1
	if diff := cmp.Diff([]deploy.AuditRecord{want}, got); err != nil || cursor != "" || diff != "" {
		t.Errorf("cursor %q, %v (-want +got):\n%s", cursor, err, diff)
	}
	record := func(n int, after time.Duration, subject, method, app, code string) deploy.AuditRecord {
		return deploy.AuditRecord{At: at.Add(after), Subject: subject, Method: method, ApplicationID: app, Code: code, Target: map[string]string{"n": fmt.Sprint(n)}}
	}
	must(t, s.AppendAudit(ctx,
		record(2, time.Second, "joe", "Sync", "app-web", "OK"), record(3, time.Second, "jane", "SignIn", "", "OK"),
		record(4, -time.Second, "jane", "Sync", "app-api", "OK"), record(5, 2*time.Second, "joe", "Cancel", "app-api", "PermissionDenied")))
	for name, c := range map[string]struct {
		q    store.AuditQuery
		want string
	}{
		"all":                     {store.AuditQuery{}, "5 3 2 1 4"},
		"of a subject":            {store.AuditQuery{Subject: "jane"}, "3 1 4"},
		"of a method":             {store.AuditQuery{Method: "Sync"}, "2 1 4"},
		"of an application":       {store.AuditQuery{ApplicationID: "app-web"}, "2 1"},
		"of a code":               {store.AuditQuery{Code: "PermissionDenied"}, "5 1"},
		"of everything":           {store.AuditQuery{Subject: "jane", Method: "Sync", ApplicationID: "app-web", Code: "PermissionDenied"}, "1"},
		"from, that moment too":   {store.AuditQuery{From: at.Add(time.Second)}, "5 3 2"},
		"to, without that moment": {store.AuditQuery{To: at.Add(time.Second)}, "1 4"},
		"of a method, between":    {store.AuditQuery{Method: "Sync", From: at, To: at.Add(time.Minute)}, "2 1"},
		"of applications":         {store.AuditQuery{OfApplications: true}, "5 2 1 4"},
		"of a subject's":          {store.AuditQuery{OfApplications: true, Scope: &deploy.Scope{All: true}, Subject: "jane"}, "1 4"},
		"of none there is":        {store.AuditQuery{Subject: "nobody"}, ""},
	} {
		for _, limit := range []int{0, 1, 2, 5} {
			c.q.Limit = limit
			if got := e.auditIDs(t, c.q); got != c.want {
				t.Errorf("%s, pages of %d: %q, want %q", name, limit, got, c.want)
			}
		}
	}
	if got := watch.Take(); got != nil {
		t.Errorf("published: %v", got)
	}
	elsewhere := cursorOf(t, e)
	for _, cursor := range []string{"nonsense", elsewhere} {
		_, _, err = s.ListAudit(ctx, store.AuditQuery{Cursor: cursor})
		wantKind(t, err, deploy.Invalid, "cursor")
	}
}

// cursorOf returns the cursor of another list.
func cursorOf(t testing.TB, e *env) string {
	t.Helper()
	e.putApp(t, "web")
	_, cursor, err := e.store.ListApplications(t.Context(), store.ApplicationQuery{Limit: 1})
	must(t, err)
	return cursor
}

// testConcurrentAudit: concurrent batches are numbered without gaps, each in its order.
func testConcurrentAudit(t *testing.T, e *env) {
	const writers, size = 6, 60 // more than one statement each
	var g sync.WaitGroup
	for w := range writers {
		g.Go(func() {
			var batch []deploy.AuditRecord
			for i := range size {
				batch = append(batch, deploy.AuditRecord{Subject: fmt.Sprint(w), Reason: fmt.Sprint(i), At: epoch})
			}
			failed(t, e.store.AppendAudit(t.Context(), batch...))
		})
	}
	g.Wait()
	all, _, err := e.store.ListAudit(t.Context(), store.AuditQuery{})
	must(t, err)
	if len(all) != writers*size {
		t.Fatalf("%d records", len(all))
	}
	for i, r := range all {
		if want := int64(writers*size - i); r.ID != want || r.Reason != fmt.Sprint((want-1)%size) {
			t.Fatalf("record %d is %+v, want the number %d", i, r, want)
		}
	}
}

// testOldAudit: records are deleted after a time, the oldest first.
func testOldAudit(t *testing.T, e *env) {
	ctx, s := t.Context(), e.store
	for i := range 6 {
		must(t, s.AppendAudit(ctx, deploy.AuditRecord{At: epoch.Add(time.Duration(i) * time.Hour), Target: map[string]string{"n": fmt.Sprint(i)}}))
	}
	for _, c := range []struct {
		want int
		left string
	}{{2, "5 4 3 2"}, {2, "5 4"}, {0, "5 4"}} {
		n, err := s.RemoveAudit(ctx, epoch.Add(4*time.Hour), 2)
		if left := e.auditIDs(t, store.AuditQuery{}); err != nil || n != c.want || left != c.left {
			t.Errorf("removed %d, %v, left %q; want %d and %q", n, err, left, c.want, c.left)
		}
	}
	must(t, s.AppendAudit(ctx, deploy.AuditRecord{At: epoch}))
	if all, _, err := s.ListAudit(ctx, store.AuditQuery{Limit: 3}); err != nil || all[2].ID != 7 {
		t.Errorf("a number was given again: %+v, %v", all, err)
	}
}

// failed reports an error of a goroutine.
func failed(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func same(t testing.TB, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
