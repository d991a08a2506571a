package store

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
)

// BenchmarkOutcomes reads what figures need of 10,000 deployments that have ended.
func BenchmarkOutcomes(b *testing.B) {
	s, err := Open(b.Context(), "sqlite://"+filepath.Join(b.TempDir(), "piped.db"), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	for i := range 20 {
		if _, err := s.PutApplication(b.Context(), deploy.Application{ID: fmt.Sprintf("a%d", i), Name: "web"}); err != nil {
			b.Fatal(err)
		}
	}
	var rows [][]any
	for i := range 10_000 {
		status := []deploy.Status{deploy.Success, deploy.Failure, deploy.Cancelled}[i%3]
		rows = append(rows, []any{fmt.Sprint(i), fmt.Sprintf("a%d", i%20), "web", "ON_COMMIT", "", "", "{}", string(status), "{}", 1, 1, 1, 1, i + 1, 1})
	}
	if err := s.write(b.Context(), func(t *tx) error {
		return t.insert(b.Context(), "deployments", `id, application_id, application_name, trigger_kind, commit_hash, chain_id, origin, status, state,
			revision, triggered_at, created_at, updated_at, completed_at, committed_at`, "", rows)
	}); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		found, err := s.Outcomes(b.Context(), deploy.FiguresQuery{From: fromMilli(1), To: fromMilli(20_000)})
		if err != nil || len(found) != len(rows) {
			b.Fatal(len(found), err)
		}
	}
}
