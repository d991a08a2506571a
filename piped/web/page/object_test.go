package page

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const podYAML = `apiVersion: v1
kind: Pod
metadata:
  annotations: {kubectl.kubernetes.io/default-container: app}
spec:
  initContainers: [{name: init}]
  containers: [{name: proxy}, {name: app}]
`

// opened is drifted with what the API has of its Deployment and its pod.
func opened(t *testing.T, permissions ...string) *fakeAPI {
	web := &modelv1.ObjectRef{Group: "apps", Kind: "Deployment", Namespace: "shop", Name: "search"}
	f := drifted(t, permissions...).on("ListObjectEvents", &controlv1.ListObjectEventsResponse{LeftOut: 3, Events: []*controlv1.ObjectEvent{
		{Object: &modelv1.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "search-1"}, Type: "Warning", Reason: "BackOff", Message: "Back-off pulling <b>image</b>", Count: 14, LastAtMs: minutesAgo(2), Source: "kubelet"},
		{Object: web, Type: "Normal", Reason: "ScalingReplicaSet", Message: "Scaled up", Count: 1, LastAtMs: minutesAgo(5)},
	}})
	f.answers["GetLiveObject"] = func(m proto.Message) (proto.Message, error) {
		req := m.(*controlv1.GetLiveObjectRequest)
		if req.ApplicationId != "0000search-id" {
			t.Errorf("an object of application %q is read", req.ApplicationId)
		}
		if req.Object.Kind == "Pod" && req.Object.Name == "search-1" {
			return &controlv1.GetLiveObjectResponse{
				Object:   &modelv1.LiveObject{Object: &modelv1.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "search-1"}, Health: modelv1.Health_HEALTH_DEGRADED, HealthReason: "CrashLoopBackOff"},
				LiveYaml: podYAML,
			}, nil
		}
		if req.Object.GetGroup() != "apps" || req.Object.Kind != "Deployment" || req.Object.GetNamespace() != "shop" || req.Object.Name != "search" {
			return nil, errOf(codes.NotFound, "There is no such object")
		}
		resp := &controlv1.GetLiveObjectResponse{
			Object:   &modelv1.LiveObject{Object: web, Health: modelv1.Health_HEALTH_HEALTHY, CreatedAtMs: minutesAgo(90)},
			LiveYaml: "spec:\n  replicas: 5\n  args:\n  - --evil=\u202e<script>\n", GitYaml: "spec:\n  replicas: 3\n", GitCommit: "84e16d9000000000000000000000000000000000", Note: "values of Secrets are masked",
		}
		if req.Diff {
			resp.Compared, resp.Drift = true, &modelv1.ObjectDrift{Object: web, Diff: "@@ spec @@\n-  replicas: 3\n+  replicas: 5\n", Fields: []*modelv1.FieldDrift{
				{Path: "spec.replicas", GitValue: "3", LiveValue: "5", Manager: "kubectl-edit", ChangedAtMs: minutesAgo(3)},
			}}
		}
		if req.ManagedFields {
			resp.Managers = []*controlv1.FieldManager{{Manager: "kubectl-edit", Operation: "Update", Subresource: "scale", ChangedAtMs: minutesAgo(3), Fields: []string{"spec.replicas"}, FieldsLeftOut: 2}}
		}
		return resp, nil
	}
	return f
}

const openDeployment = "/applications/search?tab=objects&object=apps%2FDeployment%2Fshop%2Fsearch"

// TestObject: a view of an application shows an object beside the tree.
func TestObject(t *testing.T) {
	body := golden(t, "object", opened(t, "view-logs").get(openDeployment))
	for _, want := range []string{`<span class="key">replicas:</span><span class="value"> 5</span>`, "&lt;script&gt;", "Values of Secrets are masked.", "search-1", `hx-sse:connect="/applications/0000search-id/object/live?from=`, `&amp;object=apps%2FDeployment%2Fshop%2Fsearch&amp;show=live" hx-sse:close`, `hx-get="/applications/search~0000sear?object=%2FPod%2F%2Fsearch-1&amp;tab=objects"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if strings.Contains(body, "\u202e") {
		t.Error("the view has a character that changes the direction of text")
	}
}

// TestPartsOfAnObject: each part of an object has an address.
func TestPartsOfAnObject(t *testing.T) {
	for show, want := range map[string][]string{
		"git": {`<span class="key">replicas:</span><span class="value"> 3</span>`}, "diff": {"kubectl-edit", ">3<", ">5<", `class="removed"`}, "fields": {"Update of scale, 3 fields", "2 further fields"},
		"events": {"BackOff", "×14 by kubelet", "&lt;b&gt;image", "3 older events are not shown"},
	} {
		body := bodyOf(t, opened(t).get(openDeployment+"&show="+show))
		for _, text := range want {
			if !strings.Contains(body, text) {
				t.Errorf("%s lacks %q", show, text)
			}
		}
	}
}

// TestObjectAlone: to a script only the object is sent.
func TestObjectAlone(t *testing.T) {
	r := request(http.MethodGet, openDeployment, "")
	r.Header.Set("HX-Request", "true")
	body := bodyOf(t, answerOf(opened(t).page(), r))
	if !strings.HasPrefix(body, `<div id="drawer"`) || strings.Contains(body, "<html") {
		t.Errorf("the part is %.200s", body)
	}
}

// TestObjectsThatCannotBeRead: the tree stays, and beside it stands why.
func TestObjectsThatCannotBeRead(t *testing.T) {
	for name, query := range map[string]string{"gone": "apps/Deployment/shop/gone", "cluster-wide": "/Namespace//shop"} {
		body := bodyOf(t, opened(t).get("/applications/search?object="+query))
		if !strings.Contains(body, "There is no such object") || !strings.Contains(body, "search-1") {
			t.Errorf("%s: %s", name, body)
		}
	}
	if body := bodyOf(t, opened(t).get("/applications/search?object=nonsense")); !strings.Contains(body, "write GROUP/KIND/NAMESPACE/NAME") {
		t.Errorf("an address that names no object: %s", body)
	}
}

// TestEventsOfAnApplication: the tab lists events of all objects, or the warnings.
func TestEventsOfAnApplication(t *testing.T) {
	body := bodyOf(t, opened(t).get("/applications/search?tab=events"))
	if !strings.Contains(body, "BackOff") || !strings.Contains(body, "ScalingReplicaSet") || !strings.Contains(body, "object=%2FPod%2Fshop%2Fsearch-1") {
		t.Errorf("all events: %s", body)
	}
	if body := bodyOf(t, opened(t).get("/applications/search?tab=events&type=Warning")); !strings.Contains(body, "BackOff") || strings.Contains(body, "ScalingReplicaSet") {
		t.Errorf("warnings: %s", body)
	}
}

// podLogOf makes the API return two lines of a pod's log, and nothing after the second.
func podLogOf(f *fakeAPI, requests *[]*controlv1.FollowPodLogsRequest) *fakeAPI {
	f.streams["FollowPodLogs"] = func(m proto.Message) ([]proto.Message, error) {
		req := m.(*controlv1.FollowPodLogsRequest)
		*requests = append(*requests, req)
		out := []proto.Message{&controlv1.FollowPodLogsResponse{Container: req.Container}}
		lines := []*controlv1.PodLogLine{{AtMs: minutesAgo(2), Text: "starting <b>"}, {AtMs: minutesAgo(1), Text: "\x1b[31mcannot connect\x1b[0m", Truncated: true}}
		if req.After == "c1" {
			lines = lines[1:]
		}
		if req.After != "c2" {
			out = append(out, &controlv1.FollowPodLogsResponse{Lines: lines, Cursor: "c2"})
		}
		if req.Follow {
			out = append(out, &controlv1.FollowPodLogsResponse{Cursor: "c2", EndReason: "container app ended with exit code 1 (Error)"})
		}
		return out, nil
	}
	return f
}

const openPod = "/applications/search?tab=objects&object=%2FPod%2Fshop%2Fsearch-1&show=log"

// TestPodLog: the log of a pod's default container is shown, and continued from its last line.
func TestPodLog(t *testing.T) {
	var requests []*controlv1.FollowPodLogsRequest
	body := bodyOf(t, podLogOf(opened(t, "view-logs"), &requests).get(openPod))
	for _, want := range []string{"starting &lt;b&gt;", `<span class="ansi-red">cannot connect</span> … (the line is longer)<`, "11:58:00", ">init<", ">proxy<", "after=c2", "Before its restart"} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	want := &controlv1.FollowPodLogsRequest{ApplicationId: "0000search-id", Pod: "search-1", Namespace: "shop", Container: "app", TailLines: 1000}
	if len(requests) != 1 || !proto.Equal(requests[0], want) {
		t.Errorf("requests %v, want %v", requests, want)
	}
}

// TestPodLogIsContinued: after a reconnect the log goes on after the last event that arrived.
func TestPodLogIsContinued(t *testing.T) {
	var requests []*controlv1.FollowPodLogsRequest
	page := podLogOf(opened(t, "view-logs"), &requests).page()
	r := request(http.MethodGet, "/applications/search/object/log?object=%2FPod%2Fshop%2Fsearch-1&container=app&follow=yes&after=c1", "")
	body := bodyOf(t, answerOf(page, r))
	if strings.Contains(body, "starting") || strings.Count(body, "cannot connect") != 1 || !strings.Contains(body, "id: c2\n") || !strings.Contains(body, "exit code 1") || !strings.HasSuffix(body, "event: end\ndata:\n\n") {
		t.Errorf("after the first line: %s", body)
	}
	r.Header.Set("Last-Event-ID", "c2")
	if body := bodyOf(t, answerOf(page, r)); strings.Contains(body, "cannot connect") {
		t.Errorf("after a reconnect: %s", body)
	}
	var after []string
	for _, req := range requests {
		after = append(after, req.After)
	}
	if want := []string{"c1", "c2"}; !slices.Equal(after, want) {
		t.Errorf("read after %q, want %q", after, want)
	}
}

// TestWholePodLog: the whole log is text with exact times.
func TestWholePodLog(t *testing.T) {
	var requests []*controlv1.FollowPodLogsRequest
	resp := podLogOf(opened(t, "view-logs"), &requests).get("/applications/search/object/log?object=%2FPod%2Fshop%2Fsearch-1&container=app")
	want := "2026-03-04T11:58:00.000Z starting <b>\n2026-03-04T11:59:00.000Z \x1b[31mcannot connect\x1b[0m\n"
	if diff := cmp.Diff(want, bodyOf(t, resp)); diff != "" || resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("%s (-want +got):\n%s", resp.Header.Get("Content-Type"), diff)
	}
}

// TestPodLogNeedsItsPermission: who may not read logs is offered none, and is refused.
func TestPodLogNeedsItsPermission(t *testing.T) {
	f := opened(t)
	f.streams["FollowPodLogs"] = func(proto.Message) ([]proto.Message, error) {
		return nil, errOf(codes.PermissionDenied, "you may not view logs")
	}
	if body := bodyOf(t, f.get("/applications/search?object=%2FPod%2Fshop%2Fsearch-1")); strings.Contains(body, "show=log") {
		t.Error("a log is offered")
	}
	if body := bodyOf(t, f.get(openPod)); !strings.Contains(body, "you may not view logs") {
		t.Errorf("the view: %s", body)
	}
	if resp := f.get("/applications/search/object/log?object=%2FPod%2Fshop%2Fsearch-1"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the log: %s", resp.Status)
	}
}

// TestContainersOf: the default container is that of kubectl.
func TestContainersOf(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml, first string
		names       []string
	}{
		"annotated": {podYAML, "app", []string{"proxy", "app", "init"}}, "one": {"spec: {containers: [{name: web}]}", "web", []string{"web"}},
		"not readable": {"\t:", "", nil}, "none": {"", "", nil},
	} {
		names, first := containersOf(tc.yaml)
		if !slices.Equal(names, tc.names) || first != tc.first {
			t.Errorf("%s: %q, %q; want %q, %q", name, names, first, tc.names, tc.first)
		}
	}
}

// TestConfigOfAnApplication: the tab shows the configuration in effect, or why there is none, and
// the details in any case.
func TestConfigOfAnApplication(t *testing.T) {
	f := opened(t).on("GetApplicationConfig", &controlv1.GetApplicationConfigResponse{
		Yaml: "spec:\n  timeout: 6h # default\n  name: <b>\n", Commit: "84e16d9000000000000000000000000000000000", Path: "search/app.pipecd.yaml", Warnings: []string{"app.pipecd.yaml:4: not used"},
	})
	body := bodyOf(t, f.get("/applications/search?tab=config"))
	for _, want := range []string{"<span class=\"comment\"> # default</span>", "<span class=\"value\"> &lt;b&gt;</span>", "Read from search/app.pipecd.yaml at", "84e16d9", "app.pipecd.yaml:4: not used", "0000search-id"} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	f.on("GetApplicationConfig", &controlv1.GetApplicationConfigResponse{Error: "app.pipecd.yaml:3: <wrong>"})
	if body := bodyOf(t, f.get("/applications/search?tab=config")); !strings.Contains(body, "app.pipecd.yaml:3: &lt;wrong&gt;") {
		t.Errorf("an invalid configuration: %s", body)
	}
	f.fails("GetApplicationConfig", codes.Unavailable, "has not been read yet")
	if body := bodyOf(t, f.get("/applications/search?tab=config")); !strings.Contains(body, "has not been read yet") || !strings.Contains(body, "<dt>ID</dt>") {
		t.Errorf("a repository that was not read: %s", body)
	}
}

// TestLongLinesOfPods: a line that is not shown whole has its beginning, in colours and without.
func TestLongLinesOfPods(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain … (the line is longer)", "\x1b[31mred": `<span class="ansi-red">red</span> … (the line is longer)`,
	} {
		got, err := html(t.Context(), logText(podLines([]*controlv1.PodLogLine{{Text: text, Truncated: true}})[0]))
		if got != want || err != nil {
			t.Errorf("%q: %s, want %s; %v", text, got, want, err)
		}
	}
}
