package control

import (
	"crypto/tls"
	"log/slog"
	"net"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/credentials"

	"github.com/c785c783/piped/piped/deploy"
)

func withDefaults(cfg Config) Config {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = uuid.NewString
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	return cfg
}

// transport returns the TLS credentials, or nil for plaintext where that is
// permitted.
func (s *Server) transport() (credentials.TransportCredentials, error) {
	cfg := s.cfg
	if cfg.CertFile == "" && cfg.KeyFile == "" {
		if !cfg.Insecure && !loopback(cfg.Address) {
			return nil, deploy.Errorf(deploy.Invalid, "the control API on %q would send API keys in plaintext beyond this machine: "+
				"set api.tlsCertFile and api.tlsKeyFile, or write api.insecure: true if that is meant", cfg.Address)
		}
		return nil, nil
	}
	if cfg.CertFile == "" || cfg.KeyFile == "" {
		return nil, deploy.Errorf(deploy.Invalid, "TLS for the control API needs both api.tlsCertFile and api.tlsKeyFile, and only one is set")
	}
	cert, err := LoadCertificate(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	s.certificate.Store(cert)
	return credentials.NewTLS(&tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.certificate.Load(), nil },
		MinVersion:     tls.VersionTLS12,
	}), nil
}

// LoadCertificate reads a PEM certificate and its key. The error, of kind
// Invalid, names the files and the fields of the configuration.
func LoadCertificate(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "load the control API's certificate (api.tlsCertFile %s, api.tlsKeyFile %s): %w", certFile, keyFile, err)
	}
	return &cert, nil
}

// SetCertificate replaces the certificate for the connections that come from now
// on. A server without TLS ignores it.
func (s *Server) SetCertificate(cert *tls.Certificate) { s.certificate.Store(cert) }

// loopback reports whether only this machine reaches address. A name counts
// only if it is localhost: what another name means can change.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
