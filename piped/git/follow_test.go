package git

import (
	"context"
	"io/fs"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// TestFollow: an open mirror follows another remote, another branch, and comes
// back, while readers of what it held go on reading; a restart continues there.
func TestFollow(t *testing.T) {
	one, two := gittest.New(t), gittest.New(t)
	first := one.Push(t, "one", map[string]string{"a": "1"})
	other := two.Push(t, "two", map[string]string{"a": "2"})
	dir := t.TempDir()
	in := func(c *Config) { c.Dir = dir }
	r := open(t, one.Dir, in)
	mustSync(t, r, first, true)
	reader, err := r.At(first)
	if err != nil {
		t.Fatal(err)
	}

	follow := func(remote, branch string) {
		t.Helper()
		if err := r.Follow(t.Context(), remote, branch, Auth{}); err != nil {
			t.Fatal(err)
		}
	}
	follow(two.Dir, "main")
	if r.Remote() != two.Dir {
		t.Errorf("remote %s", r.Remote())
	}
	if _, ok := r.Head(); ok {
		t.Error("another remote has the head of the first")
	}
	mustSync(t, r, other, true)
	for commit, want := range map[string]string{first: "1", other: "2"} {
		if got := read(t, r, commit, "a"); got != want {
			t.Errorf("a at %s is %q, want %q", commit, got, want)
		}
	}
	if got, err := fs.ReadFile(reader, "a"); err != nil || string(got) != "1" {
		t.Errorf("a reader of the first remote's commit reads %q: %v", got, err)
	}

	follow(two.Dir, "later")
	if _, ok := r.Head(); ok {
		t.Error("another branch has the head of the first")
	}
	follow(two.Dir, "main")
	mustSync(t, r, other, false)
	follow(one.Dir, "main")
	mustSync(t, r, first, true)
	if got := r.Stats().Fetches; got != 2 {
		t.Errorf("%d fetches, want 2: the mirror held the commit already", got)
	}
	mustSync(t, open(t, one.Dir, in), first, false)
}

// TestFollowWithOtherCredentials: a rotated password works from then on.
func TestFollowWithOtherCredentials(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	s := up.HTTP(t, gittest.HTTPOptions{Username: "bot", Password: "new"})
	r := open(t, s.URL, func(c *Config) { c.Auth = Auth{Username: "bot", Password: "old"} })
	if _, _, err := r.Sync(t.Context()); !deploy.IsKind(err, deploy.Unavailable) {
		t.Fatalf("with the old password: %v", err)
	}
	if err := r.Follow(t.Context(), s.URL, "main", Auth{Username: "bot", Password: "new"}); err != nil {
		t.Fatal(err)
	}
	mustSync(t, r, hash, true)
}

// TestFollowRefuses: what cannot be followed changes nothing.
func TestFollowRefuses(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	r := open(t, up.Dir)
	for name, c := range map[string]Config{
		"remote": {Remote: "ftp://host/x", Branch: "main"},
		"branch": {Remote: up.Dir, Branch: "a..b"},
		"key":    {Remote: "git@host:x", Branch: "main", Auth: Auth{SSHKey: "no key"}},
	} {
		if err := r.Follow(t.Context(), c.Remote, c.Branch, c.Auth); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
		c.ID, c.Dir = "repo-1", t.TempDir()
		if err := c.Check(); !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s: Check: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.flights.runway <- struct{}{} // a Sync that does not end
	if err := r.Follow(ctx, up.Dir, "other", Auth{}); err == nil {
		t.Error("Follow did not wait for the Sync")
	}
	<-r.flights.runway
	mustSync(t, r, hash, true)
}
