package git

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// pushTo are the ways to reach a repository that accepts pushes.
func pushTo(t *testing.T, up *gittest.Repo) map[string]func(t *testing.T) *Repo {
	private, public := userKey(t)
	return map[string]func(t *testing.T) *Repo{
		"path": func(t *testing.T) *Repo { return open(t, up.Dir) },
		"http": func(t *testing.T) *Repo {
			s := up.HTTP(t, gittest.HTTPOptions{Username: "u", Password: "p", Push: true})
			return open(t, s.URL, func(c *Config) { c.Auth = Auth{Username: "u", Password: "p"} })
		},
		"ssh": func(t *testing.T) *Repo {
			s := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public, Push: true})
			return open(t, s.URL, func(c *Config) {
				c.Auth = Auth{SSHKey: Secret(private), KnownHostsFiles: []string{s.KnownHostsFile(t)}}
			})
		},
	}
}

func change(parent string, files map[string][]byte) Change {
	return Change{
		Parent: parent, Files: files, Message: "Set image to v2\n\nCause: build-7\n" + deploy.TraceTrailer + ": c0ffee", Author: "piped", Email: "piped@example.com",
		At: time.Unix(1_700_000_000, 0),
	}
}

func TestPush(t *testing.T) {
	for name := range pushTo(t, gittest.New(t)) {
		t.Run(name, func(t *testing.T) {
			up := gittest.New(t)
			up.Push(t, "first", map[string]string{"apps/web/app.yaml": "v1", "apps-x": "x", "apps/web.txt": "t", "run.sh": "#!"})
			if err := up.SetExecutable("run.sh", true); err != nil {
				t.Fatal(err)
			}
			first := up.Push(t, "executable", nil)
			r := pushTo(t, up)[name](t)
			mustSync(t, r, first, true)
			commit, err := r.Push(t.Context(), gittest.Branch, change(first, map[string][]byte{"apps/web/app.yaml": []byte("v2"), "run.sh": []byte("#!2")}))
			if err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, commit, true)
			if got := read(t, r, commit, "apps/web/app.yaml") + read(t, r, commit, "run.sh") + read(t, r, commit, "apps-x"); got != "v2#!2x" {
				t.Errorf("files after the push: %q", got)
			}
			head, _ := r.Head()
			if head.Message != "Set image to v2" || head.Author != "piped" || head.Trace != "c0ffee" || head.At.Unix() != 1_700_000_000 {
				t.Errorf("head: %+v", head)
			}
			found, ok, err := r.WithTrailer(t.Context(), commit, "cause", "build-7")
			if err != nil || !ok || found.Hash != commit {
				t.Errorf("commit with the trailer: %+v, %v, %v", found, ok, err)
			}
			if _, ok, err = r.WithTrailer(t.Context(), commit, "Cause", "build-8"); ok || err != nil {
				t.Errorf("commit with no such trailer: %v, %v", ok, err)
			}
			changed, err := r.Changed(t.Context(), first, commit)
			if err != nil || len(changed) != 2 {
				t.Errorf("changed: %v, %v", changed, err)
			}
			listed, err := exec.Command("git", "-c", "safe.directory=*", "-C", up.Dir, "ls-tree", "HEAD", "run.sh").Output()
			if err != nil || !strings.HasPrefix(string(listed), "100755") {
				t.Errorf("mode after the push: %s, %v", listed, err)
			}
			if out, err := exec.Command("git", "-c", "safe.directory=*", "-C", up.Dir, "fsck", "--strict").CombinedOutput(); err != nil {
				t.Errorf("fsck: %v\n%s", err, out)
			}

			// A new branch, and the same again.
			side, err := r.Push(t.Context(), "image-1", change(commit, map[string][]byte{"apps-x": []byte("y")}))
			if err != nil {
				t.Fatal(err)
			}
			again, err := r.Push(t.Context(), "image-1", change(commit, map[string][]byte{"apps-x": []byte("z")}))
			if !deploy.IsKind(err, deploy.Exists) || again != side {
				t.Errorf("pushed to a branch that exists: %s, %v", again, err)
			}

			// What was pushed meanwhile is not overwritten.
			up.Pull(t)
			theirs := up.Push(t, "theirs", map[string]string{"apps-x": "theirs"})
			if _, err = r.Push(t.Context(), gittest.Branch, change(commit, map[string][]byte{"apps-x": []byte("ours")})); !deploy.IsKind(err, deploy.Conflict) {
				t.Errorf("pushed over another commit: %v", err)
			}
			mustSync(t, r, theirs, true)
		})
	}
}

// Of pushes that come at the same time each is done exactly once, on top of the
// others.
func TestPushesAtTheSameTime(t *testing.T) {
	const writers, each = 4, 3
	for name := range pushTo(t, gittest.New(t)) {
		t.Run(name, func(t *testing.T) {
			up := gittest.New(t)
			files := map[string]string{}
			for i := range writers {
				files[fmt.Sprintf("f%d", i)] = "0"
			}
			up.Push(t, "first", files)
			var wait sync.WaitGroup
			for i := range writers {
				r := pushTo(t, up)[name](t)
				wait.Go(func() {
					for n := 1; n <= each; {
						head, _, err := r.Sync(t.Context())
						if err == nil {
							_, err = r.Push(t.Context(), gittest.Branch, change(head.Hash, map[string][]byte{fmt.Sprintf("f%d", i): fmt.Append(nil, n)}))
						}
						if err == nil {
							n++
						} else if !deploy.IsKind(err, deploy.Conflict) {
							t.Error(err)
							return
						}
					}
				})
			}
			wait.Wait()
			out, err := exec.Command("git", "-c", "safe.directory=*", "-C", up.Dir, "rev-list", "--count", gittest.Branch).Output()
			if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(writers*each+1) {
				t.Errorf("commits: %s, %v", out, err)
			}
			r := open(t, up.Dir)
			head, _, err := r.Sync(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i := range writers {
				if got := read(t, r, head.Hash, fmt.Sprintf("f%d", i)); got != fmt.Sprint(each) {
					t.Errorf("f%d holds %s", i, got)
				}
			}
		})
	}
}

func TestPushRefused(t *testing.T) {
	const hook = "#!/bin/sh\necho 'branch main is protected,' >&2\necho 'open a pull request' >&2\nexit 1\n"
	hooked := gittest.New(t)
	head := hooked.Push(t, "first", map[string]string{"a": "1"})
	if err := os.MkdirAll(filepath.Join(hooked.Dir, "hooks"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hooked.Dir, "hooks", "pre-receive"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	worktree := filepath.Join(t.TempDir(), "worktree")
	if out, err := exec.Command("git", "-c", "safe.directory=*", "clone", "-q", hooked.Dir, worktree).CombinedOutput(); err != nil {
		t.Fatalf("clone: %v\n%s", err, out)
	}
	private, public := userKey(t)
	over := pushTo(t, hooked)
	for name, c := range map[string]struct {
		repo func(t *testing.T) *Repo
		edit func(*Change)
		kind deploy.Kind
		says string
	}{
		"hook over http":       {over["http"], nil, deploy.Invalid, "pre-receive hook declined: branch main is protected, open a pull request"},
		"hook over ssh":        {over["ssh"], nil, deploy.Invalid, "pre-receive hook declined: branch main is protected, open a pull request"},
		"http that only reads": {func(t *testing.T) *Repo { return open(t, hooked.HTTP(t, gittest.HTTPOptions{}).URL) }, nil, deploy.Invalid, "the credentials do not permit it"},
		"ssh that only reads": {func(t *testing.T) *Repo {
			s := hooked.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
			return open(t, s.URL, func(c *Config) {
				c.Auth = Auth{SSHKey: Secret(private), KnownHostsFiles: []string{s.KnownHostsFile(t)}}
			})
		}, nil, deploy.Invalid, "Repository not found"},
		"branch that is checked out": {func(t *testing.T) *Repo { return open(t, worktree) }, nil, deploy.Invalid, "checked out"},
		"file that is not there":     {over["path"], func(c *Change) { c.Files = map[string][]byte{"b/c": nil} }, deploy.NotFound, "no such file or directory: b"},
		"parent that is not there":   {over["path"], func(c *Change) { c.Parent = strings.Repeat("0", 40) }, deploy.NotFound, "not in the mirror"},
		"locked branch": {func(t *testing.T) *Repo {
			lock := filepath.Join(hooked.Dir, "refs/heads/main.lock")
			if err := os.WriteFile(lock, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Remove(lock) })
			return open(t, hooked.Dir)
		}, nil, deploy.Conflict, "cannot lock ref"},
	} {
		t.Run(name, func(t *testing.T) {
			r := c.repo(t)
			mustSync(t, r, head, true)
			ch := change(head, map[string][]byte{"a": []byte("2")})
			if c.edit != nil {
				c.edit(&ch)
			}
			commit, err := r.Push(t.Context(), gittest.Branch, ch)
			if deploy.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.says) || commit != "" {
				t.Errorf("got %q, %v (%s), want kind %s and %q", commit, err, deploy.KindOf(err), c.kind, c.says)
			}
		})
	}
	if hooked.Pull(t); hooked.Head() != head {
		t.Errorf("the branch was moved to %s", hooked.Head())
	}
}

func TestPushUnavailable(t *testing.T) {
	up := gittest.New(t)
	head := up.Push(t, "first", map[string]string{"a": "1"})
	s := up.HTTP(t, gittest.HTTPOptions{Push: true})
	dir := t.TempDir()
	mustSync(t, open(t, s.URL, func(c *Config) { c.Dir = dir }), head, true) // with time for a busy machine
	r := open(t, s.URL, func(c *Config) { c.Dir, c.Timeout = dir, time.Second })
	for name, fault := range map[string]gittest.Fault{"down": gittest.Fail(http.StatusBadGateway), "silent": gittest.Hang()} {
		s.SetFault(fault)
		if _, err := r.Push(t.Context(), gittest.Branch, change(head, map[string][]byte{"a": []byte("2")})); !deploy.IsKind(err, deploy.Unavailable) || errors.Is(err, http.ErrServerClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTrailer(t *testing.T) {
	for message, want := range map[string]string{
		"s":                             "",
		"Key: a":                        "",
		"s\n\nKey: a":                   "a",
		"s\n\nbody\n\nOther: b\nkey:a ": "a",
		"s\n\nKey: a\n\nOther: b":       "",
		"s\r\n\r\nKey: a\r\nKey: b\r\n": "b",
	} {
		if got := trailer(message, "Key"); got != want {
			t.Errorf("%q: %q, want %q", message, got, want)
		}
	}
}

// TestPushNotPermitted: a push that is no longer permitted once the remote has answered is not sent.
func TestPushNotPermitted(t *testing.T) {
	up := gittest.New(t)
	first := up.Push(t, "first", map[string]string{"a": "1"})
	refuse := false
	r := open(t, up.Dir, func(c *Config) {
		c.Permit = func(context.Context) error {
			if refuse {
				return deploy.Errorf(deploy.Unavailable, "another agent has the database")
			}
			return nil
		}
	})
	mustSync(t, r, first, true)
	for _, branch := range []string{gittest.Branch, "proposal"} {
		refuse = true
		_, err := r.Push(t.Context(), branch, change(first, map[string][]byte{"a": []byte("2")}))
		if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "another agent has the database") {
			t.Errorf("push to %s: %v", branch, err)
		}
	}
	if _, moved, err := r.Sync(t.Context()); err != nil || moved {
		t.Errorf("the branch has moved: %t, %v", moved, err)
	}
	refuse = false
	for _, branch := range []string{"proposal", gittest.Branch} { // the first finds no branch of the refused push
		if _, err := r.Push(t.Context(), branch, change(first, map[string][]byte{"a": []byte("2")})); err != nil {
			t.Errorf("push to %s: %v", branch, err)
		}
	}
}
