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
func transport(cfg Config) (credentials.TransportCredentials, error) {
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
	cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "load the control API's certificate (api.tlsCertFile %s, api.tlsKeyFile %s): %w", cfg.CertFile, cfg.KeyFile, err)
	}
	return credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}), nil
}

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
