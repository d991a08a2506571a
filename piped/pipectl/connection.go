package pipectl

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

const (
	// connectTimeout bounds the further attempts, after the first has failed: the agent may be starting.
	connectTimeout = 5 * time.Second
	// attemptTimeout bounds one attempt to connect. An agent that accepts it late is busy, or far
	// away.
	attemptTimeout = 20 * time.Second
	// callTimeout bounds one call.
	callTimeout = time.Minute
)

// connection is the agent's address and the credentials.
type connection struct {
	address        string
	session        string // token of a sign-in; "" for an API key
	apiKey         string
	apiKeyFile     string
	ownerKey       bool // apiKeyFile is that of the agent found on this machine
	certFile       string
	clientCertFile string
	clientKeyFile  string
	insecure       bool

	found    string // file of a running agent with these settings; "" if they were configured
	notFound error  // why no such file was found
}

func (c *connection) register(flags *pflag.FlagSet) {
	flags.StringVar(&c.address, "address", "", "The address of the agent's control API, as host:port. [PIPECTL_ADDRESS]")
	flags.StringVar(&c.apiKey, "api-key", "", "The API key to authenticate with. [PIPECTL_API_KEY]")
	flags.StringVar(&c.apiKeyFile, "api-key-file", "", "Path to the file that holds the API key. [PIPECTL_API_KEY_FILE]")
	flags.StringVar(&c.certFile, "cert-file", "", "Path to the certificate (PEM) that the agent's certificate must be signed by. [PIPECTL_CERT_FILE]")
	flags.StringVar(&c.clientCertFile, "client-cert-file", "", "Path to the certificate (PEM) to show to an agent that asks for one. [PIPECTL_CLIENT_CERT_FILE]")
	flags.StringVar(&c.clientKeyFile, "client-key-file", "", "Path to the private key (PEM) of the client certificate. [PIPECTL_CLIENT_KEY_FILE]")
	flags.BoolVar(&c.insecure, "insecure", false, "Connect without TLS. [PIPECTL_INSECURE]")
}

// client is the agent's API with its connection.
type client struct {
	apiservice.APIServiceClient
	control controlv1.ControlServiceClient
	conn    *grpc.ClientConn
}

// dial connects to the agent. The caller closes the client.
func (c *connection) dial(ctx context.Context) (*client, error) {
	conn, err := c.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("failed to initialize client: %w", err)
	}
	return &client{APIServiceClient: apiservice.NewAPIServiceClient(conn), control: controlv1.NewControlServiceClient(conn), conn: conn}, nil
}

// close closes the connection and ignores errors.
func (c *client) close() { _ = c.conn.Close() }

func (c *connection) connect(ctx context.Context) (*grpc.ClientConn, error) {
	credentials, err := c.credentials()
	if err != nil {
		return nil, err
	}
	if err := c.checkAddress(); err != nil {
		return nil, err
	}
	creds, err := c.transport()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(c.target(),
		grpc.WithTransportCredentials(creds),
		grpc.WithPerRPCCredentials(authorization{value: credentials, insecure: c.insecure}),
		grpc.WithChainUnaryInterceptor(retryRateLimited),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: attemptTimeout,
		}))
	if err != nil {
		return nil, err
	}
	if err := c.waitReady(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func (c *connection) checkAddress() error {
	const way = "give the agent's host:port with --address or PIPECTL_ADDRESS, such as 127.0.0.1:9083"
	if c.address == "" {
		err := errors.New("address must be set")
		if c.notFound != nil {
			err = fmt.Errorf("%w: %w", err, c.notFound)
		}
		return hint(err, way)
	}
	if strings.HasPrefix(c.address, "http://") || strings.HasPrefix(c.address, "https://") {
		return hint(fmt.Errorf("address %q has a scheme", c.address), way)
	}
	if c.resolved() {
		return nil
	}
	if _, _, err := net.SplitHostPort(c.address); err != nil {
		return hint(err, way)
	}
	return nil
}

// resolved reports whether the address selects a gRPC resolver, such as
// dns:///host:port.
func (c *connection) resolved() bool {
	return strings.Contains(c.address, "://") || strings.HasPrefix(c.address, "dns:") || strings.HasPrefix(c.address, "unix:")
}

// target passes names to the dialer unless the address selects a resolver, as in
// PipeCD's pipectl.
func (c *connection) target() string {
	if c.resolved() {
		return c.address
	}
	return "passthrough:///" + c.address
}

// credentials returns what authenticates every call.
func (c *connection) credentials() (string, error) {
	if c.session != "" {
		return "SESSION " + c.session, nil
	}
	key, err := c.key()
	return "API-KEY " + key, err
}

func (c *connection) key() (string, error) {
	if key := strings.TrimSpace(c.apiKey); key != "" {
		return key, nil
	}
	if c.apiKeyFile == "" {
		err := errors.New("either api-key or api-key-file must be set")
		if c.notFound != nil {
			err = fmt.Errorf("%w: %w", err, c.notFound)
		}
		return "", hint(err,
			"sign in with 'pipectl login', or name a key's file with --api-key-file or PIPECTL_API_KEY_FILE: the agent wrote its owner's key to owner.key in its data directory")
	}
	data, err := os.ReadFile(c.apiKeyFile)
	if err != nil {
		if c.found != "" {
			return "", hint(fmt.Errorf("read the API key that %s names: %w", c.found, err), "run this as the agent's user, or name a key with --api-key-file or PIPECTL_API_KEY_FILE")
		}
		return "", hint(fmt.Errorf("read the API key: %w", err), "check --api-key-file or PIPECTL_API_KEY_FILE")
	}
	key := strings.TrimSpace(string(data))
	if key == "" {
		return "", hint(fmt.Errorf("the API key file %s is empty", c.apiKeyFile), "write the key into it, or name another file with --api-key-file")
	}
	return key, nil
}

func (c *connection) transport() (credentials.TransportCredentials, error) {
	if c.insecure {
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.certFile != "" {
		pem, err := os.ReadFile(c.certFile)
		if err == nil {
			if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
				err = errors.New("no certificate in it")
			}
		}
		if err != nil {
			return nil, hint(fmt.Errorf("read the certificate %s: %w", c.certFile, err), "check --cert-file or PIPECTL_CERT_FILE: it holds PEM certificates")
		}
	}
	if c.clientCertFile != "" || c.clientKeyFile != "" {
		if c.clientCertFile == "" || c.clientKeyFile == "" {
			return nil, hint(errors.New("a client certificate needs its private key, and the key its certificate"), "give both --client-cert-file and --client-key-file")
		}
		pair, err := tls.LoadX509KeyPair(c.clientCertFile, c.clientKeyFile)
		if err != nil {
			return nil, hint(fmt.Errorf("read the client certificate: %w", err), "check --client-cert-file and --client-key-file: they hold a PEM certificate and its key")
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(cfg), nil
}

// waitReady waits until the connection is ready: attemptTimeout for the first attempt and, if
// that fails, connectTimeout for further ones. The error contains the last connection failure.
// TLS failures end it at once.
func (c *connection) waitReady(ctx context.Context, conn *grpc.ClientConn) error {
	wait, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	retries := false
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		switch state {
		case connectivity.Idle:
			conn.Connect()
		case connectivity.TransientFailure: // it stays so during further attempts
			if !retries {
				retries = true
				var stop context.CancelFunc
				wait, stop = context.WithTimeout(ctx, connectTimeout)
				defer stop()
			}
			if reason := lastFailure(ctx, conn); strings.Contains(reason, "authentication handshake failed") || strings.Contains(reason, "remote error: tls:") {
				return c.cannotConnect(reason)
			}
		}
		if !conn.WaitForStateChange(wait, state) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return c.cannotConnect(lastFailure(ctx, conn))
		}
	}
	return nil
}

func (c *connection) cannotConnect(reason string) error {
	if c.found != "" {
		return hint(fmt.Errorf("cannot connect to %s, which is the address in %s: %s", c.address, c.found, reason), "check that the agent runs, or name another with --address")
	}
	return hint(fmt.Errorf("cannot connect to %s: %s", c.address, reason), "%s", c.advice(reason))
}

// lastFailure returns why a connection is not ready, from the error of a call.
func lastFailure(ctx context.Context, conn *grpc.ClientConn) string {
	ask, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(conn).Check(ask, &grpc_health_v1.HealthCheckRequest{})
	return status.Convert(err).Message()
}

func (c *connection) advice(reason string) string {
	switch {
	case strings.Contains(reason, "first record does not look like a TLS handshake"):
		return "the agent speaks plaintext at this address: add --insecure if you may send the key that way"
	case strings.Contains(reason, "certificate required"):
		return "the agent asks for a client certificate: name yours with --client-cert-file and --client-key-file"
	case strings.Contains(reason, "tls: bad certificate") || strings.Contains(reason, "unknown certificate authority"):
		return "the agent does not accept this client certificate: use one signed by its api.clientCAFile"
	case strings.Contains(reason, "certificate"):
		return "name the certificate the agent's is signed by with --cert-file, and use a host name that is in it"
	case !c.insecure && closedEarly(reason) && c.clientCertFile == "":
		return "the agent closed the connection, as one does that asks for a client certificate: name yours with --client-cert-file and --client-key-file"
	case !c.insecure && closedEarly(reason):
		return "the agent does not accept this client certificate, or is stopping: use one signed by its api.clientCAFile"
	case c.insecure && !strings.Contains(reason, "refused") && !strings.Contains(reason, "no such host"):
		return "the agent may speak TLS at this address: omit --insecure"
	default:
		return "check that the agent runs and that --address is its api.address"
	}
}

// closedEarly reports whether the agent closed the connection, possibly before its
// reason was received.
func closedEarly(reason string) bool {
	return strings.Contains(reason, "broken pipe") || strings.Contains(reason, "connection reset") || strings.Contains(reason, "EOF")
}

// authorization adds the credentials to every call.
type authorization struct {
	value    string
	insecure bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (a authorization) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": a.value}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (a authorization) RequireTransportSecurity() bool { return !a.insecure }
