package page

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// livePod returns a pod with a health.
func livePod(name string, health modelv1.Health, reason string) *modelv1.LiveObject {
	return &modelv1.LiveObject{Object: &modelv1.ObjectRef{Cluster: "eu-1", Version: "v1", Kind: "Pod", Namespace: "shop", Name: name}, Health: health, HealthReason: reason}
}

// stoppingPod returns a pod that is being deleted.
func stoppingPod(name string) *modelv1.LiveObject {
	pod := livePod(name, modelv1.Health_HEALTH_PROGRESSING, "it is stopping")
	pod.Deleting = true
	return pod
}

// liveOwner returns an object of the group apps with what it created.
func liveOwner(kind, name string, children ...*modelv1.LiveObject) *modelv1.LiveObject {
	return &modelv1.LiveObject{Object: &modelv1.ObjectRef{Cluster: "eu-1", Group: "apps", Version: "v1", Kind: kind, Namespace: "shop", Name: name}, Health: modelv1.Health_HEALTH_PROGRESSING, Children: children}
}

// healthyPods returns some pods that are ready.
func healthyPods(name string, n int) (pods []*modelv1.LiveObject) {
	for i := range n {
		pods = append(pods, livePod(fmt.Sprintf("%s-%d", name, i), modelv1.Health_HEALTH_HEALTHY, ""))
	}
	return pods
}

// replacing is a Deployment whose pods are being replaced.
func replacing(name string) *modelv1.LiveObject {
	return liveOwner("Deployment", name,
		liveOwner("ReplicaSet", name+"-new", livePod(name+"-new-1", modelv1.Health_HEALTH_HEALTHY, ""),
			livePod(name+"-new-2", modelv1.Health_HEALTH_PROGRESSING, "it is starting"), livePod(name+"-new-3", modelv1.Health_HEALTH_DEGRADED, "container main: CrashLoopBackOff")),
		liveOwner("ReplicaSet", name+"-old", livePod(name+"-old-1", modelv1.Health_HEALTH_HEALTHY, ""), stoppingPod(name+"-old-2")))
}

// replacement is a rollout in progress of that Deployment.
func replacement(name string) *modelv1.Rollout {
	r := rolled("r-"+name, name, 1, 0, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_PROGRESSING)
	r.Workload = &modelv1.ObjectRef{Cluster: "eu-1", Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: name}
	r.RevisionName, r.FromReplicas, r.ToReplicas, r.StageId = name+"-new", 2, 3, "sync"
	return r
}

// outlineOf returns groups as text, a line each.
func outlineOf(groups []podGroup) string {
	var lines []string
	for _, g := range groups {
		var states, dots []string
		for _, c := range g.states() {
			states = append(states, c.text)
		}
		for _, d := range g.dots {
			dots = append(dots, d.title)
		}
		lines = append(lines, strings.TrimSpace(g.title()+": "+strings.Join(states, " ")+" "+fmt.Sprintf("%q", dots)))
	}
	return strings.Join(lines, "\n")
}

// TestPodGroups: pods of a Deployment are new or old by their ReplicaSet; those that are too many
// to be drawn, or that the API counts only, are numbers.
func TestPodGroups(t *testing.T) {
	unknown, scaling := replacement("web"), replacement("web")
	unknown.RevisionName, scaling.Kind = "", modelv1.RolloutKind_ROLLOUT_KIND_SCALING
	counted := liveOwner("Deployment", "web", liveOwner("ReplicaSet", "web-new", livePod("web-new-1", modelv1.Health_HEALTH_DEGRADED, "")))
	counted.Children[0].Folded = []*modelv1.LiveFold{
		{Kind: "Pod", Counts: []*modelv1.HealthCount{{Health: modelv1.Health_HEALTH_HEALTHY, Count: 7}, {Health: modelv1.Health_HEALTH_PROGRESSING, Count: 5, Deleting: 2}}},
		{Kind: "PersistentVolumeClaim", Counts: []*modelv1.HealthCount{{Health: modelv1.Health_HEALTH_HEALTHY, Count: 9}}},
	}
	set, agent := replacement("web"), replacement("web")
	set.RevisionName = "web-5c4"
	ofSet := liveOwner("StatefulSet", "web", append(healthyPods("web", 2), liveOwner("PersistentVolumeClaim", "data-web-0"))...)
	for name, tc := range map[string]struct {
		rollout  *modelv1.Rollout
		workload *modelv1.LiveObject
		want     string
	}{
		"new and old": {replacement("web"), replacing("web"), `3 new pods: 1 ready, 1 starting, 1 failing ["web-new-1: ready" "web-new-2: starting, it is starting" "web-new-3: failing, container main: CrashLoopBackOff"]
2 old pods: 1 ready, 1 terminating ["web-old-1: ready" "web-old-2: terminating, it is stopping"]`},
		"no new one yet": {replacement("web"), liveOwner("Deployment", "web", liveOwner("ReplicaSet", "web-old", healthyPods("web-old", 1)...)), `no new pods yet:  []
1 old pod: 1 ready ["web-old-0: ready"]`},
		"the revision is not known": {unknown, replacing("web"), `5 pods: 2 ready, 1 starting, 1 failing, 1 terminating ["web-new-1: ready" "web-new-2: starting, it is starting" "web-new-3: failing, container main: CrashLoopBackOff" "web-old-1: ready" "web-old-2: terminating, it is stopping"]`},
		"a scaling":                 {scaling, liveOwner("Deployment", "web", liveOwner("ReplicaSet", "web-new", healthyPods("web", 2)...)), `2 pods: 2 ready ["web-0: ready" "web-1: ready"]`},
		"a StatefulSet":             {set, ofSet, `2 pods: 2 ready ["web-0: ready" "web-1: ready"]`},
		"a DaemonSet without pods":  {agent, liveOwner("DaemonSet", "web"), ``},
		"as many as are drawn":      {set, liveOwner("StatefulSet", "web", healthyPods("web", 60)...), "60 pods: 60 ready " + fmt.Sprintf("%q", titlesOfReady("web", 60))},
		"too many":                  {set, liveOwner("StatefulSet", "web", append(healthyPods("web", 60), stoppingPod("web-60"))...), `61 pods: 60 ready, 1 terminating []`},
		"counted":                   {replacement("web"), counted, `13 new pods: 7 ready, 3 starting, 1 failing, 2 terminating []`},
	} {
		got := outlineOf(podGroups(tc.rollout, tc.workload, func(*modelv1.ObjectRef) string { return "" }))
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func titlesOfReady(name string, n int) (titles []string) {
	for i := range n {
		titles = append(titles, fmt.Sprintf("%s-%d: ready", name, i))
	}
	return titles
}

// TestShapesOfPods: each state has a shape and a word of its own.
func TestShapesOfPods(t *testing.T) {
	shapes, words := map[string]bool{}, map[string]bool{}
	for s := range podStates {
		shape, err := html(t.Context(), podShape(s))
		if err != nil {
			t.Fatal(err)
		}
		shapes[shape], words[s.word()] = true, true
	}
	if len(shapes) != 4 || len(words) != 4 {
		t.Errorf("%d shapes and %d words for 4 states", len(shapes), len(words))
	}
}

// live makes the API answer with the live state of a Deployment per application, named like it.
func (f *fakeAPI) live(asked *[]*controlv1.GetLiveStateRequest) *fakeAPI {
	f.answers["GetLiveState"] = func(m proto.Message) (proto.Message, error) {
		req := m.(*controlv1.GetLiveStateRequest)
		*asked = append(*asked, proto.CloneOf(req))
		name := strings.TrimSuffix(strings.TrimPrefix(req.ApplicationId, "0000"), "-id")
		return &controlv1.GetLiveStateResponse{LiveState: &modelv1.LiveState{Objects: []*modelv1.LiveObject{replacing(name)}}}, nil
	}
	return f
}

// TestPodsOfRollouts: the rollouts of an application show the pods of those in progress, each with a
// link to the pod, and the numbers of others.
func TestPodsOfRollouts(t *testing.T) {
	ended := rolled("r-before", "search", 3, 40, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE)
	ended.FromReplicas, ended.ToReplicas = 2, 2
	list := &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{replacement("search"), ended}}
	var asked []*controlv1.GetLiveStateRequest
	body := golden(t, "application-rollouts", drifted(t, "view-logs").on("ListRollouts", list).live(&asked).get("/applications/search?tab=rollouts"))
	for _, want := range []string{
		`href="/applications/search~0000sear?cluster=eu-1&amp;object=%2FPod%2Fshop%2Fsearch-new-3&amp;tab=objects" title="search-new-3: failing, container main: CrashLoopBackOff"`,
		`aria-label="3 new pods"`, `aria-label="2 old pods"`, `1 terminating</span>`, `>2 pods<`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %s", want)
		}
	}
	if len(asked) != 1 || asked[0].LevelLimit != 60 || len(asked[0].Levels) != 2 {
		t.Error("the live state was asked for with", asked)
	}
	body = bodyOf(t, drifted(t).on("ListRollouts", list).live(&asked).get("/applications/search?tab=rollouts"))
	if strings.Contains(body, "%2FPod%2F") || !strings.Contains(body, `title="search-new-3: failing`) {
		t.Error("a caller who may not open a pod has a link to it, or does not see it")
	}
	many := liveOwner("Deployment", "search", liveOwner("ReplicaSet", "search-new", healthyPods("search-new", 120)...))
	body = bodyOf(t, drifted(t, "view-logs").on("ListRollouts", list).
		on("GetLiveState", &controlv1.GetLiveStateResponse{LiveState: &modelv1.LiveState{Objects: []*modelv1.LiveObject{many}}}).get("/applications/search?tab=rollouts"))
	if strings.Contains(body, "%2FPod%2F") || !strings.Contains(body, "120 new pods") || !strings.Contains(body, `class="pod-bar"`) {
		t.Error("120 pods are drawn one by one, or not at all")
	}
}

// TestPodsOfStages: a stage shows the pods of its rollouts, those in progress first.
func TestPodsOfStages(t *testing.T) {
	ended := func(name string) *modelv1.Rollout {
		r := replacement(name)
		r.Id, r.Outcome, r.CompletedAtMs = "r-"+name, modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE, noon.UnixMilli()
		return r
	}
	progressing := replacement("checkout")
	other := ended("other")
	other.StageId = "before"
	var asked []*controlv1.GetLiveStateRequest
	f := logged(t, 3).on("ListRollouts", &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{ended("one"), ended("two"), ended("three"), other, progressing}}).live(&asked)
	body := golden(t, "deployment-pods", f.get("/deployments/d1"))
	for _, want := range []string{"3 new pods", "2 old pods", "Deployment one: complete, 2 → 3 pods", "Deployment two: complete", "1 more rollout<", `title="checkout-old-2: terminating, it is stopping"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	if strings.Contains(body, "Deployment three") || strings.Contains(body, "Deployment other") {
		t.Error("the stage shows too many rollouts, or one of another stage")
	}
}

// TestPodsOfWhatIsUnderWay: Now shows the pods of rollouts in progress; without links for callers who
// may not open them.
func TestPodsOfWhatIsUnderWay(t *testing.T) {
	for _, permissions := range [][]string{nil, {"view-logs"}} {
		var asked []*controlv1.GetLiveStateRequest
		var listed []*controlv1.ListRolloutsRequest
		f := busy(t, permissions...).live(&asked)
		f.answers["ListRollouts"] = func(m proto.Message) (proto.Message, error) {
			listed = append(listed, proto.CloneOf(m.(*controlv1.ListRolloutsRequest)))
			return &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{replacement("billing")}}, nil
		}
		body := bodyOf(t, f.get("/"))
		for _, want := range []string{`aria-label="3 new pods"`, `aria-label="2 old pods"`, "Deployment billing", `title="billing-new-2: starting, it is starting"`} {
			if !strings.Contains(body, want) {
				t.Errorf("the view lacks %s", want)
			}
		}
		if got := strings.Count(body, "%2FPod%2Fshop%2Fbilling"); got != 5*len(permissions) {
			t.Errorf("%d links to pods for a caller with %q", got, permissions)
		}
		if len(asked) != 1 || asked[0].ApplicationId != "0000billing-id" || len(listed) != 1 || fmt.Sprint(listed[0].ApplicationIds, listed[0].Outcomes) != "[0000billing-id] [ROLLOUT_OUTCOME_PROGRESSING ROLLOUT_OUTCOME_HELD]" {
			t.Error("the API was asked for", listed, asked)
		}
	}
}

// TestPodsAreReadSparingly: live states are read only for rollouts in progress, of a few
// applications, so that the API may share them; not for long if a cluster does not answer.
func TestPodsAreReadSparingly(t *testing.T) {
	var asked []*controlv1.GetLiveStateRequest
	if bodyOf(t, rolling(t, someRollouts()[1:]...).live(&asked).get("/rollouts")); len(asked) != 0 {
		t.Errorf("%d live states were read although no rollout is in progress", len(asked))
	}
	var rows []*modelv1.Rollout
	for i := range 9 {
		rows = append(rows, replacement(fmt.Sprintf("web%d", i)))
	}
	now := noon
	f := rolling(t, rows...).live(&asked)
	h := New(Config{Conn: f, Token: f.page().config.Token, Now: func() time.Time { return now }, LiveWait: time.Hour})
	get := func() string { return bodyOf(t, answerOf(h, request("GET", "/rollouts", ""))) }
	if body := get(); len(asked) != 5 || strings.Count(body, `aria-label="3 new pods"`) != 5 || strings.Count(body, "2 → 3 pods") != 4 {
		t.Errorf("%d live states were read: %s", len(asked), body)
	}
	for _, req := range asked {
		if req.LevelLimit != 60 || req.MaxAgeMs != 1000 {
			t.Error("the API cannot share the answer to", req)
		}
	}
	f.fails("GetLiveState", codes.Unavailable, "the cluster does not answer")
	f.calls = nil
	for _, want := range []int{5, 5, 5, 10} { // calls in all, every ten seconds
		if body := get(); strings.Count(body, "2 → 3 pods") != 9 {
			t.Error("without a cluster the view is", body)
		}
		if n := callsOf(f, "GetLiveState"); n != want {
			t.Errorf("after %v clusters that do not answer were asked %d times, want %d", now.Sub(noon), n, want)
		}
		now = now.Add(10 * time.Second)
	}
}

// callsOf returns how often a method was called.
func callsOf(f *fakeAPI, method string) (n int) {
	for _, call := range f.calls {
		n += btoi(call == method)
	}
	return n
}

// TestPodsOfAPage: the table of rollouts reads the pods of the rows that it shows.
func TestPodsOfAPage(t *testing.T) {
	var rows []*modelv1.Rollout
	for i := range 103 {
		r := replacement(fmt.Sprintf("web%d", i))
		r.StartedAtMs = noon.UnixMilli() - int64(i+1)*1000
		rows = append(rows, r)
	}
	var asked []*controlv1.GetLiveStateRequest
	f := rolling(t, rows...).live(&asked)
	applications := func() (ids []string) {
		for _, req := range asked {
			ids = append(ids, req.ApplicationId)
		}
		asked = nil
		return ids
	}
	want := []string{"0000web100-id", "0000web101-id", "0000web102-id"}
	bodyOf(t, f.get("/rollouts?page=2"))
	if diff := cmp.Diff(want, applications()); diff != "" {
		t.Error("the view reads (-want +got):\n" + diff)
	}
	v, err := f.page().visit(nil, request("GET", "/rollouts/live?page=2", ""))
	if err != nil {
		t.Fatal(err)
	}
	src, err := liveRollouts(v)
	if err != nil {
		t.Fatal(err)
	}
	rows[101].Outcome = modelv1.RolloutOutcome_ROLLOUT_OUTCOME_COMPLETE
	if _, err := src.parts(v); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{want[0], want[2]}, applications()); diff != "" {
		t.Error("once a rollout has ended the stream reads (-want +got):\n" + diff)
	}
}
