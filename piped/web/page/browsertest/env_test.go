package browsertest_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/executor/opentofu/opentofutest"
	"github.com/c785c783/piped/executor/script/sandbox"
	"github.com/c785c783/piped/piped/access/signin/signintest"
	"github.com/c785c783/piped/piped/app"
	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/web/page/browsertest"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestMain has the agent's program, if it is built, launch scripts: a test program with the race detector
// takes several times as long to start.
func TestMain(m *testing.M) {
	sandbox.Program = cmp.Or(os.Getenv("PIPED_BINARY"), sandbox.Program)
	clustertest.Main(m)
}

// patience is the timeout for an expected event on an overloaded machine.
const patience = 5 * time.Minute

// gated makes every change wait for approval; %s are the options of the stage.
const gated = `
  planner: {alwaysUsePipeline: true}
  pipeline:
    stages:
      - {id: gate, name: WAIT_APPROVAL%s}
      - {id: sync, name: K8S_SYNC}
`

// fixture is an application of the environment.
type fixture struct {
	name    string
	labels  string // YAML of its labels
	spec    string // further lines of its configuration
	version string // tag of its image
	settled controlv1.ApplicationState
}

// fixtures are the applications that tests find when they begin. A test that changes one has it
// for itself. The analysis of one of them asks the address.
func fixtures(healthURL string) []fixture {
	const (
		synced  = controlv1.ApplicationState_APPLICATION_STATE_SYNCED
		waiting = controlv1.ApplicationState_APPLICATION_STATE_WAITING_FOR_APPROVAL
	)
	return []fixture{
		{"web", "{team: shop, tier: front}", "", "v1", synced},
		{"search", "{team: shop, tier: back}", "", "v1", synced},
		{"mail", "{team: office}", "", "v1", synced},
		{"guestbook", "{team: office}", "", "v1", synced},
		// The keyboard leads to these two, and Now has them first: no row above them goes away while it has the focus.
		{"balances", "{team: payments}", fmt.Sprintf(gated, ""), "v1", waiting},
		{"banking", "{team: payments}", fmt.Sprintf(gated, ""), "v1", waiting},
		{"checkout", "{team: payments}", fmt.Sprintf(gated, ""), "v1", waiting},
		{"invoices", "{team: payments}", fmt.Sprintf(gated, ", with: {approvers: [ada, grace], minApproverNum: 2}"), "v1", waiting},
		{"ledger", "{team: payments}", fmt.Sprintf(gated, ""), "v1", waiting},
		{"drifting", "{team: office}", "", "v1", synced},
		{"broken", "{team: shop}", "", "does-not-exist", controlv1.ApplicationState_APPLICATION_STATE_FAILED},
		{"payouts", "{team: payments}", fmt.Sprintf(gated, ""), "v1", waiting},
		{"slow", "{team: office}", "\n  pipeline: {stages: [{id: pause, name: WAIT, with: {duration: 24h}}, {id: sync, name: K8S_SYNC}]}\n", "v1", synced},
		{"reports", "{team: office}", "", "v1", synced},
		{"analysed", "{team: office}", "\n  planner: {alwaysUsePipeline: true}\n  pipeline: {stages: [{id: analysis, name: ANALYSIS, with: {duration: 2s, https: [{url: " + healthURL + ", method: GET, expectedCode: 200, interval: 1s}]}}, {id: sync, name: K8S_SYNC}]}\n", "v1", synced},
		{"first", "{team: office}", "\n  postSync: {chain: {applications: [{name: second}]}}\n", "v1", synced},
		{"second", "{team: office}", "\n  trigger: {onChain: {disabled: false}}\n", "v1", synced},
		{"invalid", "{team: shop}", "\n  pipeline: {stages: [{name: K8S_SYNCC}]}\n", "v1", controlv1.ApplicationState_APPLICATION_STATE_INVALID_CONFIG},
	}
}

// files returns the files of the application.
func (f fixture) files(namespace string) map[string]string {
	deadline := 600 // seconds; a busy machine starts pods late
	if f.settled == controlv1.ApplicationState_APPLICATION_STATE_FAILED {
		deadline = 40 // within it the scheduler is done, and the node says that it cannot pull the image
	}
	return map[string]string{
		f.name + "/app.pipecd.yaml": fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: %s\n  labels: %s\n  input: {namespace: %s}\n%s", f.name, f.labels, namespace, f.spec),
		f.name + "/app.yaml": fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %[1]s}
data: {greeting: hello}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: 1
  progressDeadlineSeconds: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers: [{name: main, image: "registry.example/%[1]s:%[2]s"}]
`, f.name, f.version, deadline),
	}
}

// idOf returns the ID of an application of the repository.
func idOf(name string) string {
	return deploy.ApplicationID(deploy.GitPath{RepoID: "apps", Dir: name, ConfigFile: "app.pipecd.yaml"})
}

// env is a real agent with its cluster and repository, and a browser.
type env struct {
	browser   *browsertest.Browser
	cluster   *clustertest.Cluster
	namespace string
	first     string // the commit with the first versions
	pushing   sync.Mutex
	repo      *gittest.Repo
	hook      *hook
	issuer    config.Issuer // of users; its only user is ann
	dataDir   string
	config    string // path
	address   string // of the page
	stop      func() // the agent
	ctx       context.Context
	api       apiservice.APIServiceClient
	control   controlv1.ControlServiceClient
}

// newEnv starts everything, and waits until the applications are as tests expect them. The store
// is SQLite without a data source name.
func newEnv(t *testing.T, dsn string, apps ...fixture) *env {
	e := &env{cluster: clustertest.Shared(t), repo: gittest.New(t), hook: newHook(t), issuer: signintest.NewGitHub(t).Config(t, "corp"), dataDir: t.TempDir()}
	e.namespace = e.cluster.Namespace(t)
	browser, err := browsertest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := browser.Close(); err != nil {
			t.Error(err)
		}
	})
	e.browser = browser
	e.first = e.push(t, "First versions", apps...)
	e.writeConfig(t, dsn)
	e.run(t)
	for _, f := range apps {
		e.await(t, f.name, f.settled)
	}
	return e
}

// healthy returns the address of a server whose answers are all of status 200.
func healthy(t *testing.T) string {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(server.Close)
	return server.URL
}

// push commits applications.
func (e *env) push(t *testing.T, message string, apps ...fixture) string {
	t.Helper()
	e.pushing.Lock()
	defer e.pushing.Unlock()
	files := map[string]string{}
	for _, f := range apps {
		for name, text := range f.files(e.namespace) {
			files[name] = text
		}
	}
	return e.repo.Push(t, message, files)
}

func (e *env) writeConfig(t *testing.T, dsn string) {
	t.Helper()
	api, web, err := agenttest.FreeAddresses()
	if err != nil {
		t.Fatal(err)
	}
	e.address, e.config = "http://"+web, filepath.Join(t.TempDir(), "piped.yaml")
	text := fmt.Sprintf(`apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: test
  pipedID: browser
  dataDir: %q
  syncInterval: 200ms
  adopt: review
  api: {address: %q}
  web: {address: %q}
  repositories: [{repoId: apps, remote: %q, branch: main, discover: {}}]
  platformProviders:
    - {name: local, type: KUBERNETES, config: {kubeConfigPath: %q}}
    - {name: tofu, type: OPENTOFU, config: {program: %q, cliConfigFile: %q}}
  notifications:
    routes: [{receiver: hook, apps: [mail], events: [DEPLOYMENT_TRIGGERED]}]
    receivers: [{name: hook, webhook: {url: %q}}]
  access:
    externalURL: %q
    roles: [{name: viewer, subjects: ["*"]}]
    issuers: [{name: %s, type: GITHUB, apiURL: %q, clientID: %s, clientSecretFile: %q}]
`, e.dataDir, api, web, e.repo.Dir, e.cluster.Kubeconfig(), opentofutest.Program(t), opentofutest.CLIConfig(t), e.hook.url, e.address, e.issuer.Name, e.issuer.APIURL, e.issuer.ClientID, e.issuer.ClientSecretFile)
	if dsn != "" {
		text += fmt.Sprintf("  store: {dsn: %q}\n", dsn)
	}
	if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run runs the agent until stop is called, or the test ends.
func (e *env) run(t *testing.T) {
	t.Helper()
	cfg, _, err := app.Kinds().LoadPiped(e.config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	agent, err := app.New(ctx, cfg, app.Options{Version: "test", Logger: logger(t), LeaseEvery: -1})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the agent did not stop cleanly: %v", err)
		}
	})
	t.Cleanup(e.stop)
	conn, err := grpc.NewClient(agent.APIAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	e.ctx = metadata.AppendToOutgoingContext(context.Background(), "authorization", "API-KEY "+e.ownerKey(t))
	e.api, e.control = apiservice.NewAPIServiceClient(conn), controlv1.NewControlServiceClient(conn)
}

// logger writes to the file in the environment variable PIPED_TEST_LOG, else nowhere.
func logger(t *testing.T) *slog.Logger {
	t.Helper()
	w := io.Discard
	if path := os.Getenv("PIPED_TEST_LOG"); path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		w = f
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

func (e *env) ownerKey(t *testing.T) string {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(e.dataDir, "owner.key"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(key))
}

// key returns a new API key of a subject with a role.
func (e *env) key(t *testing.T, subject, role string) string {
	t.Helper()
	resp, err := e.control.CreateAPIKey(e.ctx, &controlv1.CreateAPIKeyRequest{Name: subject, Subject: subject, RoleName: role})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetKey()
}

// await waits until an application has a state, as the page shows it.
func (e *env) await(t *testing.T, name string, want controlv1.ApplicationState) {
	t.Helper()
	var last *controlv1.ApplicationEntry
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		found, err := e.control.SearchApplications(e.ctx, &controlv1.SearchApplicationsRequest{Text: name})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range found.Applications {
			if a.Name == name {
				last = a
			}
		}
		if last.GetStatus().GetState() == want {
			return
		}
	}
	t.Fatalf("the application %s did not become %s: %v", name, want, last)
}

// last returns the last deployment of an application.
func (e *env) last(t *testing.T, name string) *modelv1.Deployment {
	t.Helper()
	list, err := e.api.ListDeployments(e.ctx, &apiservice.ListDeploymentsRequest{ApplicationIds: []string{idOf(name)}, Limit: 1})
	if err != nil || len(list.Deployments) != 1 {
		t.Fatalf("deployments of %s: %v, %v", name, list, err)
	}
	d, err := e.api.GetDeployment(e.ctx, &apiservice.GetDeploymentRequest{DeploymentId: list.Deployments[0].Id})
	if err != nil {
		t.Fatal(err)
	}
	return d.Deployment
}

// drift changes a live object of an application.
func (e *env) drift(t *testing.T, name string) {
	t.Helper()
	maps := e.cluster.Client(t).CoreV1().ConfigMaps(e.namespace)
	live, err := maps.Get(t.Context(), name, metav1.GetOptions{})
	if err == nil {
		live.Data["greeting"] = "changed by hand"
		_, err = maps.Update(t.Context(), live, metav1.UpdateOptions{FieldManager: "kubectl-edit"})
	}
	if err != nil {
		t.Fatal(err)
	}
	e.await(t, name, controlv1.ApplicationState_APPLICATION_STATE_DRIFTED)
}

// tab opens the page in a new browser session.
func (e *env) tab(t *testing.T) *browsertest.Tab {
	t.Helper()
	return e.browser.Tab(t, e.address)
}

// signIn opens a view as the holder of a key, who first signs in.
func (e *env) signIn(t *testing.T, key, path string) *browsertest.Tab {
	t.Helper()
	tab := e.tab(t)
	tab.Open(path)
	tab.Await("the sign-in page", `document.querySelector("#key")`)
	tab.Click("label", "API key")
	tab.Keys(key + "\r")
	tab.AwaitReady()
	return tab
}

// awaitNext waits for a successful deployment after the one with an ID.
func (e *env) awaitNext(t *testing.T, name, before string) {
	t.Helper()
	var d *modelv1.Deployment
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if d = e.last(t, name); d.Id != before && d.Status == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS {
			return
		}
	}
	t.Fatalf("no new deployment of %s succeeded; the last is %v", name, d)
}
