package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// maxRequest bounds a request and maxResponse a response, which an unmodified
// pipectl refuses from 4 MiB on. The distance leaves room for what is added
// after the rows were counted.
const (
	maxRequest  = 4 << 20
	maxResponse = 7 << 19 // 3.5 MiB

	// pipectl encrypts up to 10 MiB; the rest is for what stands around them.
	maxEncryptRequest = 10<<20 + 64<<10
)

// defaultGrace is how long calls may go on after the agent was told to stop.
const defaultGrace = 5 * time.Second

// Config is what New needs. Store is required; the rest has defaults or may be
// empty.
type Config struct {
	// Address is where to listen, as host:port. Port 0 picks a free one.
	Address string
	// CertFile and KeyFile are a PEM certificate and its key; both or none.
	CertFile, KeyFile string
	// ClientCAFile holds PEM certificates of authorities: only clients that show a
	// certificate of one of them are let in, in addition to their key. "" asks for
	// none.
	ClientCAFile string
	// Insecure permits plaintext beyond loopback.
	Insecure bool
	// RateLimit is for each API key; the zero value is no limit.
	RateLimit RateLimit
	// AuditFile is the file to which calls that change something are appended, as
	// lines of JSON; they are in the log in any case. "" is no file.
	AuditFile string

	Store   Store
	Agent   Agent
	Planner Planner
	Status  Status // nil: GetStatus knows nothing of the agent
	Remover Remover
	Live    Live
	Drift   Drift
	Figures Figures
	// PipedID and ProjectID are what the messages name as agent and project.
	PipedID, ProjectID string

	Logger   *slog.Logger     // names no component
	Now      func() time.Time // default time.Now
	NewID    func() string    // default a random UUID
	Observer Observer         // nil: nobody is told
	// Grace bounds how long Run waits for calls to end; default 5 s.
	Grace time.Duration
}

// Server is the gRPC server of the agent. Its methods are safe for concurrent
// use.
type Server struct {
	cfg      Config
	listener net.Listener
	grpc     *grpc.Server
	health   *health.Server
	secure   bool
	hub      *deploymentHub // of the calls that stream deployments and logs
	drifts   *driftHub
	guard    *guard

	identity certificate.Holder // empty without TLS
}

// New binds the address, so that a port in use, a certificate that cannot be
// read or an audit file that cannot be written is known at once. Plaintext beyond loopback is refused unless
// cfg.Insecure says it is meant. Whoever does not come to call Run calls Close.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: withDefaults(cfg), health: health.NewServer()}
	creds, err := s.transport()
	if err != nil {
		return nil, err
	}
	if s.guard, err = newGuard(s.cfg); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", cfg.Address); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "listen for the control API on %q (api.address): %w", cfg.Address, err)
	}
	s.cfg.Logger = s.cfg.Logger.With("component", "control")
	s.hub, s.drifts = newDeploymentHub(s.cfg.Store, s.converter()), newDriftHub(s.cfg.Store)
	s.secure, s.grpc = creds != nil, s.register(creds)
	return s, nil
}

// register makes the gRPC server with every service on it.
func (s *Server) register(creds credentials.TransportCredentials) *grpc.Server {
	server := grpc.NewServer(s.options(creds)...)
	apiservice.RegisterAPIServiceServer(server, &apiService{
		store: s.cfg.Store, agent: s.cfg.Agent, convert: s.converter(), now: s.cfg.Now, newID: s.cfg.NewID,
	})
	controlv1.RegisterControlServiceServer(server, &controlService{
		store: s.cfg.Store, planner: s.cfg.Planner, status: s.cfg.Status, remover: s.cfg.Remover, live: s.cfg.Live, drift: s.cfg.Drift, figures: s.cfg.Figures,
		hub: s.hub, drifts: s.drifts, convert: s.converter(), newID: s.cfg.NewID,
	})
	grpc_health_v1.RegisterHealthServer(server, s.health)
	reflection.Register(server)
	return server
}

func (s *Server) converter() converter {
	return converter{pipedID: s.cfg.PipedID, projectID: s.cfg.ProjectID}
}

// Addr returns the address the server listens on.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Secure reports whether the server speaks TLS.
func (s *Server) Secure() bool { return s.secure }

// Close releases the address of a server that was never run; after Run it does
// nothing.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then lets calls end within the grace period, cuts
// off the rest and returns nil. It returns an error if serving fails before.
func (s *Server) Run(ctx context.Context) error {
	s.cfg.Logger.Info("control API is served", "address", s.Addr(), "tls", s.secure)
	var streaming sync.WaitGroup
	defer streaming.Wait()
	run, end := context.WithCancel(ctx)
	defer end()
	s.guard.keys.follow()
	streaming.Go(func() { s.guard.keys.run(run) })
	feed, drift := s.hub.watch(), s.drifts.watch()
	streaming.Go(func() { s.hub.run(run, feed) }) // which ends the calls that stream at once: before the grace
	streaming.Go(func() { s.drifts.run(run, drift) })
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve the control API on %s: %w", s.Addr(), err)
	case <-ctx.Done():
	}
	s.stop()
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("stop the control API on %s: %w", s.Addr(), err)
	}
	return nil
}

// stop ends all calls: gracefully at first, then by force.
func (s *Server) stop() {
	s.health.Shutdown()
	force := time.AfterFunc(s.cfg.Grace, s.grpc.Stop)
	s.grpc.GracefulStop()
	force.Stop()
}
