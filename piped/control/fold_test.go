package control_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// liveNode returns a live object with children.
func liveNode(kind, name string, health deploy.Health, children ...deploy.LiveObject) deploy.LiveObject {
	return deploy.LiveObject{Cluster: "dev", Object: deploy.ObjectRef{Kind: kind, Namespace: "shop", Name: name}, Health: health, Children: children}
}

// podsOfName returns healthy pods, except for one that is degraded; -1 for none.
func podsOfName(name string, n, degraded int) (pods []deploy.LiveObject) {
	for i := range n {
		pods = append(pods, liveNode("Pod", fmt.Sprintf("%s-%04d", name, i), deploy.Healthy))
	}
	if degraded >= 0 {
		pods[degraded].Health = deploy.HealthDegraded
	}
	return pods
}

// idleSets returns ReplicaSets without pods.
func idleSets(n int) (sets []deploy.LiveObject) {
	for i := range n {
		o := liveNode("ReplicaSet", fmt.Sprintf("old-%d", i), deploy.Healthy)
		o.Idle = true
		sets = append(sets, o)
	}
	return sets
}

// outline returns a tree as indented lines.
func outline(objects []*modelv1.LiveObject, folds []*modelv1.LiveFold, indent string) (lines []string) {
	for _, o := range objects {
		lines = append(lines, indent+o.Object.Name)
		lines = append(lines, outline(o.Children, o.Folded, indent+"  ")...)
	}
	for _, f := range folds {
		line := fmt.Sprintf("%s%d %s and", indent, f.Shown, f.Kind)
		if f.Idle {
			line += " idle"
		}
		for _, c := range f.Counts {
			line += fmt.Sprintf(" %d %s", c.Count, strings.ToLower(strings.TrimPrefix(c.Health.String(), "HEALTH_")))
		}
		lines = append(lines, line)
	}
	return lines
}

// TestFoldedTree: a small tree is whole. Of a large one, levels are limited with the unhealthy
// objects first, what healthy objects created is folded, and levels are unfolded on request.
func TestFoldedTree(t *testing.T) {
	web := func(idle int) deploy.LiveObject {
		return liveNode("Deployment", "web", deploy.Healthy, append(idleSets(idle), liveNode("ReplicaSet", "web-1", deploy.Healthy, podsOfName("web", 2, -1)...))...)
	}
	agent := &modelv1.ObjectRef{Kind: "DaemonSet", Namespace: "shop", Name: "agent"}
	webRef := &modelv1.ObjectRef{Cluster: "dev", Kind: "Deployment", Namespace: "shop", Name: "web"}
	large := []deploy.LiveObject{liveNode("DaemonSet", "agent", deploy.HealthDegraded, podsOfName("agent", 20, 13)...), web(3)}
	former := liveNode("DaemonSet", "agent", deploy.HealthDegraded, podsOfName("agent", 20, 13)...)
	former.Cluster = "old"
	in := func(cluster string, limit int32) *controlv1.LiveLevel {
		return &controlv1.LiveLevel{Under: &modelv1.ObjectRef{Cluster: cluster, Kind: "DaemonSet", Namespace: "shop", Name: "agent"}, Kind: "Pod", Limit: limit}
	}
	for name, c := range map[string]struct {
		objects []deploy.LiveObject
		levels  []*controlv1.LiveLevel
		want    string
	}{
		"in two clusters":         {[]deploy.LiveObject{large[0], former}, []*controlv1.LiveLevel{in("dev", 4), in("old", 5)}, "agent\n  agent-0013\n  agent-0000\n  agent-0001\n  agent-0002\n  4 Pod and 16 healthy\nagent\n  agent-0013\n  agent-0000\n  agent-0001\n  agent-0002\n  agent-0003\n  5 Pod and 15 healthy"},
		"small":                   {[]deploy.LiveObject{web(3)}, nil, "web\n  web-1\n    web-0000\n    web-0001\n  0 ReplicaSet and idle 3 healthy"},
		"large":                   {large, nil, "agent\n  agent-0013\n  agent-0000\n  agent-0001\n  3 Pod and 17 healthy\nweb\n  0 ReplicaSet and 1 healthy\n  0 ReplicaSet and idle 3 healthy"},
		"more of a level":         {large, []*controlv1.LiveLevel{{Under: agent, Kind: "Pod", Limit: 5}}, "agent\n  agent-0013\n  agent-0000\n  agent-0001\n  agent-0002\n  agent-0003\n  5 Pod and 15 healthy\nweb\n  0 ReplicaSet and 1 healthy\n  0 ReplicaSet and idle 3 healthy"},
		"below a healthy object":  {large, []*controlv1.LiveLevel{{Under: webRef}}, "agent\n  agent-0013\n  agent-0000\n  agent-0001\n  3 Pod and 17 healthy\nweb\n  web-1\n    web-0000\n    web-0001\n  0 ReplicaSet and idle 3 healthy"},
		"idle":                    {large, []*controlv1.LiveLevel{{Under: webRef, Kind: "ReplicaSet", Idle: true, Limit: 9}}, "agent\n  agent-0013\n  agent-0000\n  agent-0001\n  3 Pod and 17 healthy\nweb\n  old-0\n  old-1\n  old-2\n  0 ReplicaSet and 1 healthy"},
		"of another cluster":      {large[1:], []*controlv1.LiveLevel{{Under: &modelv1.ObjectRef{Cluster: "old", Kind: "Deployment", Namespace: "shop", Name: "web"}}}, "web\n  web-1\n    web-0000\n    web-0001\n  0 ReplicaSet and idle 3 healthy"},
		"the application's own":   {podsOfName("a", 30, 29), []*controlv1.LiveLevel{{Kind: "Pod", Limit: 4}}, "a-0029\na-0000\na-0001\na-0002\n4 Pod and 26 healthy"},
		"beyond the limit":        {append(large[:1:1], append(podsOfName("z", 5, -1), liveNode("Pod", "z-9", deploy.Healthy, podsOfName("sub", 4, -1)...))...), []*controlv1.LiveLevel{{Under: &modelv1.ObjectRef{Kind: "Pod", Namespace: "shop", Name: "z-9"}}}, "agent\n  agent-0013\n  agent-0000\n  agent-0001\n  3 Pod and 17 healthy\nz-0000\nz-0001\nz-0002\nz-9\n  sub-0000\n  sub-0001\n  sub-0002\n  3 Pod and 1 healthy\n4 Pod and 2 healthy"},
		"below an object of many": {[]deploy.LiveObject{liveNode("CronJob", "nightly", deploy.Healthy, append(podsOfName("p", 12, -1), liveNode("Job", "j", deploy.Healthy, podsOfName("j", 3, -1)...))...)}, []*controlv1.LiveLevel{{Under: &modelv1.ObjectRef{Kind: "CronJob", Namespace: "shop", Name: "nightly"}}}, "nightly\n  j\n    0 Pod and 3 healthy\n  p-0000\n  p-0001\n  p-0002\n  3 Pod and 9 healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, client := live(t, cluster{state: deploy.LiveState{Objects: c.objects}})
			resp, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web", LevelLimit: 3, Levels: c.levels})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, strings.Join(outline(resp.LiveState.Objects, resp.LiveState.Folded, ""), "\n")); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFoldedObjectsThatAreDeleted: folded objects are counted by health, with those being deleted.
func TestFoldedObjectsThatAreDeleted(t *testing.T) {
	pods := podsOfName("web", 9, -1)
	for i := range 5 {
		pods[i].Health, pods[i].Deleting = deploy.HealthProgressing, i < 4
	}
	ctx, client := live(t, cluster{state: deploy.LiveState{Objects: []deploy.LiveObject{liveNode("StatefulSet", "web", deploy.HealthProgressing, pods...)}}})
	resp, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web", LevelLimit: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []*modelv1.LiveFold{{Kind: "Pod", Shown: 1, Counts: []*modelv1.HealthCount{
		{Health: modelv1.Health_HEALTH_HEALTHY, Count: 4}, {Health: modelv1.Health_HEALTH_PROGRESSING, Count: 4, Deleting: 3},
	}}}
	if diff := cmp.Diff(want, resp.LiveState.Objects[0].Folded, protocmp.Transform()); diff != "" {
		t.Errorf("folded (-want +got):\n%s", diff)
	}
}

// TestFoldedTreeIsBounded: a folded tree has at most ten times the limit of objects, however many
// are in trouble.
func TestFoldedTreeIsBounded(t *testing.T) {
	var state deploy.LiveState
	for i := range 100 {
		o := liveNode("Deployment", fmt.Sprintf("d%03d", i), deploy.HealthDegraded)
		for k := range 50 {
			o.Children = append(o.Children, liveNode("Pod", fmt.Sprintf("%d-%d", i, k), deploy.HealthDegraded))
		}
		state.Objects = append(state.Objects, o)
	}
	ctx, client := live(t, cluster{state: state})
	resp, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web", LevelLimit: 20})
	if err != nil {
		t.Fatal(err)
	}
	shown, folded := 0, 0
	for _, o := range resp.LiveState.Objects {
		shown, folded = shown+1+len(o.Children), folded+int(o.ChildrenLeftOut)
	}
	if shown != 10*20 || shown-20+folded != 20*50 || resp.LiveState.Folded[0].Counts[0].Count != 80 {
		t.Errorf("%d objects are shown, %d children are folded, %v", shown, folded, resp.LiveState.Folded)
	}
	if size := proto.Size(resp); size > 64<<10 {
		t.Errorf("the response has %d bytes", size)
	}
}

// TestFoldedTreeRefusals: limits and levels are validated.
func TestFoldedTreeRefusals(t *testing.T) {
	ctx, client := live(t, cluster{})
	ref := &modelv1.ObjectRef{Kind: "Pod", Name: "a"}
	for want, req := range map[string]*controlv1.GetLiveStateRequest{
		"LevelLimit: value must be at most 500":      {LevelLimit: 501},
		"LevelLimit: value must be greater":          {LevelLimit: -1},
		"MaxAgeMs: value must be at most 30000":      {LevelLimit: 1, MaxAgeMs: 30_001},
		"MaxAgeMs: value must be greater":            {LevelLimit: 1, MaxAgeMs: -1},
		"MaxAgeMs: value needs a level_limit":        {MaxAgeMs: 1},
		"no more than 100 items":                     {LevelLimit: 1, Levels: make101(&controlv1.LiveLevel{Under: ref})},
		"needs a level_limit":                        {Levels: []*controlv1.LiveLevel{{Under: ref}}},
		"must have a kind and a name":                {LevelLimit: 1, Levels: []*controlv1.LiveLevel{{Under: &modelv1.ObjectRef{Kind: "Pod"}}}},
		"Kind: value is required with a limit":       {LevelLimit: 1, Levels: []*controlv1.LiveLevel{{Under: ref, Limit: 7}}},
		"LiveLevel.Limit: value must be greater":     {LevelLimit: 1, Levels: []*controlv1.LiveLevel{{Under: ref, Kind: "Pod"}}},
		"must contain limits of at most 10000 in to": {LevelLimit: 1, Levels: []*controlv1.LiveLevel{{Under: ref, Kind: "Pod", Limit: 9_999}, {Kind: "Job", Limit: 2}}},
	} {
		req.ApplicationId = "app-web"
		_, err := client.GetLiveState(ctx, req)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func make101(l *controlv1.LiveLevel) (list []*controlv1.LiveLevel) {
	for range 101 {
		list = append(list, l)
	}
	return list
}
