package control_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
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

// cluster returns a fixed live state, without children unless requested.
type cluster struct {
	state deploy.LiveState
	err   error
}

func (c cluster) LiveState(_ context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	c.state.ApplicationID = app.ID
	if children == deploy.NoChildren {
		for i := range c.state.Objects {
			c.state.Objects[i].Children = nil
		}
	}
	return c.state, c.err
}

// live returns a client of an agent with the application app-web on c.
func live(t *testing.T, c cluster) (context.Context, controlv1.ControlServiceClient) {
	t.Helper()
	agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) { cfg.Live = c })
	agent.Application("web", nil)
	return as(t, agent.ReadOnly), controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
}

func TestGetLiveState(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	deployment := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	ctx, client := live(t, cluster{state: deploy.LiveState{
		Health: deploy.HealthDegraded, ReadAt: at, Incomplete: "list pods: refused",
		Objects: []deploy.LiveObject{
			{Cluster: "dev", Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "gone"}, Variant: "primary", Health: deploy.HealthMissing, Reason: "it is not in the cluster", Declared: true},
			{
				Cluster: "dev", Object: deployment, UID: "u", Variant: "canary", Health: deploy.HealthDegraded, Reason: "0 of 1 pod\xff", CreatedAt: at,
				Images: []string{"web:2"}, Replicas: 1, Available: 0, LeftOut: 7,
				Children: []deploy.LiveObject{{Cluster: "dev", Object: deploy.ObjectRef{Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1"}, UID: "p", Health: deploy.HealthProgressing, Deleting: true}},
			},
			{Cluster: "dev", Object: deploy.ObjectRef{Version: "v1", Kind: "Secret", Namespace: "shop", Name: "key"}, Health: ""},
		},
	}})
	resp, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web", Children: true})
	if err != nil {
		t.Fatal(err)
	}
	ref := func(group, kind, name, uid string) *modelv1.ObjectRef {
		return &modelv1.ObjectRef{Cluster: "dev", Group: group, Version: "v1", Kind: kind, Namespace: "shop", Name: name, Uid: uid}
	}
	want := &modelv1.LiveState{
		ApplicationId: "app-web", Health: modelv1.Health_HEALTH_DEGRADED, ReadAtMs: at.UnixMilli(), IncompleteReason: "list pods: refused",
		Objects: []*modelv1.LiveObject{
			{Object: ref("", "ConfigMap", "gone", ""), Variant: "primary", Health: modelv1.Health_HEALTH_MISSING, HealthReason: "it is not in the cluster", Declared: true},
			{
				Object: ref("apps", "Deployment", "web", "u"), Variant: "canary", Health: modelv1.Health_HEALTH_DEGRADED, HealthReason: "0 of 1 pod\uFFFD",
				CreatedAtMs: at.UnixMilli(), Images: []string{"web:2"}, Replicas: 1, ChildrenLeftOut: 7,
				Children: []*modelv1.LiveObject{{Object: ref("", "Pod", "web-1", "p"), Health: modelv1.Health_HEALTH_PROGRESSING, Deleting: true}},
			},
			{Object: ref("", "Secret", "key", "")},
		},
	}
	if diff := cmp.Diff(want, resp.LiveState, protocmp.Transform()); diff != "" {
		t.Errorf("live state (-want +got):\n%s", diff)
	}
	resp, err = client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web"})
	if err != nil || len(resp.LiveState.Objects) != 3 || len(resp.LiveState.Objects[1].Children) != 0 {
		t.Errorf("without children: %v, %v", resp, err)
	}
}

// countedCluster counts the reads of live states.
type countedCluster struct{ reads atomic.Int64 }

func (c *countedCluster) LiveState(_ context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	return deploy.LiveState{ApplicationID: app.ID, Health: deploy.Healthy, ReadAt: time.UnixMilli(1000 + c.reads.Add(1))}, nil
}

// TestSharedLiveReads: a summary and a tree that accept the same age have one read. Calls that
// accept none read anew, for the others, too.
func TestSharedLiveReads(t *testing.T) {
	c := &countedCluster{}
	agent := controltest.Start(t, t.TempDir(), func(cfg *control.Config) { cfg.Live = c })
	agent.Deployment("d1", agent.Application("web", nil), "")
	agent.Move("d1", deploy.Success, "done")
	ctx, client := as(t, agent.ReadOnly), controlv1.NewControlServiceClient(dial(t, agent.Server.Addr()))
	for i, want := range []struct{ age, summary, tree int64 }{{30_000, 1001, 1001}, {0, 1002, 1003}, {30_000, 1003, 1003}} {
		s, err := client.GetApplicationSummary(ctx, &controlv1.GetApplicationSummaryRequest{ApplicationId: "app-web", MaxAgeMs: want.age})
		if err != nil || s.LiveReadAtMs != want.summary || s.Summary.Health != modelv1.Health_HEALTH_HEALTHY {
			t.Errorf("summary %d: %v, %v, want a read at %d", i, s, err, want.summary)
		}
		tree, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web", LevelLimit: 1, MaxAgeMs: want.age})
		if err != nil || tree.GetLiveState().GetReadAtMs() != want.tree {
			t.Errorf("tree %d: %v, %v, want a read at %d", i, tree, err, want.tree)
		}
	}
	for _, age := range []int64{-1, 30_001} {
		_, err := client.GetApplicationSummary(ctx, &controlv1.GetApplicationSummaryRequest{ApplicationId: "app-web", MaxAgeMs: age})
		_, stateErr := client.GetStatus(ctx, &controlv1.GetStatusRequest{MaxAgeMs: age})
		if status.Code(err) != codes.InvalidArgument || status.Code(stateErr) != codes.InvalidArgument {
			t.Errorf("the age %d: %v, %v", age, err, stateErr)
		}
	}
}

func TestGetLiveStateRefusals(t *testing.T) {
	ctx, client := live(t, cluster{err: deploy.Errorf(deploy.Unavailable, "cluster \"dev\" cannot be reached: connection refused")})
	for id, want := range map[string]struct {
		code codes.Code
		text string
	}{
		"app-web": {codes.Unavailable, "connection refused"},
		"nobody":  {codes.NotFound, "nobody"},
		"":        {codes.InvalidArgument, "ApplicationId"},
	} {
		_, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: id})
		if status.Code(err) != want.code || !strings.Contains(status.Convert(err).Message(), want.text) {
			t.Errorf("of %q: %v, want %s with %q", id, err, want.code, want.text)
		}
	}
}

// TestGetLiveStateOfALargeApplication: a client reads at most 4 MiB, so the children and then
// the last objects are omitted, and the response says so.
func TestGetLiveStateOfALargeApplication(t *testing.T) {
	const limit = 4 << 20
	object := func(kind string, i, reason int) deploy.LiveObject {
		return deploy.LiveObject{Cluster: "dev", Object: deploy.ObjectRef{Version: "v1", Kind: kind, Namespace: "shop", Name: fmt.Sprintf("%s-%06d", kind, i)}, UID: fmt.Sprint(i), Reason: strings.Repeat("x", reason)}
	}
	for name, c := range map[string]struct {
		objects, children, reason int
		wantObjects, wantChildren bool
		incomplete                string
	}{
		"500 pods":         {5, 100, 400, true, true, ""},
		"too many pods":    {1000, 100, 400, true, false, "the objects' children exceed the size of a response"},
		"too many objects": {40_000, 0, 400, false, false, "objects are omitted: the response would be too large"},
	} {
		t.Run(name, func(t *testing.T) {
			var state deploy.LiveState
			for i := range c.objects {
				o := object("Deployment", i, c.reason)
				for k := range c.children {
					o.Children = append(o.Children, object("Pod", k, c.reason))
				}
				state.Objects = append(state.Objects, o)
			}
			ctx, client := live(t, cluster{state: state})
			resp, err := client.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: "app-web", Children: true})
			if err != nil {
				t.Fatal(err)
			}
			got := resp.LiveState
			if size := proto.Size(resp); size >= limit {
				t.Errorf("the response has %d bytes", size)
			}
			if all := len(got.Objects) == c.objects; all != c.wantObjects || len(got.Objects) == 0 {
				t.Errorf("%d objects of %d", len(got.Objects), c.objects)
			}
			first := got.Objects[0]
			if shown := len(first.Children) > 0; shown != c.wantChildren || len(first.Children)+int(first.ChildrenLeftOut) != c.children {
				t.Errorf("%d children, %d left out, of %d", len(first.Children), first.ChildrenLeftOut, c.children)
			}
			if !strings.Contains(got.IncompleteReason, c.incomplete) || c.incomplete == "" && got.IncompleteReason != "" {
				t.Errorf("incomplete: %q, want %q", got.IncompleteReason, c.incomplete)
			}
		})
	}
}
