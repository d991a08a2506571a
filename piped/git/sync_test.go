package git

import (
	"context"
	"errors"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// remotes are the ways to reach one repository.
var remotes = map[string]func(*testing.T, *gittest.Repo) (string, Auth){
	"path": func(_ *testing.T, up *gittest.Repo) (string, Auth) { return up.Dir, Auth{} },
	"file url": func(_ *testing.T, up *gittest.Repo) (string, Auth) {
		return "file://" + up.Dir, Auth{}
	},
	"http": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		return up.HTTP(t, gittest.HTTPOptions{}).URL, Auth{}
	},
	"http with password": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		s := up.HTTP(t, gittest.HTTPOptions{Username: "bot", Password: "s3cret"})
		return s.URL, Auth{Username: "bot", Password: "s3cret"}
	},
	"http with password in url": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		s := up.HTTP(t, gittest.HTTPOptions{Username: "bot", Password: "s3cret"})
		return strings.Replace(s.URL, "http://", "http://bot:s3cret@", 1), Auth{}
	},
	"http redirected": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		s := up.HTTP(t, gittest.HTTPOptions{})
		s.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if rest, ok := strings.CutPrefix(r.URL.Path, "/old.git"); ok {
				http.Redirect(w, r, "/repo.git"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
				return
			}
			next.ServeHTTP(w, r)
		})
		return strings.Replace(s.URL, "/repo.git", "/old.git", 1), Auth{}
	},
	"ssh with key": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		private, public := userKey(t)
		s := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
		return s.URL, Auth{SSHKey: private, KnownHostsFiles: []string{s.KnownHostsFile(t)}}
	},
	"ssh with password": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		s := up.SSH(t, gittest.SSHOptions{Password: "s3cret"})
		return s.URL, Auth{Password: "s3cret", KnownHostsFiles: []string{s.KnownHostsFile(t)}}
	},
	"scp-like": func(t *testing.T, up *gittest.Repo) (string, Auth) {
		private, public := userKey(t)
		s := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
		return "git@" + s.Addr + ":/repo.git", Auth{SSHKey: private, KnownHostsFiles: []string{s.KnownHostsFile(t)}}
	},
}

func userKey(t *testing.T) (Secret, ssh.PublicKey) {
	t.Helper()
	private, public, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	return Secret(private), public
}

func TestSyncFollowsTheBranchOverEveryTransport(t *testing.T) {
	for name, remote := range remotes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := gittest.New(t)
			first := up.Push(t, "first", map[string]string{"a.yaml": "1", "dir/b.yaml": "1"})
			url, auth := remote(t, up)
			r := open(t, url, func(c *Config) { c.Auth = auth })

			if c, ok := r.Head(); ok {
				t.Errorf("Head before the first Sync = %v", c)
			}
			mustSync(t, r, first, true)
			mustSync(t, r, first, false)
			if got := r.Stats(); got.Fetches != 1 || got.LsRemotes != 2 {
				t.Errorf("after two Syncs of one head: %+v", got)
			}

			second := up.Push(t, "second", map[string]string{"a.yaml": "2"})
			if h, err := r.RemoteHead(t.Context()); err != nil || h != second {
				t.Errorf("RemoteHead = %s, %v; want %s", h, err, second)
			}
			if _, err := r.Commit(t.Context(), second); !deploy.IsKind(err, deploy.NotFound) {
				t.Errorf("RemoteHead fetched: Commit gives %v", err)
			}
			mustSync(t, r, second, true)
			if got := read(t, r, second, "a.yaml") + read(t, r, first, "a.yaml") + read(t, r, second, "dir/b.yaml"); got != "211" {
				t.Errorf("contents: %q", got)
			}

			// Rewritten: the second commit is replaced by another.
			if err := up.Reset(first); err != nil {
				t.Fatal(err)
			}
			third := up.Push(t, "third", map[string]string{"c.yaml": "3"})
			mustSync(t, r, third, true)
			if err := up.Reset(first); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, first, true)
			if got := r.Stats(); got.Fetches != 3 {
				t.Errorf("going back to a commit already here fetched: %+v", got)
			}
			if _, err := r.Commit(t.Context(), second); err != nil {
				t.Errorf("a commit the branch lost is gone from the mirror: %v", err)
			}
		})
	}
}

func TestSyncFetchesMergesAndLongHistoriesIncrementally(t *testing.T) {
	for _, name := range []string{"path", "http", "ssh with key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			shell(t, dir, `git init -q -b main .
				for i in 1 2 3; do echo $i > f$i; git add .; git commit -qm c$i; done
				git checkout -qb side; echo s > s; git add .; git commit -qm side
				git checkout -q main; echo m > m; git add .; git commit -qm main
				git merge -q --no-edit side; git tag -a v1 -m v1; git branch other HEAD~2
				git gc -q; git pack-refs --all`)
			up, err := gittest.NewRepo(filepath.Join(dir, ".git"))
			if err != nil {
				t.Fatal(err)
			}
			remote, auth := remotes[name](t, up)
			if name == "path" {
				remote = dir // a worktree, not a bare repository
			}
			r := open(t, remote, func(c *Config) { c.Auth = auth })
			mustSync(t, r, up.Head(), true)
			for i := range maxHaves + 10 {
				if _, err := up.Commit("empty " + string(rune('a'+i%26))); err != nil {
					t.Fatal(err)
				}
			}
			mustSync(t, r, up.Push(t, "last", map[string]string{"f1": "new"}), true)
			mustSync(t, r, up.Push(t, "very last", map[string]string{"f1": "newer"}), true)
			mirror := mirrorDir(r.cfg.Dir, r.cfg.ID)
			if got := shell(t, mirror, "git fsck --full --strict >&2; git for-each-ref --format='%(refname)'"); got != "refs/piped/heads/main\n" {
				t.Errorf("the mirror as git sees it:\n%s", got)
			}
		})
	}
}

func shell(t *testing.T, dir, script string) string {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

func TestHeadDescribesTheCommit(t *testing.T) {
	up := gittest.New(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 9*3600))
	up.Now = func() time.Time { return at }
	hash := up.Push(t, "\nfeat: größer  \n\nWhy it is so.\n", map[string]string{"a": "1"})
	r := open(t, up.Dir)
	mustSync(t, r, hash, true)
	want := deploy.Commit{
		Hash: hash, Message: "feat: größer", Branch: "main", At: at.UTC(),
		Author: "Test Author", AuthorEmail: "author@example.com", Committer: "Test Author", CommitterEmail: "author@example.com",
	}
	head, ok := r.Head()
	if diff := cmp.Diff(want, head); !ok || diff != "" {
		t.Errorf("Head (-want +got):\n%s", diff)
	}
	c, err := r.Commit(t.Context(), hash)
	if diff := cmp.Diff(want, c); err != nil || diff != "" {
		t.Errorf("Commit: %v (-want +got):\n%s", err, diff)
	}
}

func TestConcurrentSyncsShare(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	s := up.HTTP(t, gittest.HTTPOptions{})
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	s.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		arrived <- struct{}{}
		<-release
		next.ServeHTTP(w, r)
	})
	r := open(t, s.URL)

	// One is asking the remote while twenty more come.
	var wait sync.WaitGroup
	moved := make([]bool, 21)
	call := func(i int) {
		c, m, err := r.Sync(t.Context())
		if err != nil || c.Hash != hash {
			t.Errorf("Sync %d = %s, %v", i, c.Hash, err)
		}
		moved[i] = m
	}
	wait.Go(func() { call(0) })
	<-arrived
	for i := range 20 {
		wait.Go(func() { call(i + 1) })
	}
	close(release)
	wait.Wait()
	if s.Packs() != 1 || r.Stats().Fetches != 1 {
		t.Errorf("21 concurrent Syncs made %d fetches", s.Packs())
	}
	if !moved[0] {
		t.Error("the first Sync did not see the head move")
	}
	// Without sharing it would be 21; those that came late share anew.
	if n := s.Listings(); n > 6 {
		t.Errorf("21 concurrent Syncs listed the branches %d times", n)
	}
}

func TestCallersThatWaitShareTheNextFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		release := make(chan struct{})
		var wait sync.WaitGroup
		runs := make(chan string, 10)
		join := func(ctx context.Context, run func(context.Context, *flight), want error) {
			wait.Go(func() {
				if got, err := f.join(ctx, run); !errors.Is(err, want) || err == nil && !got.moved {
					t.Errorf("join = %+v, %v; want error %v", got, err, want)
				}
			})
			synctest.Wait()
		}
		join(t.Context(), func(_ context.Context, f *flight) { <-release; f.moved = true; runs <- "first" }, nil)
		gone, cancel := context.WithCancel(t.Context())
		join(gone, func(context.Context, *flight) { runs <- "cancelled" }, context.Canceled)
		for range 5 {
			join(t.Context(), func(_ context.Context, f *flight) { f.moved = true; runs <- "second" }, nil)
		}
		cancel()
		synctest.Wait()
		close(release)
		wait.Wait()
		close(runs)
		if diff := cmp.Diff([]string{"first", "second"}, slices.Collect(chanSeq(runs))); diff != "" {
			t.Errorf("runs (-want +got):\n%s", diff)
		}
	})
}

func TestAFlightWhoseRunnerGivesUpIsRunByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlights()
		var wait sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		hold := make(chan struct{})
		wait.Go(func() {
			_, err := f.join(t.Context(), func(context.Context, *flight) { <-hold })
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		// Two of one flight; the one that came first takes off, and gives up.
		ran := 0
		run := func(ctx context.Context, f *flight) {
			if ran++; ran == 1 {
				cancel()
				f.err = ctx.Err()
				return
			}
			f.moved = true
		}
		wait.Go(func() {
			if _, err := f.join(ctx, run); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled join gives %v", err)
			}
		})
		synctest.Wait()
		wait.Go(func() {
			got, err := f.join(t.Context(), run)
			if err != nil || !got.moved || got.err != nil {
				t.Errorf("join next to a cancelled one = %+v, %v", got, err)
			}
		})
		synctest.Wait()
		close(hold)
		wait.Wait()
		if ran != 2 {
			t.Errorf("%d runs, want one for each", ran)
		}
	})
}

func chanSeq[T any](c <-chan T) func(func(T) bool) {
	return func(yield func(T) bool) {
		for v := range c {
			if !yield(v) {
				return
			}
		}
	}
}
