package git

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/outbound"
)

// openRemotes opens Remotes that may ask this machine.
func openRemotes(t *testing.T, edit ...func(*RemotesConfig)) *Remotes {
	t.Helper()
	c := RemotesConfig{Dir: t.TempDir(), Timeout: 5 * time.Minute, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Public: outbound.NotPrivate, Known: outbound.NotMetadata}
	for _, f := range edit {
		f(&c)
	}
	r, err := OpenRemotes(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	r.Allow([]string{"127.0.0.1"}, func(string) (Auth, error) { return Auth{}, nil })
	return r
}

// tag tags a commit; annotated gives the tag an object of its own.
func tag(t *testing.T, up *gittest.Repo, name, commit string, annotated bool) {
	t.Helper()
	sto := filesystem.NewStorage(osfs.New(up.Dir), cache.NewObjectLRUDefault())
	h := plumbing.NewHash(commit)
	if annotated {
		o := sto.NewEncodedObject()
		err := (&object.Tag{
			Name: name, Message: name, Tagger: object.Signature{Name: "T", Email: "t@example.com"}, TargetType: plumbing.CommitObject, Target: h,
		}).Encode(o)
		if err == nil {
			h, err = sto.SetEncodedObject(o)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := sto.SetReference(plumbing.NewHashReference(plumbing.NewTagReferenceName(name), h)); err != nil {
		t.Fatal(err)
	}
}

// version reads the file in which every commit of these tests says which it is.
func version(t *testing.T, r *Remotes, remote, ref string) string {
	t.Helper()
	files, commit, err := r.At(t.Context(), remote, ref)
	if err != nil {
		t.Fatalf("%q: %v", ref, err)
	}
	data, err := fs.ReadFile(files, "dir/version")
	if err != nil || len(commit) != 40 {
		t.Fatalf("%q at %q: %v", ref, commit, err)
	}
	return string(data)
}

func push(t *testing.T, up *gittest.Repo, version string) string {
	t.Helper()
	return up.Push(t, version, map[string]string{"dir/version": version, "dir/" + version: strings.Repeat(version, 1000)})
}

func TestRemotesByEveryKindOfReference(t *testing.T) {
	up := gittest.New(t)
	first := push(t, up, "1")
	tag(t, up, "v1", first, true)
	second := push(t, up, "2")
	tag(t, up, "v2", second, false)
	third := push(t, up, "3")
	server := up.HTTP(t, gittest.HTTPOptions{})
	r := openRemotes(t)
	for _, c := range []struct{ ref, want string }{
		{"", "3"}, {"main", "3"}, {"refs/heads/main", "3"}, {"v1", "1"}, {"refs/tags/v1", "1"}, {"v2", "2"}, {third, "3"}, {second, "2"}, {first, "1"},
	} {
		if got := version(t, r, server.URL, c.ref); got != c.want {
			t.Errorf("%q: got version %s, want %s", c.ref, got, c.want)
		}
	}
}

func TestRemotesAskForAHashThatTheServerGives(t *testing.T) {
	for _, given := range []bool{true, false} {
		up := gittest.New(t)
		old := push(t, up, "1")
		push(t, up, "2")
		if given {
			config := filepath.Join(up.Dir, "config")
			data, err := os.ReadFile(config)
			if err == nil {
				err = os.WriteFile(config, append(data, "[uploadpack]\n\tallowReachableSHA1InWant = true\n"...), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		server := up.HTTP(t, gittest.HTTPOptions{})
		r := openRemotes(t)
		if got := version(t, r, server.URL, old); got != "1" {
			t.Errorf("given %v: got version %s, want 1", given, got)
		}
		if _, _, err := r.At(t.Context(), server.URL, strings.Repeat("a", 40)); err == nil {
			t.Errorf("given %v: a commit that is nowhere was found", given)
		}
	}
}

// TestRemotesAskOnlyWhenTheyMust: commits and tags that are there cost no
// network, a branch one question in ten seconds.
func TestRemotesAskOnlyWhenTheyMust(t *testing.T) {
	up := gittest.New(t)
	first := push(t, up, "1")
	tag(t, up, "v1", first, true)
	server := up.HTTP(t, gittest.HTTPOptions{})
	now := time.Now()
	dir := t.TempDir()
	edit := func(c *RemotesConfig) { c.Dir, c.Now = dir, func() time.Time { return now } }
	r := openRemotes(t, edit)
	packs, listings := int64(0), int64(0)
	asked := func(what string, wantListings, wantPacks int64) {
		t.Helper()
		p, l := server.Packs()-packs, server.Listings()-listings
		packs, listings = server.Packs(), server.Listings()
		if (l > 0) != (wantListings > 0) || p != wantPacks {
			t.Errorf("%s: %d listings and %d packs, want %d and %d", what, l, p, wantListings, wantPacks)
		}
	}
	version(t, r, server.URL, "v1")
	asked("a tag for the first time", 1, 1)
	version(t, r, server.URL, "v1")
	version(t, r, server.URL, first)
	asked("a tag and a commit that are there", 0, 0)
	version(t, r, server.URL, "main")
	asked("a branch at a commit that is there", 1, 0)
	push(t, up, "2")
	if got := version(t, r, server.URL, "main"); got != "1" {
		t.Errorf("got version %s right after, want 1", got)
	}
	asked("a branch again at once", 0, 0)
	now = now.Add(freshFor)
	if got := version(t, r, server.URL, "main"); got != "2" {
		t.Errorf("got version %s later, want 2", got)
	}
	asked("a branch again later", 1, 1)

	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r = openRemotes(t, edit)
	version(t, r, server.URL, "v1")
	version(t, r, server.URL, first)
	asked("a tag and a commit after a restart", 0, 0)
}

// TestKnownReferencesWaitForNoFetch: what is there of a remote is given while the remote
// does not answer another caller.
func TestKnownReferencesWaitForNoFetch(t *testing.T) {
	up := gittest.New(t)
	tag(t, up, "v1", up.Push(t, "one", map[string]string{"dir/version": "one"}), false)
	server := up.HTTP(t, gittest.HTTPOptions{})
	r := openRemotes(t)
	if got := version(t, r, server.URL, "v1"); got != "one" {
		t.Fatalf("v1 is %q", got)
	}
	asked := make(chan struct{})
	hang, once := gittest.Hang(), sync.Once{}
	server.SetFault(func(w http.ResponseWriter, req *http.Request, next http.Handler) {
		once.Do(func() { close(asked) })
		hang(w, req, next)
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, _, err := r.At(ctx, server.URL, "v2")
		ended <- err
	}()
	<-asked
	if got := version(t, r, server.URL, "v1"); got != "one" {
		t.Errorf("while v2 is asked for, v1 is %q", got)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the fetch of v2 ended with %v", err)
	}
}

func TestRemotesFetchWithoutHistory(t *testing.T) {
	up := gittest.New(t)
	first := push(t, up, "1")
	push(t, up, "2")
	server := up.HTTP(t, gittest.HTTPOptions{})
	r := openRemotes(t)
	version(t, r, server.URL, "main")
	for _, m := range r.mirrors {
		if m.objects.has(plumbing.NewHash(first)) {
			t.Error("the commit before was fetched, too")
		}
		if shallow, err := m.objects.sto.Shallow(); err != nil || len(shallow) != 1 {
			t.Errorf("shallow commits: %v, %v, want one", shallow, err)
		}
	}
}

func TestRemotesOverSSHAndWithCredentials(t *testing.T) {
	up := gittest.New(t)
	commit := push(t, up, "1")
	key, public, err := gittest.NewUserKey()
	if err != nil {
		t.Fatal(err)
	}
	secure := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	server := up.HTTP(t, gittest.HTTPOptions{Username: "bot", Password: "pass"})
	r := openRemotes(t)
	if _, _, err := r.At(t.Context(), server.URL, "main"); !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("without credentials: %v", err)
	}
	r.Allow([]string{"127.0.0.1"}, func(string) (Auth, error) {
		return Auth{Username: "bot", Password: "pass", SSHKey: Secret(key), KnownHostsFiles: []string{secure.KnownHostsFile(t)}}, nil
	})
	for _, remote := range []string{server.URL, secure.URL} {
		if got := version(t, r, remote, "main"); got != "1" {
			t.Errorf("%s: got version %s, want 1 (%s)", remote, got, commit)
		}
	}
}

func TestRemotesRefuse(t *testing.T) {
	up := gittest.New(t)
	push(t, up, "1")
	server := up.HTTP(t, gittest.HTTPOptions{})
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r := openRemotes(t)
	tests := []struct {
		name, remote, ref string
		hosts             []string
		want              string
	}{
		{"a host that is not allowed", "https://git.example.com/a/b", "main", []string{"127.0.0.1"},
			"the host git.example.com is not allowed; add it to git.remoteHosts of the agent, or copy what is needed into this repository"},
		{"a host over ssh", "git@git.example.com:a/b", "main", nil, "the host git.example.com is not allowed;"},
		{"another port", server.URL, "main", []string{"127.0.0.1:1"}, "the host 127.0.0.1 is not allowed;"},
		{"unencrypted HTTP", "http://git.example.com/a/b", "main", []string{"git.example.com"}, "http://git.example.com/a/b is reached without encryption;"},
		{"a path", up.Dir, "main", []string{""}, up.Dir + " is a path of the agent's machine; expected https, ssh or user@host:path"},
		{"a file URL", "file://" + up.Dir, "main", []string{""}, up.Dir + " is a path of the agent's machine;"},
		{"another scheme", "ftp://127.0.0.1/a", "main", []string{"127.0.0.1"}, `scheme "ftp" is not supported`},
		{"a branch that is not there", server.URL, "gone", []string{u.Host}, "remote " + server.URL + ` has no branch, tag or commit "gone"; correct the reference, or push it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r.Allow(tt.hosts, func(string) (Auth, error) { return Auth{}, nil })
			_, _, err := r.At(t.Context(), tt.remote, tt.ref)
			if !deploy.IsKind(err, deploy.Invalid) || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v (%v), want %s", err, deploy.KindOf(err), tt.want)
			}
		})
	}
	r.Allow([]string{"http://git.example.com"}, func(string) (Auth, error) { return Auth{}, errors.New("no key") })
	if _, _, err := r.At(t.Context(), "http://git.example.com/a/b", ""); err == nil || err.Error() != "no key" {
		t.Errorf("unencrypted HTTP that is allowed: %v", err)
	}
}

func TestRemotesAreUnavailable(t *testing.T) {
	up := gittest.New(t)
	first := push(t, up, "1")
	server := up.HTTP(t, gittest.HTTPOptions{})
	r := openRemotes(t)
	for name, fault := range map[string]gittest.Fault{"failing": gittest.Fail(500), "cut": gittest.CutPack(100)} {
		server.SetFault(fault)
		if _, _, err := r.At(t.Context(), server.URL, "main"); !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
	server.SetFault(nil)
	version(t, r, server.URL, "main")
	server.SetFault(gittest.Fail(500))
	if got := version(t, r, server.URL, first); got != "1" {
		t.Errorf("the commit that is there: version %s", got)
	}
	server.SetFault(gittest.Hang())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := r.At(ctx, server.URL, "other"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a cancelled call: %v", err)
	}
}

func TestRemotesRefuseWhatIsTooLarge(t *testing.T) {
	up := gittest.New(t)
	push(t, up, "1")
	server := up.HTTP(t, gittest.HTTPOptions{})
	r := openRemotes(t, func(c *RemotesConfig) { c.MaxBytes = 100 })
	_, _, err := r.At(t.Context(), server.URL, "main")
	if err == nil || !strings.Contains(err.Error(), "the remote sent more than the limit") {
		t.Errorf("got %v", err)
	}
}

// TestRemotesMakeRoom: the mirror that was used longest ago goes, once it is not
// in use any more; the rest stays.
func TestRemotesMakeRoom(t *testing.T) {
	var urls []string
	for range 3 {
		up := gittest.New(t)
		push(t, up, "1")
		urls = append(urls, up.HTTP(t, gittest.HTTPOptions{}).URL)
	}
	now := time.Now()
	r := openRemotes(t, func(c *RemotesConfig) { c.MaxMirrors, c.Now = 1, func() time.Time { return now } })
	kept := func(when string, want int) {
		t.Helper()
		dirs, err := os.ReadDir(r.cfg.Dir)
		if err != nil || len(dirs) != want || len(r.mirrors) != want {
			t.Errorf("%s: %d mirrors on disk, %d open (%v), want %d", when, len(dirs), len(r.mirrors), err, want)
		}
	}
	version(t, r, urls[0], "main")
	version(t, r, urls[1], "main")
	kept("both in use", 2)
	now = now.Add(usedFor)
	version(t, r, urls[2], "main")
	kept("later", 1)
	version(t, r, urls[0], "main")
	kept("again", 2)
}

func TestRemotesBeginAnewWithAMirrorThatCannotBeRead(t *testing.T) {
	up := gittest.New(t)
	push(t, up, "1")
	server := up.HTTP(t, gittest.HTTPOptions{})
	dir := t.TempDir()
	r := openRemotes(t, func(c *RemotesConfig) { c.Dir = dir })
	version(t, r, server.URL, "main")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	heads, err := filepath.Glob(filepath.Join(dir, "*", "HEAD"))
	if err != nil || len(heads) != 1 {
		t.Fatal(heads, err)
	}
	if err := os.Remove(heads[0]); err != nil {
		t.Fatal(err)
	}
	r = openRemotes(t, func(c *RemotesConfig) { c.Dir = dir })
	if got := version(t, r, server.URL, "main"); got != "1" {
		t.Errorf("got version %s, want 1", got)
	}
}

// TestRemotesConcurrently: one fetch serves all who ask at once. Run with -race.
func TestRemotesConcurrently(t *testing.T) {
	up := gittest.New(t)
	push(t, up, "1")
	server := up.HTTP(t, gittest.HTTPOptions{})
	r := openRemotes(t)
	var mu sync.Mutex
	var got []string
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			files, _, err := r.At(t.Context(), server.URL, "main")
			if err != nil {
				t.Error(err)
				return
			}
			data, err := fs.ReadFile(files, "dir/version")
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, string(data))
		})
	}
	wg.Wait()
	if diff := cmp.Diff(strings.Split("11111111", ""), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if server.Packs() != 1 {
		t.Errorf("%d packs were fetched, want 1", server.Packs())
	}
}
