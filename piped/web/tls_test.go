package web

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
)

// files creates a self-signed certificate.
func files(t *testing.T) certificate.Files {
	cert, key := certificatetest.Write(t, t.TempDir())
	return certificate.Files{Section: "web", Cert: cert, Key: key}
}

// trusting returns the TLS configuration of a client that trusts one certificate and
// presents own, if given.
func trusting(t *testing.T, trusted certificate.Files, own ...certificate.Files) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(trusted.Cert)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	for _, f := range own {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = append(config.Certificates, pair)
	}
	return config
}

// startTLS runs a server with TLS until the test ends.
func startTLS(t *testing.T, f certificate.Files) *Server {
	t.Helper()
	s, err := New(Config{Address: "127.0.0.1:0", Certificate: f})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Secure() {
		t.Error("Secure is false with a certificate")
	}
	run(t, s)
	return s
}

// ask returns the status code or error of GET /healthz.
func ask(t *testing.T, s *Server, config *tls.Config) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+s.Addr()+"/healthz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}).Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func mustAsk(t *testing.T, what string, s *Server, config *tls.Config, answered bool) {
	t.Helper()
	if code, err := ask(t, s, config); (err == nil && code == http.StatusOK) != answered {
		t.Errorf("%s: code %d, error %v, want an answer: %t", what, code, err, answered)
	}
}

// TestHTTP2: browsers get HTTP/2, so that the streams of their tabs share a connection, and others
// still HTTP/1.1.
func TestHTTP2(t *testing.T) {
	server := files(t)
	s := startTLS(t, server)
	for protocols, want := range map[string]string{"h2 http/1.1": "HTTP/2.0", "http/1.1": "HTTP/1.1", "": "HTTP/1.1"} {
		config := trusting(t, server)
		config.NextProtos = strings.Fields(protocols)
		transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: strings.HasPrefix(protocols, "h2")}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + s.Addr() + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.Proto != want || resp.StatusCode != http.StatusOK {
			t.Errorf("with the protocols %q: %s %s, want %s", protocols, resp.Proto, resp.Status, want)
		}
		transport.CloseIdleConnections()
	}
}

func TestPlainHTTPIsNotAnsweredWithTLS(t *testing.T) {
	s := startTLS(t, files(t))
	if code, body := get(t, "GET", "http://"+s.Addr()+"/healthz"); code == http.StatusOK {
		t.Errorf("plain HTTP is answered: %d %q", code, body)
	}
}

// TestCertificateIsReplaced: connections after SetIdentity get the new certificate.
func TestCertificateIsReplaced(t *testing.T) {
	first, second := files(t), files(t)
	s := startTLS(t, first)
	mustAsk(t, "the first certificate", s, trusting(t, first), true)
	mustAsk(t, "one that is not shown yet", s, trusting(t, second), false)
	next, err := second.Load()
	if err != nil {
		t.Fatal(err)
	}
	s.SetIdentity(next)
	mustAsk(t, "the new certificate", s, trusting(t, second), true)
	mustAsk(t, "the first one after it was replaced", s, trusting(t, first), false)
}

func TestClientsShowACertificateWhereOneIsAskedFor(t *testing.T) {
	server, client, other := files(t), files(t), files(t)
	asking := server
	asking.ClientCA = client.Cert
	s := startTLS(t, asking)
	mustAsk(t, "a certificate of the authority", s, trusting(t, server, client), true)
	mustAsk(t, "no certificate", s, trusting(t, server), false)
	mustAsk(t, "a certificate of another authority", s, trusting(t, server, other), false)
}

func TestVersionsOfTLS(t *testing.T) {
	server := files(t)
	s := startTLS(t, server)
	for version, answered := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		config := trusting(t, server)
		config.MinVersion, config.MaxVersion = version, version
		mustAsk(t, tls.VersionName(version), s, config, answered)
	}
}

func TestWebhookThroughTLS(t *testing.T) {
	server := files(t)
	polled := make(chan string, 1)
	s, err := New(Config{Address: "127.0.0.1:0", Certificate: server, Poll: func(id string) { polled <- id }})
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := githost.New(config.WebhookGitLab, strict.NewSecret("hunter2"))
	if err != nil {
		t.Fatal(err)
	}
	s.SetWebhooks(Webhooks{
		Receivers:    map[string]*githost.Receiver{"hook": receiver},
		Repositories: []Repository{{ID: "apps", Remote: "https://git.example.com/apps.git", Branch: "main"}},
	})
	run(t, s)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.Addr()+"/webhooks/hook",
		strings.NewReader(`{"object_kind": "push", "ref": "refs/heads/main", "project": {"git_http_url": "https://git.example.com/apps.git"}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Gitlab-Event", "Push Hook")
	req.Header.Set("X-Gitlab-Token", "hunter2")
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: trusting(t, server)}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		t.Fatalf("code %d, want 202", resp.StatusCode)
	}
	if id := <-polled; id != "apps" {
		t.Errorf("repository %q is polled, want apps", id)
	}
}

func TestWhatOfTLSIsRefused(t *testing.T) {
	good := files(t)
	for name, tc := range map[string]struct {
		files certificate.Files
		want  string
	}{
		"certificate without key":         {certificate.Files{Cert: good.Cert}, "web.tlsKeyFile"},
		"client certificates without TLS": {certificate.Files{ClientCA: good.Cert}, "web.clientCAFile"},
		"no such certificate":             {certificate.Files{Cert: good.Cert + ".none", Key: good.Key}, good.Cert + ".none"},
		"no certificate of an authority":  {certificate.Files{Cert: good.Cert, Key: good.Key, ClientCA: good.Key}, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := New(Config{Address: "127.0.0.1:0", Certificate: tc.files})
			if err == nil {
				s.Close()
			}
			if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one of kind Invalid that names %s", err, tc.want)
			}
		})
	}
}
