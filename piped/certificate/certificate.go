// Package certificate loads the TLS certificate of a server and the authorities of its
// clients from files, and replaces them while the server runs. It opens no connection
// and does not watch the files.
package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"sync/atomic"

	"github.com/c785c783/piped/piped/deploy"
)

// Files are the PEM files in a server's section of the configuration.
type Files struct {
	Section  string // "api" or "web", for errors
	Cert     string
	Key      string
	ClientCA string // "": clients need no certificate
}

// Identity is an immutable certificate with the requirements for clients; nil is a
// server without TLS.
type Identity struct{ config *tls.Config }

// Load reads the files. It returns nil when none is configured. The error, of kind
// deploy.Invalid, names the files and configuration fields.
func (f Files) Load() (*Identity, error) {
	switch {
	case f.Cert == "" && f.Key == "" && f.ClientCA == "":
		return nil, nil
	case f.Cert == "" && f.Key == "":
		return nil, deploy.Errorf(deploy.Invalid, "%[1]s.clientCAFile asks clients for certificates, which needs TLS: set %[1]s.tlsCertFile and %[1]s.tlsKeyFile", f.Section)
	case f.Cert == "" || f.Key == "":
		return nil, deploy.Errorf(deploy.Invalid, "TLS needs both %[1]s.tlsCertFile and %[1]s.tlsKeyFile, and only one is set", f.Section)
	}
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "load the certificate (%[1]s.tlsCertFile %[2]s, %[1]s.tlsKeyFile %[3]s): %[4]w", f.Section, f.Cert, f.Key, err)
	}
	// No session resumption: it would skip the verification of the client.
	config := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, SessionTicketsDisabled: true}
	if f.ClientCA == "" {
		return &Identity{config}, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "load the authorities of client certificates (%s.clientCAFile): %w", f.Section, err)
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, deploy.Errorf(deploy.Invalid, "load the authorities of client certificates (%s.clientCAFile): %s holds no certificate in PEM", f.Section, f.ClientCA)
	}
	return &Identity{config}, nil
}

// Same reports whether two identities have the same certificate and requirements.
func (i *Identity) Same(other *Identity) bool {
	if i == nil || other == nil {
		return i == other
	}
	return slices.EqualFunc(i.config.Certificates[0].Certificate, other.config.Certificates[0].Certificate, bytes.Equal) &&
		i.config.ClientCAs.Equal(other.config.ClientCAs)
}

// Holder contains the identity of a running server. It is safe for concurrent use.
type Holder struct{ current atomic.Pointer[Identity] }

// Set replaces the identity for new connections; open ones are not affected.
func (h *Holder) Set(i *Identity) { h.current.Store(i) }

// ClientCerts reports whether clients must present a certificate.
func (h *Holder) ClientCerts() bool {
	i := h.current.Load()
	return i != nil && i.config.ClientAuth == tls.RequireAndVerifyClientCert
}

// Config returns the configuration of a server that uses the current identity for each
// connection, and speaks some protocols (RFC 7301), the preferred first; none leaves the choice
// to the server. Set must be called before the first connection.
func (h *Holder) Config(protocols ...string) *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			config := h.current.Load().config
			if len(protocols) > 0 {
				config = config.Clone()
				config.NextProtos = protocols
			}
			return config, nil
		},
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
	}
}
