package control

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
)

// Identity is what the server is by TLS: the certificate it shows, and the
// authorities whose certificates it asks clients for.
type Identity struct {
	config *tls.Config // never changed
}

// LoadIdentity reads a PEM certificate and its key, and the certificates of the
// authorities for clients; clientCAFile may be "", then clients need none. The
// error, of kind Invalid, names the files and the fields of the configuration.
func LoadIdentity(certFile, keyFile, clientCAFile string) (*Identity, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "load the control API's certificate (api.tlsCertFile %s, api.tlsKeyFile %s): %w", certFile, keyFile, err)
	}
	// A session is never resumed: its client would not be verified again.
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if clientCAFile == "" {
		return &Identity{config}, nil
	}
	pem, err := os.ReadFile(clientCAFile)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "load the authorities of client certificates (api.clientCAFile): %w", err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, deploy.Errorf(deploy.Invalid, "load the authorities of client certificates (api.clientCAFile): %s holds no certificate in PEM", clientCAFile)
	}
	return &Identity{config}, nil
}

// Same reports whether two identities show the same certificate and ask for the
// same; nil is that of a server without TLS.
func (i *Identity) Same(other *Identity) bool {
	if i == nil || other == nil {
		return i == other
	}
	return slices.EqualFunc(i.config.Certificates[0].Certificate, other.config.Certificates[0].Certificate, bytes.Equal) &&
		i.config.ClientCAs.Equal(other.config.ClientCAs)
}

// SetIdentity replaces the identity for the connections that come from now on;
// those that are open stay. A server without TLS ignores it.
func (s *Server) SetIdentity(i *Identity) { s.identity.Store(i) }

// SetRateLimit replaces the limit of calls with one API key.
func (s *Server) SetRateLimit(limit RateLimit) { s.guard.calls.set(limit) }
