// Package agenttest runs the agent as a separate process, as a user does, for tests, the
// demo and benchmarks. It owns the child process, which ends with the process that
// started it. It never builds anything.
package agenttest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// Options configure an agent.
type Options struct {
	Binary     string // the piped program
	ID         string // the pipedID; "" is one that is unique for the store
	Dir        string // for configuration, log and data
	Remote     string // the Git repository to follow, on branch main
	Kubeconfig string
	Provider   string        // the name of the platform provider; "" is devcluster
	Interval   time.Duration // between two polls of the repository
	DSN        string        // "" is SQLite in the data directory
	StoreKey   string        // the file of the key of the store, for replicas; "" is the default
	Share      bool          // replicas share the work
	Limit      int           // of concurrent deployments; 0 means no limit
	WatchIn    string        // the namespace whose workloads are watched, also those of no application; "" is none
	Repos      []string      // remotes of further repositories, with the IDs apps-1, apps-2 and so on
	More       string        // further lines of the spec, indented
	Args       []string      // further arguments of `piped run`
}

// Agent is an agent process and a client of its control API, authorised by the
// owner key.
type Agent struct {
	*Process
	ID                       string // the pipedID
	Config, KeyFile, LogFile string
	Address                  string // of the control API
	WebAddress               string // of health and metrics
	API                      apiservice.APIServiceClient
	Control                  controlv1.ControlServiceClient

	binary string
	args   []string
	conn   *grpc.ClientConn
}

const configText = `apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: local
  pipedID: %q
  dataDir: %q
  api: {address: %q}
  web: {address: %q}
  syncInterval: %s
  repositories:
    - repoId: apps
      remote: %q
      branch: main
      discover: {} # every application of the repository
%s  platformProviders:
    - name: %s
      type: KUBERNETES
      config: {kubeConfigPath: %q, rollouts: {%s}}
`

// soon is the backoff of a client that reconnects to a restarted agent.
var soon = backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 200 * time.Millisecond}

// Start writes the agent's configuration below o.Dir and starts it there. It returns once
// the control API answers. The caller must Close the agent.
func Start(ctx context.Context, o Options) (*Agent, error) {
	a, err := prepare(o)
	if err != nil {
		return nil, err
	}
	if err := a.Restart(ctx); err != nil {
		return nil, errors.Join(err, a.conn.Close())
	}
	return a, nil
}

// StartReplica starts a replica of an agent below dir, and does not wait until it works or stands
// by. Its client has the owner key of the agent. The caller must Close it.
func StartReplica(of *Agent, o Options, dir string) (*Agent, error) {
	o.Dir = dir
	a, err := prepare(o)
	if err != nil {
		return nil, err
	}
	a.KeyFile = of.KeyFile
	if err := a.Launch(); err != nil {
		return nil, errors.Join(err, a.conn.Close())
	}
	return a, nil
}

// prepare writes the configuration of an agent.
func prepare(o Options) (*Agent, error) {
	data := filepath.Join(o.Dir, "piped")
	a := &Agent{
		ID:     pipedID(o),
		Config: filepath.Join(o.Dir, "piped.yaml"), KeyFile: filepath.Join(data, "owner.key"),
		LogFile: filepath.Join(o.Dir, "piped.log"), binary: o.Binary, args: o.Args,
	}
	var err error
	if a.Address, a.WebAddress, err = FreeAddresses(); err != nil {
		return nil, err
	}
	watch := "watch: applications"
	if o.WatchIn != "" {
		watch = fmt.Sprintf("watch: all, namespaces: [%q]", o.WatchIn)
	}
	var repos strings.Builder
	for i, remote := range o.Repos {
		fmt.Fprintf(&repos, "    - {repoId: apps-%d, remote: %q, branch: main, discover: {}}\n", i+1, remote)
	}
	text := fmt.Sprintf(configText, a.ID, data, a.Address, a.WebAddress, o.Interval, o.Remote, repos.String(), cmp.Or(o.Provider, "devcluster"), o.Kubeconfig, watch)
	if o.Limit > 0 {
		text += fmt.Sprintf("  limits: {deployments: %d}\n", o.Limit)
	}
	if o.DSN != "" {
		replicas := "standby"
		if o.Share {
			replicas = "share"
		}
		text += fmt.Sprintf("  store: {dsn: %q, keyFile: %q, replicas: %s}\n", o.DSN, o.StoreKey, replicas)
	}
	text += o.More
	if err := os.WriteFile(a.Config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the agent's configuration: %w", err)
	}
	a.conn, err = grpc.NewClient(a.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(a.authorizeCall), grpc.WithStreamInterceptor(a.authorizeStream), grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: time.Second}))
	if err != nil {
		return nil, fmt.Errorf("make a client of the control API: %w", err)
	}
	a.API, a.Control = apiservice.NewAPIServiceClient(a.conn), controlv1.NewControlServiceClient(a.conn)
	return a, nil
}

// pipedID returns a unique ID for the agent's store. Two agents with the same ID would
// lock each other out of a cluster that tests share.
func pipedID(o Options) string {
	if o.ID != "" {
		return o.ID
	}
	sum := sha256.Sum256([]byte(cmp.Or(o.DSN, o.Dir)))
	return "local-" + hex.EncodeToString(sum[:4])
}

// startTimeout bounds the start of an agent, also on an overloaded machine.
const startTimeout = 3 * time.Minute

// Restart starts the agent again after Kill or Stop, on the same data and
// addresses, and returns once the control API answers.
func (a *Agent) Restart(ctx context.Context) error {
	if err := a.Launch(); err != nil {
		return err
	}
	err := a.Await(ctx, "the control API to answer on "+a.Address, startTimeout, func(ctx context.Context) (bool, error) {
		_, err := a.API.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1})
		return err == nil, err
	})
	if err != nil {
		a.Kill()
	}
	return err
}

// Launch is Restart that does not wait until the control API answers.
func (a *Agent) Launch() (err error) {
	a.Process, err = StartProcess(a.binary, a.LogFile, append([]string{"run", "--config", a.Config}, a.args...)...)
	return err
}

// Close ends the agent and its client.
func (a *Agent) Close() error { return errors.Join(a.conn.Close(), a.Stop()) }

// Await polls until done returns true, the agent ends or the timeout expires. An error of
// done counts as false. The returned error names the awaited condition, the last
// obstacle, and the path of the log.
func (a *Agent) Await(ctx context.Context, what string, timeout time.Duration, done func(context.Context) (bool, error)) error {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for {
		ok, err := done(limit)
		if ok {
			return nil
		}
		if err != nil && (last == nil || !timedOut(err)) { // at the timeout, the previous error is the reason
			last = err
		}
		select {
		case <-a.Ended():
			return a.Failure()
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.Done():
			return fmt.Errorf("waited %s for %s: %w; the end of %s:\n%s", timeout, what, cmp.Or(last, errors.New("not yet")), a.LogFile, a.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// timedOut reports whether err is a deadline error, of the client or of the agent.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// authorize adds the owner key, which the agent writes when it first starts.
func (a *Agent) authorize(ctx context.Context) (context.Context, error) {
	key, err := os.ReadFile(a.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("read the owner key: %w", err)
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+strings.TrimSpace(string(key))), nil
}

func (a *Agent) authorizeCall(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, err := a.authorize(ctx)
	if err != nil {
		return err
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

func (a *Agent) authorizeStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, err := a.authorize(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, desc, conn, method, opts...)
}

// Ports of agents lie below those of devcluster and of outgoing connections, which could
// otherwise take the port of an agent that is restarting.
const firstPort, ports = 16384, 20000 - 16384

// reserved keeps FreeAddresses' listeners from the garbage collector, which closes them.
var reserved struct {
	sync.Mutex
	listeners []net.Listener
}

// FreeAddresses returns two addresses on which nothing listens. Until this process ends,
// no other call in any process returns them, so a stopped agent can use its addresses
// again. A listener on the same port of another loopback address reserves them.
func FreeAddresses() (first, second string, err error) {
	reserved.Lock()
	defer reserved.Unlock()
	var addresses []string
	for range 100 {
		port := firstPort + rand.IntN(ports)
		reservation, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
		if err != nil {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		probe, err := net.Listen("tcp", address)
		if err != nil {
			_ = reservation.Close() // nothing was ever sent to this listener
			continue
		}
		_ = probe.Close()
		reserved.listeners = append(reserved.listeners, reservation)
		if addresses = append(addresses, address); len(addresses) == 2 {
			return addresses[0], addresses[1], nil
		}
	}
	return "", "", fmt.Errorf("of 100 ports from %d to %d, all are in use", firstPort, firstPort+ports-1)
}
