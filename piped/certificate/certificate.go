// Package certificate holds what a server of the agent is by TLS: the certificate
// it shows and the authorities whose certificates it asks clients for. It reads
// them from files and replaces them while the server runs. It opens no connection
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

// Files are the PEM files of a server's section of the configuration.
type Files struct {
	Section  string // "api" or "web", which errors name
	Cert     string
	Key      string
	ClientCA string // "": clients need no certificate
}

// Identity is a certificate and what is asked of clients. It never changes; nil is
// that of a server without TLS.
type Identity struct{ config *tls.Config }

// Load reads the files. It returns nil when none is named. The error, of kind
// deploy.Invalid, names the files and the fields of the configuration.
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
	// A session is never resumed: its client would not be verified again.
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

// Same reports whether two identities show the same certificate and ask for the same.
func (i *Identity) Same(other *Identity) bool {
	if i == nil || other == nil {
		return i == other
	}
	return slices.EqualFunc(i.config.Certificates[0].Certificate, other.config.Certificates[0].Certificate, bytes.Equal) &&
		i.config.ClientCAs.Equal(other.config.ClientCAs)
}

// Holder holds the identity of a running server. It is safe for concurrent use.
type Holder struct{ current atomic.Pointer[Identity] }

// Set replaces the identity for the connections that come from now on; those that
// are open stay.
func (h *Holder) Set(i *Identity) { h.current.Store(i) }

// Config returns the configuration of a server that shows what h holds at the
// time of each connection. An identity has to be set before the first one.
func (h *Holder) Config() *tls.Config {
	return &tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return h.current.Load().config, nil },
		MinVersion:         tls.VersionTLS12,
	}
}
