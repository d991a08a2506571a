package trace

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ownHost is a loopback address on which no other test listens, so that the system gives none of
// its ports to another test while nothing listens there.
const ownHost = "127.0.0.4"

// receiver is a collector.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	addr string
	stop func()

	mu     sync.Mutex
	refuse error
	header []string
	about  string
	spans  []*otlp.Span
	asked  int
}

// receive runs a collector on an address until the test ends.
func receive(t *testing.T, addr string) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{addr: l.Addr().String()}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Stop
	}()
	r.stop = sync.OnceFunc(func() { server.Stop(); <-done })
	t.Cleanup(r.stop)
	return r
}

// Export implements the collector's service.
func (r *receiver) Export(ctx context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.refuse != nil {
		return nil, r.refuse
	}
	md, _ := metadata.FromIncomingContext(ctx)
	r.header = md.Get("x-team")
	for _, rs := range req.GetResourceSpans() {
		r.about = words(rs.GetResource().GetAttributes())
		for _, ss := range rs.GetScopeSpans() {
			r.spans = append(r.spans, ss.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func words(attributes []*common.KeyValue) string {
	var out []string
	for _, a := range attributes {
		out = append(out, a.GetKey()+"="+a.GetValue().GetStringValue())
	}
	return strings.Join(out, " ")
}

// got returns the received spans once there are at least that many.
func (r *receiver) got(t *testing.T, atLeast int) []*otlp.Span {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		spans := slices.Clone(r.spans)
		r.mu.Unlock()
		if len(spans) >= atLeast {
			return spans
		}
		if time.Now().After(end) {
			t.Fatalf("%d spans have come, want %d", len(spans), atLeast)
		}
	}
}

// tree formats spans as a tree, one per line, and checks that they form one.
func tree(t *testing.T, spans []*otlp.Span) string {
	t.Helper()
	children, roots := map[string][]*otlp.Span{}, 0
	known := map[string]*otlp.Span{}
	for _, s := range spans {
		if known[string(s.GetSpanId())] != nil {
			t.Errorf("two spans have the ID %x", s.GetSpanId())
		}
		known[string(s.GetSpanId())] = s
		children[string(s.GetParentSpanId())] = append(children[string(s.GetParentSpanId())], s)
	}
	var out strings.Builder
	var write func(parent *otlp.Span, depth int)
	write = func(parent *otlp.Span, depth int) {
		for _, s := range children[string(parent.GetSpanId())] {
			if depth == 0 {
				roots++
			} else if s.GetStartTimeUnixNano() < parent.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > parent.GetEndTimeUnixNano() ||
				string(s.GetTraceId()) != string(parent.GetTraceId()) {
				t.Errorf("%s does not lie within %s", s.GetName(), parent.GetName())
			}
			code := strings.TrimPrefix(s.GetStatus().GetCode().String(), "STATUS_CODE_")
			fmt.Fprintln(&out, strings.TrimSpace(strings.Repeat("  ", depth)+s.GetName()+" "+strings.TrimPrefix(code, "UNSET")+" "+s.GetStatus().GetMessage()))
			delete(known, string(s.GetSpanId()))
			write(s, depth+1)
		}
	}
	write(nil, 0)
	if roots != 1 || len(known) > 0 {
		t.Errorf("%d roots, %d spans hang on none", roots, len(known))
	}
	return out.String()
}

// env is a store and a tracer that can be restarted.
type env struct {
	t     *testing.T
	store *store.Store
	cfg   Config
	stop  func()
}

func newEnv(t *testing.T, endpoint string) *env {
	t.Helper()
	l := &env{t: t, store: storetest.New(t, nil), stop: func() {}}
	l.cfg = Config{
		Endpoint: endpoint, Insecure: true, Headers: map[string]string{"x-team": "shop"}, SampleRatio: 1, File: filepath.Join(t.TempDir(), "traces.json"),
		Store: l.store, Version: "v1", PipedID: "local", Logger: slog.New(slog.DiscardHandler),
	}
	if _, err := l.store.PutApplication(t.Context(), deploy.Application{ID: "web", Name: "web", Kind: deploy.KindKubernetes}); err != nil {
		t.Fatal(err)
	}
	return l
}

// start starts the tracer, until stop or the end of the test.
func (l *env) start() {
	l.t.Helper()
	tracer, err := New(l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tracer.Run(ctx) }()
	l.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
		if err := tracer.Close(); err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(l.stop)
}

// noted waits until the tracer has recorded that it has sent the trace of a deployment.
func (l *env) noted(id string) {
	l.t.Helper()
	for end := time.Now().Add(10 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if data, err := os.ReadFile(l.cfg.File); err == nil && strings.Contains(string(data), id) {
			return
		}
		if time.Now().After(end) {
			l.t.Fatalf("the trace of %s is still tried", id)
		}
	}
}

// begin creates a deployment and runs it into its first stage.
func (l *env) begin() (id string) {
	l.t.Helper()
	id = uuid.NewString()
	_, err := l.store.CreateDeployment(l.t.Context(), store.NewDeployment{Deployment: deploy.Deployment{
		ID: id, ApplicationID: "web", ApplicationName: "web", Provider: "local", Status: deploy.Pending,
		Trigger: deploy.Trigger{Kind: deploy.OnCommit, Commit: deploy.Commit{Hash: "0123456789", Branch: "main"}, At: time.Now()},
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.Plan(deploy.Plan{Strategy: deploy.StrategyPipeline, Stages: []deploy.Stage{
			{ID: "sync", Name: deploy.StageK8sSync}, {ID: "wait", Name: deploy.StageWait}, {ID: deploy.RollbackID, Name: deploy.StageRollback, Rollback: true},
		}}, now)
	})
	l.move(id, func(d *deploy.Deployment, now time.Time) error { return d.Start(now) })
	l.move(id, func(d *deploy.Deployment, now time.Time) error { return d.StartStage("sync", now) })
	return id
}

func (l *env) move(id string, fn func(*deploy.Deployment, time.Time) error) {
	l.t.Helper()
	if _, err := l.store.UpdateDeployment(l.t.Context(), id, func(d *deploy.Deployment) error { return fn(d, time.Now()) }); err != nil {
		l.t.Fatal(err)
	}
}

func (l *env) succeed(id string) {
	l.t.Helper()
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.FinishStage("sync", deploy.StageSuccess, "", now)
	})
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.Complete(deploy.Success, "All stages have succeeded", now)
	})
}

// fail fails the rollout of the first stage and rolls back.
func (l *env) fail(id string) {
	l.t.Helper()
	workload := deploy.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "web"}
	rec := deploy.Rollout{
		ID: deploy.RolloutID(id, "sync", "local", workload), ApplicationID: "web", DeploymentID: id, StageID: "sync", Cluster: "local",
		Workload: workload, Phase: deploy.RolloutApplied,
	}
	saved, err := l.store.SaveRollout(l.t.Context(), rec)
	if err == nil {
		saved.Phase, saved.Reason = deploy.RolloutFailed, "the image cannot be pulled"
		_, err = l.store.SaveRollout(l.t.Context(), saved)
	}
	if err != nil {
		l.t.Fatal(err)
	}
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.FinishStage("sync", deploy.StageFailure, "the rollout has failed", now)
	})
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.BeginRollback(deploy.Failure, "sync has failed", now)
	})
	l.move(id, func(d *deploy.Deployment, now time.Time) error { return d.StartStage(deploy.RollbackID, now) })
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.FinishStage(deploy.RollbackID, deploy.StageSuccess, "", now)
	})
	l.move(id, func(d *deploy.Deployment, now time.Time) error {
		return d.Complete(deploy.Failure, "sync has failed; rolled back", now)
	})
}

// TestTrace: a failed deployment is one tree with all its statuses, stages and rollouts.
func TestTrace(t *testing.T) {
	r := receive(t, "127.0.0.1:0")
	l := newEnv(t, r.addr)
	l.start()
	id := l.begin()
	l.fail(id)
	spans := r.got(t, 8)
	want := `deploy web ERROR sync has failed; rolled back
PENDING
PLANNED
RUNNING
K8S_SYNC ERROR the rollout has failed
rollout Deployment web ERROR the image cannot be pulled
ROLLING_BACK
ROLLBACK OK
`
	if diff := cmp.Diff(want, tree(t, spans)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := uuid.UUID(spans[0].GetTraceId()).String(); got != id {
		t.Errorf("the trace is %s, the deployment %s", got, id)
	}
	for _, part := range []string{"piped.app=web", "piped.deployment=" + id, "piped.commit=0123456789", "piped.cluster=local", "piped.stage=sync", "piped.status=FAILURE"} {
		if got := words(spans[4].GetAttributes()); !strings.Contains(got, part) {
			t.Errorf("the attributes of %s lack %q: %s", spans[4].GetName(), part, got)
		}
	}
	if want := "service.name=piped service.version=v1 service.instance.id=local"; r.about != want || !slices.Equal(r.header, []string{"shop"}) {
		t.Errorf("resource %q, header %q", r.about, r.header)
	}
}

// TestRestart: deployments that end before, during and after an outage of the agent are
// exported once each.
func TestRestart(t *testing.T) {
	r := receive(t, "127.0.0.1:0")
	l := newEnv(t, r.addr)
	l.start()
	first := l.begin()
	l.succeed(first)
	r.got(t, 5)
	l.noted(first) // else it is sent again after the restart
	second := l.begin()
	l.stop()
	l.succeed(second)
	third := l.begin()
	l.start()
	r.got(t, 10)
	l.succeed(third)
	byTrace := map[string][]*otlp.Span{}
	for _, s := range r.got(t, 15) {
		id := uuid.UUID(s.GetTraceId()).String()
		byTrace[id] = append(byTrace[id], s)
	}
	want := "deploy web OK\nPENDING\nPLANNED\nRUNNING\nK8S_SYNC OK\n"
	for _, id := range []string{first, second, third} {
		if diff := cmp.Diff(want, tree(t, byTrace[id])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", id, diff)
		}
	}
}

// TestCollectorAway: traces of an outage of the collector are sent after it.
func TestCollectorAway(t *testing.T) {
	r := receive(t, ownHost+":0")
	l := newEnv(t, r.addr)
	l.start()
	r.stop()
	l.succeed(l.begin())
	l.succeed(l.begin())
	back := receive(t, r.addr)
	back.got(t, 10)
}

// TestCollectorRefuses: rejected traces are not retried.
func TestCollectorRefuses(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.ResourceExhausted} {
		t.Run(code.String(), func(t *testing.T) { testRefused(t, code) })
	}
}

// TestRetryable: the codes that OTLP calls retryable are retried, and errors of
// configuration.
func TestRetryable(t *testing.T) {
	again, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{})
	if err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*status.Status]bool{
		again: true, status.New(codes.ResourceExhausted, ""): false, status.New(codes.Unavailable, ""): true, status.New(codes.DeadlineExceeded, ""): true,
		status.New(codes.Internal, ""): false, status.New(codes.Unknown, ""): false, status.New(codes.Unauthenticated, ""): true,
	} {
		if got := retryable(s); got != want {
			t.Errorf("%v with %v is tried again: %v", s.Code(), s.Details(), got)
		}
	}
}

// TestRequests: requests respect the size limit and contain each span once, in order.
func TestRequests(t *testing.T) {
	var spans []*otlp.Span
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprint(i, strings.Repeat("x", maxRequest/10)))
		spans = append(spans, &otlp.Span{Name: want[i]})
	}
	spans[7].Name += strings.Repeat("y", maxRequest) // exceeds the limit by itself
	want[7] = spans[7].Name
	var got []string
	for _, request := range requests(spans) {
		size := 0
		for _, s := range request {
			got, size = append(got, s.GetName()), size+proto.Size(s)
		}
		if size > maxRequest && len(request) > 1 {
			t.Errorf("a request of %d spans has %d bytes", len(request), size)
		}
	}
	if !slices.Equal(got, want) || len(requests(nil)) != 0 {
		t.Errorf("%d spans are sent, want %d", len(got), len(want))
	}
}

func testRefused(t *testing.T, code codes.Code) {
	r := receive(t, "127.0.0.1:0")
	r.refuse = status.Error(code, "no such thing")
	l := newEnv(t, r.addr)
	l.start()
	refused := l.begin()
	l.succeed(refused)
	l.noted(refused)
	r.mu.Lock()
	r.refuse = nil
	asked := r.asked
	r.mu.Unlock()
	next := l.begin()
	l.succeed(next)
	for _, s := range r.got(t, 5) {
		if uuid.UUID(s.GetTraceId()).String() != next {
			t.Errorf("a span of another deployment has come: %s", s.GetName())
		}
	}
	if asked != 1 {
		t.Errorf("it was sent %d times", asked)
	}
}

// TestSampling: about the configured share is exported, the same deployments every time.
func TestSampling(t *testing.T) {
	for _, ratio := range []float64{0, 0.25, 1} {
		tracer, n := Tracer{Config: Config{SampleRatio: ratio}}, 0
		for i := range 4000 {
			id := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
			first := tracer.sampled(id)
			if first {
				n++
			}
			if again := tracer.sampled(id); again != first {
				t.Fatal("not the same")
			}
		}
		if got := float64(n) / 4000; got < ratio-0.03 || got > ratio+0.03 {
			t.Errorf("%v of all, want %v", got, ratio)
		}
	}
}

// TestSent: old entries are dropped, and deployments that ended over a day ago are skipped.
func TestSent(t *testing.T) {
	now := time.Now()
	file := filepath.Join(t.TempDir(), "traces.json")
	s, err := readSent(file, now)
	if err != nil {
		t.Fatal(err)
	}
	s.add("a", now)
	s.add("b", now.Add(time.Minute))
	s.add("late", now.Add(40*time.Second))
	if err := s.write(file); err != nil {
		t.Fatal(err)
	}
	again, err := readSent(file, now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Deployments) != 2 || again.Deployments["b"].IsZero() || again.Deployments["late"].IsZero() {
		t.Errorf("kept: %v", again.Deployments)
	}
	if got, want := again.since(now.Add(time.Hour)), now.Add(30*time.Second); !got.Equal(want) {
		t.Errorf("since %s, want %s", got, want)
	}
	if got, want := again.since(now.Add(48*time.Hour)), now.Add(24*time.Hour); !got.Equal(want) {
		t.Errorf("after two days since %s, want %s", got, want)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSent(file, now); err == nil || !strings.Contains(err.Error(), "remove "+file) {
		t.Errorf("a damaged file: %v", err)
	}
}
