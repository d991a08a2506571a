package control_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/certificate/certificatetest"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
)

// pair is a self-signed certificate in files.
type pair struct{ cert, key string }

func newPair(t *testing.T) pair {
	cert, key := certificatetest.Write(t, t.TempDir())
	return pair{cert, key}
}

func (p pair) identity(t *testing.T, clientCAFile string) *certificate.Identity {
	t.Helper()
	identity, err := certificate.Files{Section: "api", Cert: p.cert, Key: p.key, ClientCA: clientCAFile}.Load()
	if err != nil {
		t.Fatal(err)
	}
	return identity
}

// tls returns the TLS configuration of a client that trusts p and presents own, unless nil.
func (p pair) tls(t *testing.T, own *pair) *tls.Config {
	t.Helper()
	pem, err := os.ReadFile(p.cert)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{"h2"}}
	config.RootCAs.AppendCertsFromPEM(pem)
	if own != nil {
		cert, err := tls.LoadX509KeyPair(own.cert, own.key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{cert}
	}
	return config
}

// TestMutualTLS: a client needs both a certificate of the authority and a key. The authority
// is replaced while the server runs.
func TestMutualTLS(t *testing.T) {
	server, first, second := newPair(t), newPair(t), newPair(t)
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) {
		c.CertFile, c.KeyFile, c.ClientCAFile = server.cert, server.key, first.cert
	})
	client := func(own *pair) apiservice.APIServiceClient {
		t.Helper()
		conn, err := grpc.NewClient(agent.Server.Addr(), grpc.WithTransportCredentials(credentials.NewTLS(server.tls(t, own))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return apiservice.NewAPIServiceClient(conn)
	}
	check := func(what string, c apiservice.APIServiceClient, want codes.Code) {
		t.Helper()
		_, err := c.ListApplications(as(t, agent.ReadOnly), &apiservice.ListApplicationsRequest{})
		if status.Code(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	open := client(&first)
	check("a certificate of the authority", open, codes.OK)
	check("no certificate", client(nil), codes.Unavailable)
	check("a certificate of another authority", client(&second), codes.Unavailable)
	if _, err := open.ListApplications(t.Context(), &apiservice.ListApplicationsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a certificate without a key: %v", err)
	}

	agent.Server.SetIdentity(server.identity(t, second.cert))
	check("an open connection after the authority was replaced", open, codes.OK)
	check("a certificate of the authority before", client(&first), codes.Unavailable)
	check("a certificate of the new authority", client(&second), codes.OK)
	agent.Server.SetIdentity(server.identity(t, ""))
	check("no certificate where none is asked for", client(nil), codes.OK)
}

// TestWhatTLSIsSpoken: TLS 1.2 or later, HTTP/2, and no session resumption.
func TestWhatTLSIsSpoken(t *testing.T) {
	server := newPair(t)
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.CertFile, c.KeyFile = server.cert, server.key })
	config := server.tls(t, nil)
	config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS12, tls.VersionTLS13, tls.VersionTLS13} {
		config.MinVersion, config.MaxVersion = version, version
		conn, err := tls.Dial("tcp", agent.Server.Addr(), config)
		if err != nil {
			t.Fatal(err)
		}
		if state := conn.ConnectionState(); state.Version != version || state.NegotiatedProtocol != "h2" || state.DidResume {
			t.Errorf("version %x: version %x, protocol %q, resumed: %t", version, state.Version, state.NegotiatedProtocol, state.DidResume)
		}
		conn.Close()
	}
	config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if conn, err := tls.Dial("tcp", agent.Server.Addr(), config); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is spoken")
	}
}

func TestLoadIdentity(t *testing.T) {
	one, other := newPair(t), newPair(t)
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		cert, key, ca string
		want          []string
	}{
		"a half-written pair":                {one.cert, other.key, "", []string{"api.tlsCertFile " + one.cert, "api.tlsKeyFile " + other.key, "does not match"}},
		"no authority":                       {one.cert, one.key, empty + ".none", []string{"api.clientCAFile", empty + ".none"}},
		"an authority without a certificate": {one.cert, one.key, empty, []string{"api.clientCAFile", empty, "no certificate in PEM"}},
	} {
		_, err := certificate.Files{Section: "api", Cert: tc.cert, Key: tc.key, ClientCA: tc.ca}.Load()
		if !deploy.IsKind(err, deploy.Invalid) {
			t.Fatalf("%s: error %v, want one of kind invalid", name, err)
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not name %q", name, err, part)
			}
		}
	}
	a := one.identity(t, other.cert)
	if !a.Same(one.identity(t, other.cert)) || a.Same(one.identity(t, "")) || a.Same(one.identity(t, one.cert)) || a.Same(other.identity(t, other.cert)) || a.Same(nil) {
		t.Error("what is the same and what is not differs")
	}
}
