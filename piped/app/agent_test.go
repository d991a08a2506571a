package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/store/storetest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestMain runs more tests in parallel than there are cores, because they mostly wait for
// pods. The agent's program, if it is built, launches scripts, of which each agent runs one at its start: a
// test program with the race detector takes several times as long to start.
func TestMain(m *testing.M) {
	sandbox.Program = cmp.Or(os.Getenv("PIPED_BINARY"), sandbox.Program)
	if err := flag.Set("test.parallel", "8"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	clustertest.Main(m)
}

// patience is the timeout of tests for an expected event.
const patience = 12 * time.Minute

// settings configure a test's agent.
type settings struct {
	dataDir    string
	remote     string
	kubeconfig string
	providers  string           // YAML of spec.platformProviders; default one provider, "local"
	discover   string           // YAML of repositories[].discover; default "{}", everything
	apiAddress string           // default a free port of loopback
	dsn        string           // default SQLite in the data directory
	now        func() time.Time // default the machine's clock
	leaseEvery time.Duration    // 0: no Leases
	pipedID    string           // default testID
	sweepEvery time.Duration    // default the agent's
	more       string           // further lines of the configuration's spec, indented
}

// configFile writes the agent's configuration and returns its path.
func (s settings) configFile(t *testing.T) string {
	t.Helper()
	if s.providers == "" {
		s.providers = fmt.Sprintf("[{name: local, type: KUBERNETES, config: {kubeConfigPath: %s}}]", s.kubeconfig)
	}
	if s.apiAddress == "" {
		s.apiAddress = "127.0.0.1:0"
	}
	if s.pipedID == "" {
		s.pipedID = testID(t.Name())
	}
	if s.discover == "" {
		s.discover = "{}"
	}
	text := fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: test
  pipedID: %s
  dataDir: %s
  syncInterval: 200ms
  api: {address: "%s"}
  web: {address: "127.0.0.1:0"}
  repositories: [{repoId: apps, remote: "%s", branch: main, discover: %s}]
  platformProviders: %s
`, s.pipedID, s.dataDir, s.apiAddress, s.remote, s.discover, s.providers)
	if s.dsn != "" {
		text += fmt.Sprintf("  store: {dsn: %q}\n", s.dsn)
	}
	text += s.more
	path := filepath.Join(t.TempDir(), "piped.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// testID returns the pipedID of the agents of a test, also for its subtests. Agents with the same ID in
// a shared cluster count as one: applications of other tests with the same path would be theirs, too.
func testID(name string) string {
	name, _, _ = strings.Cut(name, "/")
	sum := sha256.Sum256([]byte(name))
	return "test-" + hex.EncodeToString(sum[:4])
}

// allowScripts is a line of the configuration's spec that lets scripts use a directory.
func allowScripts(dir string) string { return fmt.Sprintf("  scripts: {allowPaths: [%q]}\n", dir) }

// runAgent runs an agent inside the test process until the test ends.
func runAgent(t *testing.T, s settings) *client {
	t.Helper()
	c, _ := runAgentUntil(t, s)
	return c
}

// runAgentUntil is runAgent for an agent that stop may stop earlier.
func runAgentUntil(t *testing.T, s settings) (c *client, stop func()) {
	t.Helper()
	cfg, _, err := Kinds().LoadPiped(s.configFile(t))
	if err != nil {
		t.Fatal(err)
	}
	if s.dsn == "" {
		createStore(t, s.dataDir)
	}
	ctx, cancel := context.WithCancel(context.Background())
	agent, err := New(ctx, cfg, Options{Version: "test", Logger: testLogger(t), Now: s.now, SweepEvery: s.sweepEvery, LeaseEvery: cmp.Or(s.leaseEvery, -1)})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	stop = runUntil(t, ctx, agent, cancel)
	return dial(t, agent.APIAddr(), s.dataDir), stop
}

// runUntil runs an agent until stop is called or the test ends, which wait for its end.
func runUntil(t *testing.T, ctx context.Context, agent *App, cancel func()) (stop func()) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent did not stop cleanly: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// createStore puts an empty store into a data directory that has none. An agent would take
// longer to create it than many a test takes.
func createStore(t *testing.T, dataDir string) {
	t.Helper()
	file := filepath.Join(dataDir, "piped.db")
	if _, err := os.Stat(file); err == nil {
		return
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		t.Fatal(err)
	}
	storetest.Create(t, file)
}

// testLogger writes to the file in the environment variable PIPED_TEST_LOG, else nowhere:
// tests get all they need from the API.
func testLogger(t *testing.T) *slog.Logger {
	var w io.Writer = io.Discard
	if path := os.Getenv("PIPED_TEST_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		w = f
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug})).With("test", t.Name())
}

// client calls an agent's control API with its owner key.
type client struct {
	t       *testing.T
	ctx     context.Context
	conn    *grpc.ClientConn
	api     apiservice.APIServiceClient
	control controlv1.ControlServiceClient
	web     string // address of the page; "" if the agent is another process
}

func dial(t *testing.T, addr, dataDir string) *client {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(dataDir, ownerKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "API-KEY "+strings.TrimSpace(string(key)))
	return &client{t: t, ctx: ctx, conn: conn, api: apiservice.NewAPIServiceClient(conn), control: controlv1.NewControlServiceClient(conn)}
}

// appID is the ID of the application in a directory of the test repository.
func appID(dir string) string {
	return deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: dir, ConfigFile: "app.pipecd.yaml"})
}

// pollInterval is the interval between two polls of an agent. Each poll takes time in the
// agent, the database and the test, and many tests wait at once.
const pollInterval = 60 * time.Millisecond

// deployments returns the deployments of an application, newest first.
func (c *client) deployments(app string) []*modelv1.Deployment {
	c.t.Helper()
	resp, err := c.api.ListDeployments(c.ctx, &apiservice.ListDeploymentsRequest{ApplicationIds: []string{app}, Limit: 100})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.GetDeployments()
}

// await returns the first deployment of the application that satisfies ok.
func (c *client) await(app, what string, ok func(*modelv1.Deployment) bool) *modelv1.Deployment {
	c.t.Helper()
	var last []*modelv1.Deployment
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pollInterval) {
		last = c.deployments(app)
		for _, d := range last {
			if ok(d) {
				return c.get(d.GetId())
			}
		}
	}
	var seen []string
	for _, d := range last {
		seen = append(seen, fmt.Sprintf("%s %s %s (%s)\n%s", d.GetId(), d.GetTrigger().GetCommit().GetMessage(), d.GetStatus(), d.GetStatusReason(), c.logs(d.GetId())))
	}
	c.t.Fatalf("no deployment that %s after %s; there are:\n%s\napplication: %v", what, patience, strings.Join(seen, "\n"), c.application(app))
	return nil
}

// awaitEnd returns the deployment of a commit once it has ended.
func (c *client) awaitEnd(app, commit string) *modelv1.Deployment {
	c.t.Helper()
	return c.await(app, "ended for commit "+commit, func(d *modelv1.Deployment) bool {
		return d.GetTrigger().GetCommit().GetHash() == commit && d.GetStatus() >= modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
}

// mustEnd is awaitEnd for a deployment that must end with a status.
func (c *client) mustEnd(app, commit string, want modelv1.DeploymentStatus) *modelv1.Deployment {
	c.t.Helper()
	d := c.awaitEnd(app, commit)
	if d.GetStatus() != want {
		c.t.Fatalf("deployment of commit %s ended as %s (%s), want %s; its log:\n%s", commit, d.GetStatus(), d.GetStatusReason(), want, c.logs(d.GetId()))
	}
	return d
}

func (c *client) get(id string) *modelv1.Deployment {
	c.t.Helper()
	resp, err := c.api.GetDeployment(c.ctx, &apiservice.GetDeploymentRequest{DeploymentId: id})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.GetDeployment()
}

// application returns the application, nil if it is not registered.
func (c *client) application(id string) *modelv1.Application {
	resp, err := c.api.GetApplication(c.ctx, &apiservice.GetApplicationRequest{ApplicationId: id})
	if err != nil {
		return nil
	}
	return resp.GetApplication()
}

// awaitSyncState waits until the application's state has a status.
func (c *client) awaitSyncState(app string, want modelv1.ApplicationSyncStatus) *modelv1.ApplicationSyncState {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pollInterval) {
		if s := c.application(app).GetSyncState(); s != nil && s.GetStatus() == want {
			return s
		}
	}
	c.t.Fatalf("application %s did not become %s: %v", app, want, c.application(app))
	return nil
}

// logs returns all stage logs of a deployment as text.
func (c *client) logs(deployment string) string {
	resp, err := c.api.ListStageLogs(c.ctx, &apiservice.ListStageLogsRequest{DeploymentId: deployment})
	if err != nil {
		return err.Error()
	}
	var out strings.Builder
	for stage, log := range resp.GetStageLogs() {
		for _, b := range log.GetBlocks() {
			fmt.Fprintf(&out, "%s %s: %s\n", stage, b.GetSeverity(), b.GetLog())
		}
	}
	return out.String()
}

// sync requests a manual sync and returns the finished command.
func (c *client) sync(app string) *modelv1.Command {
	c.t.Helper()
	resp, err := c.api.SyncApplication(c.ctx, &apiservice.SyncApplicationRequest{ApplicationId: app})
	if err != nil {
		c.t.Fatal(err)
	}
	return c.answer(resp.GetCommandId())
}

// answer returns a command once it has finished.
func (c *client) answer(id string) *modelv1.Command {
	c.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pollInterval) {
		got, err := c.api.GetCommand(c.ctx, &apiservice.GetCommandRequest{CommandId: id})
		if err != nil {
			c.t.Fatal(err)
		}
		if got.GetCommand().GetStatus() != modelv1.CommandStatus_COMMAND_NOT_HANDLED_YET {
			return got.GetCommand()
		}
	}
	c.t.Fatalf("command %s was not answered", id)
	return nil
}

// webApp returns the files of an application in the directory "web". With the image
// "does-not-exist" its rollout fails after 30 s, in which its pods can say why.
func webApp(namespace, image string, podAnnotations string) map[string]string {
	progressDeadline := int(patience.Seconds())
	if image == "does-not-exist" {
		progressDeadline = 30
	}
	return map[string]string{
		"web/app.pipecd.yaml": fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: web
  input: {namespace: %s}
`, namespace),
		"web/app.yaml": fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {greeting: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  progressDeadlineSeconds: %d
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {%s}}
    spec:
      containers: [{name: web, image: "registry.example/web:%s"}]
`, progressDeadline, podAnnotations, image),
	}
}

// newRepo returns an empty repository with a first commit.
func newRepo(t *testing.T) *gittest.Repo {
	t.Helper()
	repo := gittest.New(t)
	repo.Push(t, "begin", map[string]string{"README.md": "applications of the test"})
	return repo
}
