package retention

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// TestOneReplicaRemoves: only the replica with the right deletes data. It hands the right over after
// the batch in progress, and the next one begins soon after it has got the right.
func TestOneReplicaRemoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rights := ownershiptest.New()
		h := &heap{began: time.Now(), logs: 1000}
		r := New(Config{Store: h, Rights: rights, Settings: settings, Clusters: func() []string { return nil }, Metrics: new(counted)})
		go func() { _ = r.Run(t.Context()) }()
		expect := func(batches int, why string) {
			t.Helper()
			synctest.Wait()
			if got := 1000 - h.logs; got != batches {
				t.Fatalf("%s: %d batches were deleted, want %d", why, got, batches)
			}
		}
		time.Sleep(2 * time.Hour)
		expect(0, "without the right")
		rights.Grant(key)
		time.Sleep(defaultFirst + pause + pause/2)
		expect(2, "with the right")
		rights.HandOver(key)
		time.Sleep(2 * time.Hour)
		expect(2, "handed over")
		rights.Grant(key)
		time.Sleep(defaultFirst + pause/2)
		expect(3, "with the right again")
		rights.Lose(key)
		time.Sleep(2 * time.Hour)
		expect(3, "lost")
	})
}

// TestTermThatIsOver: a replica whose right is over is refused by the store, and logs nothing.
func TestTermThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &heap{began: time.Now(), fails: deploy.Errorf(deploy.Fenced, "the term is over")}
		_, log := run(t, h, settings, 90*time.Minute)
		if len(h.asked) != 2 || log != "" {
			t.Errorf("asked %q, log: %s", h.asked, log)
		}
	})
}
