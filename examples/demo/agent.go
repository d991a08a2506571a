package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// pollInterval is how often the agent is asked for news.
const pollInterval = 100 * time.Millisecond

// agent is the running agent and a client of its control API.
type agent struct {
	bin, config, key string
	address          string // of the control API
	web              string // of health and metrics
	started          time.Time
	process          *process
	conn             *grpc.ClientConn
	api              apiservice.APIServiceClient
}

const agentConfig = `apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  name: demo
  dataDir: %q
  api:
    address: %q
  web:
    address: %q
  syncInterval: 1s
  repositories:
    - repoId: apps
      remote: %q
      branch: main
      discover: {} # every application of the repository
  platformProviders:
    - name: devcluster
      type: KUBERNETES
      config:
        kubeConfigPath: %q
`

// startAgent writes the agent's configuration below dir and starts it.
func startAgent(bin, dir, kubeconfig, remote string) (*agent, error) {
	a := &agent{bin: bin, config: filepath.Join(dir, "piped.yaml")}
	data := filepath.Join(dir, "piped")
	a.key = filepath.Join(data, "owner.key")
	var err error
	if a.address, a.web, err = freeAddresses(); err != nil {
		return nil, err
	}
	config := fmt.Sprintf(agentConfig, data, a.address, a.web, remote, kubeconfig)
	if err := os.WriteFile(a.config, []byte(config), 0o600); err != nil {
		return nil, fmt.Errorf("write the agent's configuration: %w", err)
	}
	a.conn, err = grpc.NewClient(a.address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(a.authorize))
	if err != nil {
		return nil, fmt.Errorf("make a client of the control API: %w", err)
	}
	a.api = apiservice.NewAPIServiceClient(a.conn)
	a.started = time.Now()
	a.process, err = startProcess(filepath.Join(bin, "piped"), filepath.Join(dir, "piped.log"), "run", "--config", a.config)
	if err != nil {
		return nil, errors.Join(err, a.conn.Close())
	}
	return a, nil
}

// freeAddresses returns two addresses that were free a moment ago.
func freeAddresses() (first, second string, err error) {
	var addresses [2]string
	for i := range addresses {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", "", fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // after both are chosen, so that they differ
		addresses[i] = l.Addr().String()
	}
	return addresses[0], addresses[1], nil
}

// authorize adds the owner key, which the agent writes when it first starts.
func (a *agent) authorize(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	key, err := os.ReadFile(a.key)
	if err != nil {
		return fmt.Errorf("read the owner key: %w", err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+strings.TrimSpace(string(key)))
	return invoke(ctx, method, req, reply, conn, opts...)
}

// answers returns when the control API accepts the owner key.
func (a *agent) answers(ctx context.Context) error {
	return a.await(ctx, "the control API to answer on "+a.address, agentTimeout, func(ctx context.Context) (bool, error) {
		_, err := a.api.ListApplications(ctx, &apiservice.ListApplicationsRequest{Limit: 1})
		return err == nil, err
	})
}

// applications returns the agent's applications by name, once there are count.
func (a *agent) applications(ctx context.Context, count int) ([]*modelv1.Application, error) {
	var apps []*modelv1.Application
	err := a.await(ctx, fmt.Sprintf("%d applications to be found", count), agentTimeout, func(ctx context.Context) (bool, error) {
		resp, err := a.api.ListApplications(ctx, &apiservice.ListApplicationsRequest{})
		apps = resp.GetApplications()
		return len(apps) >= count, err
	})
	slices.SortFunc(apps, func(x, y *modelv1.Application) int { return strings.Compare(x.Name, y.Name) })
	return apps, err
}

// await asks again and again until done says yes, the agent ends or the time is
// over. An error of done counts as a no. The error returned says what was waited
// for, what stood in the way last, and where the log is.
func (a *agent) await(ctx context.Context, what string, timeout time.Duration, done func(context.Context) (bool, error)) error {
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	last := errors.New("not yet")
	for {
		ok, err := done(limit)
		if ok {
			return nil
		}
		if err != nil && limit.Err() == nil {
			last = err
		}
		select {
		case <-a.process.ended:
			return a.process.failure()
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.Done():
			return fmt.Errorf("waited %s for %s: %w; the end of %s:\n%s", timeout, what, last, a.process.log, a.process.tail())
		case <-time.After(pollInterval):
		}
	}
}

// pipectl runs the client as a person would, and shows both.
func (a *agent) pipectl(ctx context.Context, tell *narrator, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, deployTimeout)
	defer cancel()
	tell.command("pipectl " + strings.Join(args, " ") + " \\\n       " + strings.Join(a.pipectlFlags(), " "))
	args = append(args, a.pipectlFlags()...)
	out, err := exec.CommandContext(ctx, filepath.Join(a.bin, "pipectl"), args...).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		tell.output(strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return fmt.Errorf("pipectl %s: %w; the agent's log: %s", strings.Join(args, " "), err, a.process.log)
	}
	return nil
}

// pipectlFlags are what each call of pipectl needs.
func (a *agent) pipectlFlags() []string {
	return []string{"--address", a.address, "--api-key-file", a.key, "--insecure"}
}

func (a *agent) close() error { return errors.Join(a.conn.Close(), a.process.stop()) }
