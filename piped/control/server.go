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

	"github.com/c785c783/piped/piped/access"
	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Size limits. An unmodified pipectl rejects responses of 4 MiB or more. The difference to
// maxResponse leaves room for the parts of a response that are not measured.
const (
	maxRequest  = 4 << 20
	maxResponse = 7 << 19 // 3.5 MiB

	// pipectl encrypts up to 10 MiB; the rest is for the message around it.
	maxEncryptRequest = 10<<20 + 64<<10
)

// defaultGrace is the default of Config.Grace.
const defaultGrace = 5 * time.Second

// Config holds the settings and dependencies of New. Store is required; the rest has
// defaults or is optional.
type Config struct {
	// Address is the host:port to listen on. Port 0 picks a free one.
	Address string
	// Listen, if set, returns the listener on Address; by default it is bound.
	Listen func() (net.Listener, error)
	// CertFile and KeyFile are a PEM certificate and its key; both or none.
	CertFile, KeyFile string
	// ClientCAFile holds PEM certificates of authorities: clients must present a
	// certificate of one of them in addition to their key. "" disables this.
	ClientCAFile string
	// Insecure permits plaintext on addresses other than loopback.
	Insecure bool
	// Policy contains the configured roles; nil means none. SetPolicy replaces it.
	Policy *access.Policy
	// SessionIdle returns how long a session may be unused; default: no limit.
	SessionIdle func() time.Duration
	// InsecureHTTP permits plaintext from other machines to Handler.
	InsecureHTTP bool
	// RateLimit applies to each API key and session; the zero value means unlimited.
	RateLimit RateLimit
	// AuditFile is the file to which audit records are appended as lines of JSON;
	// "" writes them to the log.
	AuditFile string

	Store   Store
	Agent   Agent
	Planner Planner
	Status  Status // nil: GetStatus returns no state
	Remover Remover
	Live    Live
	Objects Objects
	Drift   Drift
	Figures Figures
	// PodLines: nil: GetPreviewLogs returns no logs of pods
	PodLines PodLines
	// Configurations: nil: the calls return none
	Configurations Configurations
	// PipedID and ProjectID identify the agent and project in messages.
	PipedID, ProjectID string

	Logger  *slog.Logger     // without a component attribute
	Now     func() time.Time // default time.Now
	NewID   func() string    // default a random UUID
	Metrics Metrics          // optional
	// Grace limits how long Run waits for running calls; default 5 s.
	Grace time.Duration
}

// Server is the gRPC server of the agent; Handler serves the same services over HTTP. Its methods
// are safe for concurrent use.
type Server struct {
	cfg      Config
	listener net.Listener
	grpc     *grpc.Server
	health   *health.Server
	secure   bool
	hub      *deploymentHub // for streams of deployments and logs
	drifts   *driftHub
	previews *previewHub
	catalog  *catalog
	entries  *entryHub
	guard    *guard
	http     *httpAPI
	conn     *inProcess

	identity certificate.Holder // only with TLS
}

// New binds the address, so that a port in use, an unreadable certificate or an unwritable
// audit file is reported at once. Plaintext beyond loopback requires cfg.Insecure. A caller
// that does not call Run must call Close.
func New(cfg Config) (*Server, error) {
	s := &Server{cfg: withDefaults(cfg), health: health.NewServer()}
	creds, err := s.transport()
	if err != nil {
		return nil, err
	}
	if s.guard, err = newGuard(s.cfg); err != nil {
		return nil, err
	}
	if s.listener, err = s.cfg.Listen(); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "listen for the control API on %q (api.address): %w", cfg.Address, err)
	}
	s.cfg.Logger = s.cfg.Logger.With("component", "control")
	s.hub, s.drifts, s.previews = newDeploymentHub(s.cfg.Store, s.converter()), newDriftHub(s.cfg.Store), newPreviewHub(s.cfg.Store)
	s.http = newHTTPAPI(s.guard, s.refuseHTTP)
	s.conn = newInProcess(s.guard, s.http.open)
	s.catalog = newCatalog(s.cfg.Store)
	s.entries = newEntryHub(s.cfg.Store, s.catalog, s.converter(), s.cfg.Now)
	s.secure, s.grpc = creds != nil, s.register(creds)
	return s, nil
}

// register creates the gRPC server with all services, and registers those of the agent for HTTP
// and for calls within the process also.
func (s *Server) register(creds credentials.TransportCredentials) *grpc.Server {
	server := grpc.NewServer(s.options(creds)...)
	all := registrars{server, s.http, s.conn}
	apiservice.RegisterAPIServiceServer(all, &apiService{
		store: visible{s.cfg.Store}, agent: s.cfg.Agent, convert: s.converter(), now: s.cfg.Now, newID: s.cfg.NewID,
	})
	controlv1.RegisterControlServiceServer(all, &controlService{
		store: visible{s.cfg.Store}, planner: s.cfg.Planner, status: s.cfg.Status, remover: s.cfg.Remover, live: s.cfg.Live, objects: s.cfg.Objects, drift: s.cfg.Drift, figures: s.cfg.Figures, configurations: s.cfg.Configurations, pods: s.cfg.PodLines,
		hub: s.hub, drifts: s.drifts, previews: s.previews, catalog: s.catalog, entries: s.entries, convert: s.converter(), now: s.cfg.Now, newID: s.cfg.NewID, policy: s.guard.roles.policy,
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

// Close releases the address of a server that was not run. After Run it has no effect.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Run serves until ctx ends, then waits for running calls within the grace period, aborts
// the rest and returns nil. It returns an error if serving fails before.
func (s *Server) Run(ctx context.Context) error {
	s.cfg.Logger.Info("serving the control API", "address", s.Addr(), "tls", s.secure)
	var streaming sync.WaitGroup
	defer streaming.Wait()
	run, end := context.WithCancel(ctx)
	defer end()
	s.guard.auth.Follow()
	streaming.Go(func() { s.guard.auth.Run(run) })
	last, endTrail := context.WithCancel(context.WithoutCancel(ctx)) // calls are recorded until all have ended
	defer endTrail()
	streaming.Go(func() { s.guard.trail.run(last) })
	defer s.catalog.close()
	feed, drift, previews, entries := s.hub.watch(), s.drifts.watch(), s.previews.watch(), s.entries.watch()
	streaming.Go(func() { s.hub.run(run, feed) }) // its end cancels all streams before the grace period starts
	streaming.Go(func() { s.drifts.run(run, drift) })
	streaming.Go(func() { s.previews.run(run, previews) })
	streaming.Go(func() { s.entries.run(run, entries) })
	s.http.open.start()
	defer s.http.open.finish(0)
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
	var calls sync.WaitGroup
	calls.Go(func() { s.http.open.finish(s.cfg.Grace) })
	force := time.AfterFunc(s.cfg.Grace, s.grpc.Stop)
	s.grpc.GracefulStop()
	force.Stop()
	calls.Wait()
}
