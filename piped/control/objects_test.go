package control_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// objects is a cluster with settable answers that records what is asked.
type objects struct {
	mu      sync.Mutex
	state   deploy.LiveState
	detail  deploy.ObjectDetail
	events  deploy.ObjectEvents
	log     []deploy.PodLog
	hold    bool // a log does not end
	err     error
	asked   []any
	changed map[*func()]bool
}

func (o *objects) LiveState(_ context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	state := o.state
	state.ApplicationID = app.ID
	return state, o.err
}

func (o *objects) LiveObject(_ context.Context, _ deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	return o.detail, o.err
}

func (o *objects) ObjectEvents(_ context.Context, _ deploy.Application, q deploy.EventQuery) (deploy.ObjectEvents, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, q)
	return o.events, o.err
}

func (o *objects) PodLog(ctx context.Context, _ deploy.Application, q deploy.PodLogQuery, send func(deploy.PodLog) error) error {
	o.mu.Lock()
	o.asked = append(o.asked, q)
	parts, hold, err := o.log, o.hold, o.err
	o.mu.Unlock()
	for _, part := range parts {
		if err := send(part); err != nil {
			return err
		}
	}
	if hold {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (o *objects) OnLiveChange(_ deploy.Application, changed func()) func() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changed == nil {
		o.changed = map[*func()]bool{}
	}
	o.changed[&changed] = true
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.changed, &changed)
	}
}

// set changes the answers and notifies the watchers.
func (o *objects) set(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f()
	for changed := range o.changed {
		(*changed)()
	}
}

// watchers returns the number of subscriptions to changes.
func (o *objects) watchers() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.changed)
}

// withObjects returns a client of an agent with the application app-web of team shop on o.
func withObjects(t *testing.T, o *objects) (*controltest.Agent, controlv1.ControlServiceClient) {
	t.Helper()
	agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) { cfg.Live, cfg.Objects = o, o })
	agent.Application("web", map[string]string{"team": "shop"})
	return agent, controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
}

func named(kind, name string) deploy.LiveObject {
	return deploy.LiveObject{Cluster: "dev", Object: deploy.ObjectRef{Version: "v1", Kind: kind, Namespace: "shop", Name: name}, Health: deploy.Healthy}
}

func TestGetLiveObject(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	o := &objects{detail: deploy.ObjectDetail{
		Object: named("ConfigMap", "web"), Live: "data: {a: \xff}\n", Git: "data: {a: b}\n", GitCommit: "abc", Compared: true, Note: "a note",
		Drift:    &deploy.ObjectDrift{Object: named("ConfigMap", "web").Object, Kind: deploy.DriftChanged, Fields: []deploy.FieldDrift{{Path: "data.a", Git: `"b"`, Live: `"c"`}}},
		Managers: []deploy.FieldManager{{Manager: "kubectl", Operation: "Update", Subresource: "status", ChangedAt: at, Fields: []string{"data.a"}, LeftOut: 2}},
	}}
	agent, client := withObjects(t, o)
	group, namespace := "", "shop"
	resp, err := client.GetLiveObject(as(t, agent.ReadOnly), &controlv1.GetLiveObjectRequest{
		ApplicationId: "app-web", Diff: true, ManagedFields: true,
		Object: &controlv1.ObjectSelector{Cluster: "dev", Group: &group, Kind: "configmap", Namespace: &namespace, Name: "web"},
	})
	if err != nil {
		t.Fatal(err)
	}
	ref := &modelv1.ObjectRef{Cluster: "dev", Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	want := &controlv1.GetLiveObjectResponse{
		ApplicationId: "app-web", Object: &modelv1.LiveObject{Object: ref, Health: modelv1.Health_HEALTH_HEALTHY},
		LiveYaml: "data: {a: \uFFFD}\n", GitYaml: "data: {a: b}\n", GitCommit: "abc", Compared: true, Note: "a note",
		Drift:    &modelv1.ObjectDrift{Object: ref, Kind: modelv1.DriftKind_DRIFT_KIND_CHANGED, Fields: []*modelv1.FieldDrift{{Path: "data.a", GitValue: `"b"`, LiveValue: `"c"`}}},
		Managers: []*controlv1.FieldManager{{Manager: "kubectl", Operation: "Update", Subresource: "status", ChangedAtMs: at.UnixMilli(), Fields: []string{"data.a"}, FieldsLeftOut: 2}},
	}
	if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	asked := deploy.ObjectQuery{ObjectSelector: deploy.ObjectSelector{Cluster: "dev", Group: &group, Kind: "configmap", Namespace: &namespace, Name: "web"}, Diff: true, ManagedFields: true}
	if diff := cmp.Diff([]any{asked}, o.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestLargeLiveObject: what exceeds a response is omitted, the least important part first, and
// the note says so.
func TestLargeLiveObject(t *testing.T) {
	const limit = 4 << 20
	half := strings.Repeat("x", limit/2)
	o := &objects{detail: deploy.ObjectDetail{
		Object: named("ConfigMap", "web"), Live: half, Git: half, Drift: &deploy.ObjectDrift{Diff: half},
		Managers: []deploy.FieldManager{{Manager: "kubectl", Fields: []string{half}}},
	}}
	agent, client := withObjects(t, o)
	resp, err := client.GetLiveObject(as(t, agent.ReadOnly), &controlv1.GetLiveObjectRequest{ApplicationId: "app-web", Object: &controlv1.ObjectSelector{Kind: "ConfigMap", Name: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	if proto.Size(resp) >= limit || resp.LiveYaml != half || resp.GitYaml != "" || resp.Drift.GetDiff() != "" || resp.Managers != nil {
		t.Errorf("size %d, live %d, git %d, diff %d, managers %d", proto.Size(resp), len(resp.LiveYaml), len(resp.GitYaml), len(resp.Drift.GetDiff()), len(resp.Managers))
	}
	for _, what := range []string{"the diff: omitted", "the managers of fields: omitted", "the declaration in Git: omitted"} {
		if !strings.Contains(resp.Note, what) {
			t.Errorf("note %q lacks %q", resp.Note, what)
		}
	}
}

func TestListObjectEvents(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_000)
	o := &objects{events: deploy.ObjectEvents{LeftOut: 3, Incomplete: "namespace x cannot be read", Events: []deploy.ObjectEvent{{
		Cluster: "dev", Object: named("Pod", "web-1").Object, UID: "u", Type: "Warning", Reason: "BackOff", Message: "again", Source: "kubelet", Count: 4, FirstAt: at, LastAt: at.Add(time.Minute),
	}}}}
	agent, client := withObjects(t, o)
	ctx := as(t, agent.ReadOnly)
	resp, err := client.ListObjectEvents(ctx, &controlv1.ListObjectEventsRequest{ApplicationId: "app-web", Object: &controlv1.ObjectSelector{Kind: "Pod", Name: "web-1"}, Limit: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	want := &controlv1.ListObjectEventsResponse{ApplicationId: "app-web", LeftOut: 3, IncompleteReason: "namespace x cannot be read", Events: []*controlv1.ObjectEvent{{
		Object: &modelv1.ObjectRef{Cluster: "dev", Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", Uid: "u"},
		Type:   "Warning", Reason: "BackOff", Message: "again", Source: "kubelet", Count: 4, FirstAtMs: at.UnixMilli(), LastAtMs: at.UnixMilli() + 60_000,
	}}}
	if diff := cmp.Diff(want, resp, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := client.ListObjectEvents(ctx, &controlv1.ListObjectEventsRequest{ApplicationId: "app-web"}); err != nil {
		t.Fatal(err)
	}
	asked := []any{
		deploy.EventQuery{Object: &deploy.ObjectSelector{Kind: "Pod", Name: "web-1"}, Limit: 500},
		deploy.EventQuery{Limit: 100},
	}
	if diff := cmp.Diff(asked, o.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// TestObjectRequestsAreValidated also covers errors of the cluster.
func TestObjectRequestsAreValidated(t *testing.T) {
	agent, client := withObjects(t, &objects{err: deploy.Errorf(deploy.Unavailable, "connection refused")})
	ctx := as(t, agent.ReadOnly)
	web := &controlv1.ObjectSelector{Kind: "Pod", Name: "web"}
	logs := func(r *controlv1.FollowPodLogsRequest) error {
		stream, err := client.FollowPodLogs(ctx, r)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	object := func(r *controlv1.GetLiveObjectRequest) error {
		_, err := client.GetLiveObject(ctx, r)
		return err
	}
	events := func(r *controlv1.ListObjectEventsRequest) error {
		_, err := client.ListObjectEvents(ctx, r)
		return err
	}
	for name, c := range map[string]struct {
		err  error
		code codes.Code
		text string
	}{
		"object without application":   {object(&controlv1.GetLiveObjectRequest{Object: web}), codes.InvalidArgument, "ApplicationId"},
		"object without selector":      {object(&controlv1.GetLiveObjectRequest{ApplicationId: "app-web"}), codes.InvalidArgument, "GetLiveObjectRequest.Object"},
		"object without kind":          {object(&controlv1.GetLiveObjectRequest{ApplicationId: "app-web", Object: &controlv1.ObjectSelector{Name: "web"}}), codes.InvalidArgument, "ObjectSelector.Kind"},
		"object of no application":     {object(&controlv1.GetLiveObjectRequest{ApplicationId: "none", Object: web}), codes.NotFound, "none"},
		"object in a silent cluster":   {object(&controlv1.GetLiveObjectRequest{ApplicationId: "app-web", Object: web}), codes.Unavailable, "connection refused"},
		"events with a negative limit": {events(&controlv1.ListObjectEventsRequest{ApplicationId: "app-web", Limit: -1}), codes.InvalidArgument, "Limit"},
		"events of half an object":     {events(&controlv1.ListObjectEventsRequest{ApplicationId: "app-web", Object: &controlv1.ObjectSelector{Kind: "Pod"}}), codes.InvalidArgument, "ObjectSelector.Name"},
		"events of no application":     {events(&controlv1.ListObjectEventsRequest{ApplicationId: "none"}), codes.NotFound, "none"},
		"log without pod":              {logs(&controlv1.FollowPodLogsRequest{ApplicationId: "app-web"}), codes.InvalidArgument, "Pod"},
		"log with too many lines":      {logs(&controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "p", TailLines: 100_001}), codes.InvalidArgument, "TailLines"},
		"log after nothing":            {logs(&controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "p", After: "yesterday"}), codes.InvalidArgument, "yesterday"},
		"previous log, followed":       {logs(&controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "p", Previous: true, Follow: true}), codes.InvalidArgument, "complete"},
		"log of no application":        {logs(&controlv1.FollowPodLogsRequest{ApplicationId: "none", Pod: "p"}), codes.NotFound, "none"},
		"log in a silent cluster":      {logs(&controlv1.FollowPodLogsRequest{ApplicationId: "app-web", Pod: "p"}), codes.Unavailable, "connection refused"},
	} {
		if status.Code(c.err) != c.code || !strings.Contains(status.Convert(c.err).Message(), c.text) {
			t.Errorf("%s: %v, want %s with %q", name, c.err, c.code, c.text)
		}
	}
}

// liveText summarizes a message of WatchLiveState.
func liveText(m *controlv1.WatchLiveStateResponse) string {
	if m.CaughtUp {
		return "caught up"
	}
	out := []string{strings.TrimPrefix(m.State.GetHealth().String(), "HEALTH_")}
	for _, o := range m.State.GetObjects() {
		out = append(out, fmt.Sprintf("%s=%s/%d", o.Object.Name, strings.TrimPrefix(o.Health.String(), "HEALTH_"), len(o.Children)))
	}
	for _, r := range m.Removed {
		out = append(out, "-"+r.Name)
	}
	if m.State.GetIncompleteReason() != "" {
		out = append(out, "("+m.State.GetIncompleteReason()+")")
	}
	return strings.Join(out, " ")
}

// TestWatchLiveState: the stream begins with all objects, and continues with those that have
// changed, also over an outage of the cluster, until the caller may no longer view the
// application.
func TestWatchLiveState(t *testing.T) {
	o := &objects{state: deploy.LiveState{Health: deploy.Healthy, Objects: []deploy.LiveObject{named("ConfigMap", "config"), named("Deployment", "web")}}}
	agent, client := withObjects(t, o)
	key := agent.LimitedKey("viewer", &deploy.Selector{Labels: map[string]string{"team": "shop"}})
	ctx, end := context.WithTimeout(as(t, key), 3*time.Minute)
	defer end()
	stream, err := client.WatchLiveState(ctx, &controlv1.WatchLiveStateRequest{ApplicationId: "app-web", Children: true})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want string) {
		t.Helper()
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if got := liveText(m); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	expect("HEALTHY config=HEALTHY/0 web=HEALTHY/0")
	expect("caught up")
	o.set(func() { // one object has got a child
		web := named("Deployment", "web")
		web.Health, web.Children = deploy.HealthDegraded, []deploy.LiveObject{named("Pod", "web-1")}
		o.state.Health, o.state.Objects = deploy.HealthDegraded, []deploy.LiveObject{named("ConfigMap", "config"), web}
	})
	expect("DEGRADED web=DEGRADED/1")
	o.set(func() { o.state.ReadAt = time.Now() }) // nothing else: not sent
	o.set(func() { o.err = deploy.Errorf(deploy.Unavailable, "connection refused") })
	expect("UNSPECIFIED (connection refused)")
	o.set(func() { o.err, o.state.Objects = nil, o.state.Objects[1:] })
	expect("DEGRADED -config")
	app, err := agent.Store.Application(t.Context(), "app-web")
	if err != nil {
		t.Fatal(err)
	}
	app.Labels = map[string]string{"team": "money"}
	if _, err := agent.Store.PutApplication(t.Context(), app); err != nil {
		t.Fatal(err)
	}
	if m, err := stream.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("after the loss of the right to view: %v, %v", m, err)
	}
	for deadline := time.Now().Add(10 * time.Minute); o.watchers() > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the subscription to changes has not ended")
		}
	}
}

// TestWatchLiveStateOfALargeApplication: the objects are divided over messages that a client can
// read.
func TestWatchLiveStateOfALargeApplication(t *testing.T) {
	o := &objects{}
	const count = 12_000
	for i := range count {
		object := named("ConfigMap", fmt.Sprint("c", i))
		object.Reason = strings.Repeat("x", 500)
		o.state.Objects = append(o.state.Objects, object)
	}
	agent, client := withObjects(t, o)
	stream, err := client.WatchLiveState(as(t, agent.ReadOnly), &controlv1.WatchLiveStateRequest{ApplicationId: "app-web"})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	messages := 0
	for {
		m, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.CaughtUp {
			break
		}
		messages++
		for _, o := range m.State.Objects {
			seen[o.Object.Name] = true
		}
	}
	if len(seen) != count || messages < 2 {
		t.Errorf("%d objects of %d in %d messages", len(seen), count, messages)
	}
}

func TestWatchLiveStateOfASilentCluster(t *testing.T) {
	agent, client := withObjects(t, &objects{err: deploy.Errorf(deploy.Unavailable, "connection refused")})
	stream, err := client.WatchLiveState(as(t, agent.ReadOnly), &controlv1.WatchLiveStateRequest{ApplicationId: "app-web"})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("before anything was read: %v", err)
	}
}
