package git

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

func TestARemoteThatDoesNotAnswerAsWishedIsNamedWithItsCause(t *testing.T) {
	up := gittest.New(t)
	up.Push(t, "first", map[string]string{"a": "1"})
	empty := gittest.New(t)
	private, public := userKey(t)
	stranger, _ := userKey(t)
	sshd := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	other := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	const closedPort = "127.0.0.1:1" // a free one may be that of another test meanwhile

	known := sshd.KnownHostsFile(t)
	unknown := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(unknown, []byte(other.KnownHosts()), 0o600); err != nil {
		t.Fatal(err)
	}
	changed := filepath.Join(t.TempDir(), "known_hosts")
	if err := os.WriteFile(changed, []byte(strings.ReplaceAll(other.KnownHosts(), bracketed(other.Addr), bracketed(sshd.Addr))), 0o600); err != nil {
		t.Fatal(err)
	}
	fault := func(f gittest.Fault) string {
		s := up.HTTP(t, gittest.HTTPOptions{})
		s.SetFault(f)
		return s.URL
	}
	withPassword := up.HTTP(t, gittest.HTTPOptions{Username: "bot", Password: "s3cret"}).URL

	cases := map[string]struct {
		remote string
		auth   Auth
		branch string
		kind   deploy.Kind
		want   string // in the message
	}{
		"path that does not exist":      {remote: "/nonexistent/repo.git", kind: deploy.Unavailable, want: "/nonexistent/repo.git: .*no such file"},
		"path without a repository":     {remote: t.TempDir(), kind: deploy.Unavailable, want: "no Git repository in this directory"},
		"branch missing, path":          {remote: up.Dir, branch: "nope", kind: deploy.Invalid, want: `no branch "nope"`},
		"branch missing, http":          {remote: up.HTTP(t, gittest.HTTPOptions{}).URL, branch: "nope", kind: deploy.Invalid, want: `no branch "nope"`},
		"branch missing, ssh":           {remote: sshd.URL, auth: Auth{SSHKey: private, KnownHostsFiles: []string{known}}, branch: "nope", kind: deploy.Invalid, want: `no branch "nope"`},
		"empty repository, path":        {remote: empty.Dir, kind: deploy.Invalid, want: `no branch "main"`},
		"empty repository, http":        {remote: empty.HTTP(t, gittest.HTTPOptions{}).URL, kind: deploy.Invalid, want: `no branch "main"`},
		"http refused":                  {remote: "http://" + closedPort + "/repo.git", kind: deploy.Unavailable, want: "connection refused"},
		"http not found":                {remote: fault(gittest.Fail(http.StatusNotFound)), kind: deploy.Unavailable, want: "repository not found"},
		"http server error":             {remote: fault(gittest.Fail(http.StatusBadGateway)), kind: deploy.Unavailable, want: "502"},
		"http forbidden":                {remote: fault(gittest.Fail(http.StatusForbidden)), kind: deploy.Unavailable, want: "access denied"},
		"http without password":         {remote: withPassword, kind: deploy.Unavailable, want: "authentication failed: check user name and password"},
		"http with wrong password":      {remote: withPassword, auth: Auth{Username: "bot", Password: "wr0ng"}, kind: deploy.Unavailable, want: "authentication failed"},
		"http, wrong password in url":   {remote: strings.Replace(withPassword, "://", "://tok3n:wr0ng@", 1), kind: deploy.Unavailable, want: "authentication failed"},
		"http refused, password in url": {remote: "http://tok3n:wr0ng@" + closedPort + "/repo.git?access_token=s3cret", kind: deploy.Unavailable, want: "connection refused"},
		"ssh refused":                   {remote: "ssh://git@" + closedPort + "/repo.git", auth: Auth{SSHKey: private}, kind: deploy.Unavailable, want: "connection refused"},
		"ssh key not authorized":        {remote: sshd.URL, auth: Auth{SSHKey: stranger, KnownHostsFiles: []string{known}}, kind: deploy.Unavailable, want: "unable to authenticate"},
		"ssh with wrong password":       {remote: sshd.URL, auth: Auth{Password: "wr0ng", KnownHostsFiles: []string{known}}, kind: deploy.Unavailable, want: "unable to authenticate"},
		"ssh repository not found":      {remote: strings.Replace(sshd.URL, "/repo.git", "/other.git", 1), auth: Auth{SSHKey: private, KnownHostsFiles: []string{known}}, kind: deploy.Unavailable, want: "the server says: ERROR: Repository not found."},
		"ssh host unknown":              {remote: sshd.URL, auth: Auth{SSHKey: private, KnownHostsFiles: []string{unknown}}, kind: deploy.Unavailable, want: "is not known.*add this line to " + regexp.QuoteMeta(unknown)},
		"ssh without anything":          {remote: sshd.URL, auth: Auth{KnownHostsFiles: []string{known}}, kind: deploy.Unavailable, want: "unable to authenticate"},
		"ssh without known_hosts files": {remote: sshd.URL, auth: Auth{SSHKey: private, KnownHostsFiles: []string{"/nonexistent/known_hosts"}}, kind: deploy.Unavailable, want: "is not known.*/nonexistent/known_hosts"},
		"ssh host key changed":          {remote: sshd.URL, auth: Auth{SSHKey: private, KnownHostsFiles: []string{changed}}, kind: deploy.Unavailable, want: "shows another key than the known one.*replace the line at " + regexp.QuoteMeta(changed)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := open(t, c.remote, func(cfg *Config) {
				cfg.Auth = c.auth
				if c.branch != "" {
					cfg.Branch = c.branch
				}
			})
			_, errHead := r.RemoteHead(t.Context())
			_, _, errSync := r.Sync(t.Context())
			for _, err := range []error{errHead, errSync} {
				if !deploy.IsKind(err, c.kind) || !regexp.MustCompile(c.want).MatchString(err.Error()) {
					t.Errorf("error of kind %v: %v\nwant kind %v and %q", deploy.KindOf(err), err, c.kind, c.want)
				}
				if !strings.Contains(err.Error(), r.Remote()) {
					t.Errorf("error does not name the remote %s: %v", r.Remote(), err)
				}
				for _, secret := range []string{"s3cret", "wr0ng", "tok3n", "<html>", string(private)} {
					if strings.Contains(err.Error(), secret) {
						t.Errorf("error shows %q: %v", secret, err)
					}
				}
			}
		})
	}
}

func TestTheLineForAnUnknownHostMakesItKnown(t *testing.T) {
	up := gittest.New(t)
	hash := up.Push(t, "first", map[string]string{"a": "1"})
	private, public := userKey(t)
	all, err := gittest.NewHostKeys()
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range all {
		// The server has every key, or just this one.
		for _, keys := range [][]int{{0, 1, 2}, {i}} {
			options := gittest.SSHOptions{AuthorizedKey: public}
			for _, k := range keys {
				options.HostKeys = append(options.HostKeys, all[k])
			}
			s := up.SSH(t, options)
			file := filepath.Join(t.TempDir(), "known_hosts")
			r := open(t, s.URL, func(c *Config) { c.Auth = Auth{SSHKey: private, KnownHostsFiles: []string{file}} })
			_, err := r.RemoteHead(t.Context())
			if err == nil {
				t.Fatal("an unknown host was trusted")
			}
			_, line, _ := strings.Cut(err.Error(), file+": ")
			if !strings.Contains(s.KnownHosts(), line+"\n") {
				t.Errorf("line %q is not one of\n%s", line, s.KnownHosts())
			}
			if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, hash, true)
			// Only this kind of key being known, it is the one asked for.
			if err := os.WriteFile(file, []byte(lineFor(s, key.PublicKey().Type())), 0o600); err != nil {
				t.Fatal(err)
			}
			mustSync(t, r, hash, false)
		}
	}
}

func lineFor(s *gittest.SSHServer, kind string) string {
	for line := range strings.Lines(s.KnownHosts()) {
		if strings.Contains(line, " "+kind+" ") {
			return line
		}
	}
	return ""
}

func TestASilentServerIsLeftAfterTheTimeout(t *testing.T) {
	up := gittest.New(t)
	up.Push(t, "first", map[string]string{"a": "1"})
	private, public := userKey(t)
	httpd := func(f gittest.Fault) string {
		s := up.HTTP(t, gittest.HTTPOptions{})
		s.SetFault(f)
		return s.URL
	}
	sshd := up.SSH(t, gittest.SSHOptions{AuthorizedKey: public})
	sshd.SetSilent(true)
	for name, remote := range map[string]string{
		"http listing": httpd(gittest.Hang()), "http pack": httpd(gittest.StallPack(20)), "ssh": sshd.URL,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auth := Auth{SSHKey: private, KnownHostsFiles: []string{sshd.KnownHostsFile(t)}}
			r := open(t, remote, func(c *Config) { c.Timeout, c.Auth = 200*time.Millisecond, auth })
			_, _, err := r.Sync(t.Context())
			if !deploy.IsKind(err, deploy.Unavailable) || !strings.Contains(err.Error(), "no answer within 200ms") {
				t.Errorf("by the timeout: %v", err)
			}
			patient := open(t, remote, func(c *Config) { c.Timeout, c.Auth = time.Hour, auth })
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, _, err = patient.Sync(ctx); !deploy.IsKind(err, deploy.Unavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("by the context: %v", err)
			}
		})
	}
}

func TestAnInterruptedFetchLeavesTheMirrorUsable(t *testing.T) {
	for name, fault := range map[string]gittest.Fault{
		"before the pack":           gittest.CutPack(0),
		"in the answer's beginning": gittest.CutPack(6),
		"in the pack's header":      gittest.CutPack(20),
		"in the pack":               gittest.CutPack(40_000),
		"server error":              gittest.Fail(http.StatusInternalServerError),
		"garbage": func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodPost {
				_, _ = w.Write([]byte("0008NAK\n0024\x01" + strings.Repeat("garbage", 5)[:31] + "0000"))
				return
			}
			next.ServeHTTP(w, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			up := gittest.New(t)
			first := up.Push(t, "first", map[string]string{"a": "1"})
			s := up.HTTP(t, gittest.HTTPOptions{})
			r := open(t, s.URL)
			mustSync(t, r, first, true)

			second := up.Push(t, "second", map[string]string{"a": "2", "large": noise(100_000)})
			s.SetFault(fault)
			if _, _, err := r.Sync(t.Context()); !deploy.IsKind(err, deploy.Unavailable) {
				t.Fatalf("Sync of kind %v: %v", deploy.KindOf(err), err)
			}
			if head, ok := r.Head(); !ok || head.Hash != first {
				t.Errorf("Head = %s, want still %s", head.Hash, first)
			}
			if got := read(t, r, first, "a"); got != "1" {
				t.Errorf("a = %q", got)
			}
			if _, err := r.Commit(t.Context(), second); !deploy.IsKind(err, deploy.NotFound) {
				t.Errorf("a commit that came in part: %v", err)
			}
			if left, _ := filepath.Glob(filepath.Join(mirrorDir(r.cfg.Dir, "repo-1"), "objects/pack/tmp_*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
			s.SetFault(nil)
			mustSync(t, r, second, true)
			if got := read(t, r, second, "a"); got != "2" {
				t.Errorf("a = %q", got)
			}
			reopened := open(t, s.URL, func(c *Config) { c.Dir = r.cfg.Dir })
			mustSync(t, reopened, second, false)
		})
	}
}

// noise returns n bytes that do not compress.
func noise(n int) string {
	b, x := make([]byte, n), uint64(1)
	for i := range b {
		x = x*6364136223846793005 + 1442695040888963407
		b[i] = byte(x >> 56)
	}
	return string(b)
}

func TestACopyFromALocalRemoteCanBeCancelled(t *testing.T) {
	up := gittest.New(t)
	first := up.Push(t, "first", map[string]string{"a": "1"})
	r := open(t, up.Dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.Sync(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Sync = %v", err)
	}
	if _, err := r.At(first); !deploy.IsKind(err, deploy.NotFound) {
		t.Errorf("At = %v", err)
	}
	mustSync(t, r, first, true)
}

func TestOpenRefusesWhatCannotWork(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"no id":               func(c *Config) { c.ID = "" },
		"no remote":           func(c *Config) { c.Remote = "" },
		"no branch":           func(c *Config) { c.Branch = "" },
		"no directory":        func(c *Config) { c.Dir = "" },
		"branch not a name":   func(c *Config) { c.Branch = "a..b" },
		"unknown scheme":      func(c *Config) { c.Remote = "ftp://bot:s3cret@host/repo.git" },
		"url that is none":    func(c *Config) { c.Remote = "https://bot:s3cret@host:x y/%zz" },
		"key that is none":    func(c *Config) { c.Remote, c.Auth.SSHKey = "git@host:repo.git", "s3cret" },
		"key with passphrase": func(c *Config) { c.Remote, c.Auth.SSHKey = "git@host:repo.git", keyWithPassphrase(t) },
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{ID: "repo-1", Remote: "/repo.git", Branch: "main", Dir: t.TempDir()}
			edit(&c)
			_, err := Open(c)
			if !deploy.IsKind(err, deploy.Invalid) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("Open of kind %v: %v", deploy.KindOf(err), err)
			}
			if entries, err := os.ReadDir(c.Dir); len(entries) > 0 {
				t.Errorf("Open left %v, %v", entries, err)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{ID: "a", Remote: "/repo.git", Branch: "main", Dir: file}); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open in a directory that is a file: %v", err)
	}
}

// bracketed is how known_hosts writes a host with a port.
func bracketed(addr string) string {
	host, port, _ := net.SplitHostPort(addr)
	return "[" + host + "]:" + port
}

func keyWithPassphrase(t *testing.T) Secret {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte("s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	return Secret(pem.EncodeToMemory(block))
}
