package control

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/deploy"
)

func withDefaults(cfg Config) Config {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Listen == nil {
		cfg.Listen = func() (net.Listener, error) { return net.Listen("tcp", cfg.Address) }
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.NewID == nil {
		cfg.NewID = uuid.NewString
	}
	if cfg.SessionIdle == nil {
		cfg.SessionIdle = func() time.Duration { return 0 }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = noMetrics{}
	}
	if cfg.Grace <= 0 {
		cfg.Grace = defaultGrace
	}
	return cfg
}

// Limits of one connection. A dead client is detected after keepaliveTime plus
// keepaliveTimeout.
const (
	maxStreams       = 1000 // concurrent; further calls wait
	maxHeaders       = 16 << 10
	handshakeTimeout = 10 * time.Second
	keepaliveTime    = time.Minute
	keepaliveTimeout = 20 * time.Second
	// minPing is the minimal interval of client pings; gRPC's own clients respect it.
	minPing = 10 * time.Second
)

// options returns the options of the gRPC server.
func (s *Server) options(creds credentials.TransportCredentials) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(s.guard.unary),
		grpc.StreamInterceptor(s.guard.stream),
		grpc.MaxRecvMsgSize(maxEncryptRequest), // the guard enforces the limit of each method
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	}
	if creds != nil {
		options = append(options, grpc.Creds(creds))
	}
	return options
}

// transport returns the TLS credentials, or nil for plaintext if that is permitted.
func (s *Server) transport() (credentials.TransportCredentials, error) {
	cfg := s.cfg
	identity, err := certificate.Files{Section: "api", Cert: cfg.CertFile, Key: cfg.KeyFile, ClientCA: cfg.ClientCAFile}.Load()
	switch {
	case err != nil:
		return nil, err
	case identity != nil:
		s.identity.Set(identity)
		return credentials.NewTLS(s.identity.Config()), nil
	case !cfg.Insecure && !loopback(cfg.Address):
		return nil, deploy.Errorf(deploy.Invalid, "the control API on %q would send API keys in plaintext beyond this machine: "+
			"set api.tlsCertFile and api.tlsKeyFile, or set api.insecure: true if this is intended", cfg.Address)
	}
	return nil, nil
}

// loopback reports whether address is reachable from this machine only. The only accepted name
// is localhost, because the addresses of other names can change.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// RefuseHTTP returns an error if a request over HTTP, which carries keys or tokens, is less
// protected than calls over gRPC.
func (s *Server) RefuseHTTP(r *http.Request) error { return s.refuseHTTP(r) }

// refuseHTTP returns an error if a call over HTTP is less protected than calls over gRPC.
func (s *Server) refuseHTTP(r *http.Request) error {
	var reason string
	switch {
	case r.TLS == nil && !s.cfg.InsecureHTTP && !loopback(r.RemoteAddr):
		reason = "API keys must not be sent in plaintext from other machines: " +
			"set web.tlsCertFile and web.tlsKeyFile, or web.insecure: true if a proxy in front of the agent speaks TLS"
	case s.identity.ClientCerts() && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0):
		reason = "api.clientCAFile demands a certificate of the client, which this port does not ask for: set web.clientCAFile, too"
	default:
		return nil
	}
	return connect.NewError(connect.CodeFailedPrecondition, errors.New(reason))
}
