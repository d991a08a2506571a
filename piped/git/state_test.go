package git

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/c785c783/piped/piped/git/gittest"
)

// What is known of a remote: nothing, that it answers, since when it does not, and
// again that it does.
func TestStateShowsTheRemote(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	start := now
	up := gittest.New(t)
	head := up.Push(t, "first", map[string]string{"a.yaml": "1"})
	r := open(t, up.Dir, func(c *Config) { c.Now = func() time.Time { return now } })
	known := State{Remote: up.Dir, Branch: "main"}
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(known, r.State(), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("before anything was asked")
	mustSync(t, r, head, true)
	known.Head, known.CheckedAt, known.FetchedAt = head, start, start
	check("after a fetch")
	now = start.Add(time.Minute)
	mustSync(t, r, head, false)
	known.CheckedAt = now
	check("after a poll")

	if err := os.Rename(up.Dir, up.Dir+".away"); err != nil {
		t.Fatal(err)
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := r.Sync(gone); err == nil {
		t.Fatal("a Sync was not given up")
	}
	check("after an aborted poll")

	for range 2 {
		now = now.Add(time.Minute)
		_, _, known.Err = r.Sync(t.Context())
		if known.Err == nil {
			t.Fatal("a remote that is not there answers")
		}
	}
	known.FailingSince = start.Add(2 * time.Minute)
	check("while it cannot be reached")
	if err := os.Rename(up.Dir+".away", up.Dir); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	mustSync(t, r, head, false)
	known.CheckedAt, known.Err, known.FailingSince = now, nil, time.Time{}
	check("once it can be reached again")
}

func TestShownRemoteHasNoCredentials(t *testing.T) {
	for remote, want := range map[string]string{
		"https://bot:s3cret@host/a.git":   "https://host/a.git",
		"bot:s3cret@host:a.git":           "ssh://bot@host/a.git",
		"https://host/a.git?token=s3cret": "https://host/a.git",
		"ftp://bot:s3cret@host/a.git":     "",
	} {
		if got := ShownRemote(remote); got != want {
			t.Errorf("%s is shown as %q, want %q", remote, got, want)
		}
	}
}
