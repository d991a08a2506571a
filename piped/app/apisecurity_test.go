package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// certificates is a directory of certificates as Kubernetes mounts a Secret: the files
// are symlinks through a symlink to a directory, which is replaced.
type certificates struct {
	t      *testing.T
	dir    string
	rounds int
}

func (c *certificates) exchange() {
	c.t.Helper()
	c.rounds++
	version := fmt.Sprintf("..%d", c.rounds)
	if err := os.Mkdir(filepath.Join(c.dir, version), 0o700); err != nil {
		c.t.Fatal(err)
	}
	certificatetest.Write(c.t, filepath.Join(c.dir, version))
	if err := os.Symlink(version, filepath.Join(c.dir, "..tmp")); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(c.dir, "..tmp"), filepath.Join(c.dir, "..data")); err != nil {
		c.t.Fatal(err)
	}
}

func newCertificates(t *testing.T) *certificates {
	c := &certificates{t: t, dir: t.TempDir()}
	c.exchange()
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(c.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// shown returns the certificate that the API presents, or the error of the handshake.
func shown(a *App, own ...tls.Certificate) (certificate string, err error) {
	conn, err := tls.Dial("tcp", a.APIAddr(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: own})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the server speaks first, or refuses the client
		return "", err
	}
	return string(conn.ConnectionState().PeerCertificates[0].Raw), nil
}

func loadPair(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// TestCertificateOfASecretIsRotated replaces a certificate by a new symlink, and by files
// written one after the other. Between the two files the old pair stays in effect, which
// is logged once.
func TestCertificateOfASecretIsRotated(t *testing.T) {
	t.Parallel()
	mount := newCertificates(t)
	agent := runReloading(t, spec{dataDir: t.TempDir(), more: fmt.Sprintf(
		"  api: {address: \"127.0.0.1:0\", tlsCertFile: %[1]s/tls.crt, tlsKeyFile: %[1]s/tls.key}\n", mount.dir)}, 10*time.Millisecond)
	mustShow := func(what string, pair tls.Certificate) {
		t.Helper()
		if got, err := shown(agent.app); err != nil || got != string(pair.Certificate[0]) {
			t.Errorf("%s: another certificate is presented: %v", what, err)
		}
	}
	first := loadPair(t, mount.dir)
	mustShow("at the start", first)
	mount.exchange()
	agent.awaitLog("changed=\"api certificate\"")
	second := loadPair(t, mount.dir)
	mustShow("after the link was exchanged", second)

	next := t.TempDir()
	certificatetest.Write(t, next)
	move := func(name string) {
		t.Helper()
		if err := os.Rename(filepath.Join(next, name), filepath.Join(mount.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	third := loadPair(t, next)
	move("tls.crt")
	agent.awaitLog("is rejected, the former one stays", "private key does not match public key")
	mustShow("with half of a pair", second)
	for range 2 { // any signal triggers a reload at once; the second one is received after that
		agent.signal <- os.Interrupt
	}
	move("tls.key")
	eventually(t, "the whole pair is in effect", func() bool { return agent.log.contains("changed=\"api certificate\"") })
	mustShow("with the whole pair", third)
	mustContain(t, agent.log.String(), "reloading the configuration after a signal")
	if strings.Contains(agent.log.String(), "is rejected") {
		t.Errorf("logged twice:\n%s", agent.log)
	}
}

// TestClientAuthorityIsRotated: the client CA is replaced, added and removed without a
// restart.
func TestClientAuthorityIsRotated(t *testing.T) {
	t.Parallel()
	server, clients, others := t.TempDir(), t.TempDir(), t.TempDir()
	certificatetest.Write(t, server)
	certificatetest.Write(t, clients)
	certificatetest.Write(t, others)
	tlsFiles := fmt.Sprintf("address: \"127.0.0.1:0\", tlsCertFile: %[1]s/tls.crt, tlsKeyFile: %[1]s/tls.key", server)
	s := spec{dataDir: t.TempDir(), more: "  api: {" + tlsFiles + "}\n"}
	agent := runReloading(t, s, 10*time.Millisecond)
	client, other := loadPair(t, clients), loadPair(t, others)
	letsIn := func(what string, want bool, own ...tls.Certificate) {
		t.Helper()
		if _, err := shown(agent.app, own...); (err == nil) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	letsIn("no client certificate is requested", true)
	s.more = fmt.Sprintf("  api: {%s, clientCAFile: %s/tls.crt}\n", tlsFiles, clients)
	agent.write(s, "changed=\"api certificate\"")
	letsIn("no certificate", false)
	letsIn("the certificate of another CA", false, other)
	letsIn("a certificate of the authority", true, client)
	certificatetest.Write(t, clients)
	agent.awaitLog("changed=\"api certificate\"")
	letsIn("a certificate of the authority before", false, client)
	letsIn("a certificate of the new authority", true, loadPair(t, clients))
}

// TestRateLimitIsReloaded: the rate limit is reloaded, and the log says that the audit
// file is not.
func TestRateLimitIsReloaded(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir(), more: "  api: {address: \"127.0.0.1:0\", rateLimit: {perSecond: 1, burst: 1}}\n"}
	agent := runReloading(t, s, 10*time.Millisecond)
	refused := func() bool { // calls at once: a busy machine takes more than a second for each
		var some atomic.Bool
		var calls sync.WaitGroup
		for range 60 {
			calls.Go(func() {
				_, err := agent.api.ListApplications(agent.ctx, &apiservice.ListApplicationsRequest{})
				if status.Code(err) == codes.ResourceExhausted {
					some.Store(true)
				}
			})
		}
		calls.Wait()
		return some.Load()
	}
	if !refused() {
		t.Error("60 calls at once are not limited to one a second")
	}
	s.more = fmt.Sprintf("  api: {address: \"127.0.0.1:0\", auditFile: %s}\n", filepath.Join(t.TempDir(), "audit"))
	agent.write(s, "api.auditFile", inEffect, "changed=api.rateLimit")
	if refused() {
		t.Error("the new limit is not in effect")
	}
}

// TestKeysAreMadeWithoutOne: access to the agent's files is enough to create keys,
// whether the agent runs or not.
func TestKeysAreMadeWithoutOne(t *testing.T) {
	t.Parallel()
	s := spec{dataDir: t.TempDir()}
	path := filepath.Join(t.TempDir(), "piped.yaml")
	replaceFile(t, path, s.text(t.Name()))
	cfg, _, err := Kinds().LoadPiped(path)
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string, role deploy.Role) (string, error) {
		return CreateAPIKey(t.Context(), cfg, name, "", role)
	}
	if _, err := create("early", deploy.ReadWrite); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), ownerKeyFile) {
		t.Errorf("before the agent ever ran: %v", err)
	}
	stopped, err := New(t.Context(), cfg, Options{Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	if err := stopped.Close(); err != nil {
		t.Fatal(err)
	}
	while, err := create("while it was stopped", deploy.ReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	replaceFile(t, filepath.Join(cfg.DataDir, ownerKeyFile), "another.owners0key\n") // the next start accepts this key in addition to the first

	agent := runReloading(t, s, 10*time.Millisecond)
	running, err := create("while it runs", deploy.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.api.SyncApplication(agent.ctx, &apiservice.SyncApplicationRequest{ApplicationId: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("with another key in the owner's file: %v", err)
	}
	for key, want := range map[string]codes.Code{while: codes.PermissionDenied, running: codes.NotFound} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "API-KEY "+key)
		if _, err := agent.api.SyncApplication(ctx, &apiservice.SyncApplicationRequest{ApplicationId: "none"}); status.Code(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for name, role := range map[string]deploy.Role{"while it runs": deploy.ReadWrite, "": deploy.ReadWrite, "odd": "ADMIN"} {
		if _, err := create(name, role); err == nil {
			t.Errorf("a key %q with the role %s was made", name, role)
		}
	}
}

// TestWebCertificateIsRotated: webhooks and probes are served over TLS with the
// certificate in the file. Disabling TLS takes effect at the next start.
func TestWebCertificateIsRotated(t *testing.T) {
	t.Parallel()
	mount := newCertificates(t)
	webhook := "  webhooks: [{name: hook, type: GITHUB, secret: hunter2}]\n"
	s := spec{dataDir: t.TempDir(), more: webhook + fmt.Sprintf(
		"  web: {address: \"127.0.0.1:0\", tlsCertFile: %[1]s/tls.crt, tlsKeyFile: %[1]s/tls.key}\n", mount.dir)}
	agent := runReloading(t, s, 10*time.Millisecond)
	mustServe := func(what string) {
		t.Helper()
		pair := loadPair(t, mount.dir)
		parsed, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		config := &tls.Config{RootCAs: x509.NewCertPool()}
		config.RootCAs.AddCert(parsed)
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
		for path, want := range map[string]int{"/healthz": http.StatusOK, "/webhooks/hook": http.StatusMethodNotAllowed} {
			resp, err := client.Get("https://" + agent.app.WebAddr() + path)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: %s answers %d, want %d", what, path, resp.StatusCode, want)
			}
		}
	}
	mustServe("at the start")
	mount.exchange()
	agent.awaitLog("changed=\"web certificate\"")
	mustServe("after the link was exchanged")
	s.more = webhook
	agent.write(s, "web.tlsCertFile and web.tlsKeyFile (TLS on or off)")
	mustServe("with TLS taken away before the next start")
}
