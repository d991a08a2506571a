package page

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// slowClusters is an API whose live states take some time by application.
type slowClusters struct {
	*fakeAPI
	takes map[string]time.Duration
	asked []string
}

func (s *slowClusters) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	if req, ok := args.(*controlv1.GetLiveStateRequest); ok {
		s.asked = append(s.asked, req.ApplicationId)
		select {
		case <-time.After(s.takes[req.ApplicationId]):
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		}
	}
	return s.fakeAPI.Invoke(ctx, method, args, reply, options...)
}

// TestSlowClusters: a cluster that had almost no time is not taken for one that does not answer; one
// that had is not asked again for half a minute.
func TestSlowClusters(t *testing.T) {
	const first, second = "0000first-id", "0000second-id"
	synctest.Test(t, func(t *testing.T) {
		var requests []*controlv1.GetLiveStateRequest
		f := newFake(t, "view").live(&requests)
		clusters := &slowClusters{fakeAPI: f, takes: map[string]time.Duration{first: 1900 * time.Millisecond, second: 200 * time.Millisecond}}
		v := &visit{Handler: New(Config{Conn: clusters}), ctx: signedIn(t), allowed: map[string]bool{}}
		var err error
		if v.caller, err = v.control.GetCaller(v.ctx, &controlv1.GetCallerRequest{}); err != nil {
			t.Fatal(err)
		}
		rollouts := []*modelv1.Rollout{replacement("first"), replacement("second")}
		for i, step := range []struct {
			pause, first time.Duration
			asked, shown []string
		}{
			{0, 1900 * time.Millisecond, []string{first, second}, []string{"r-first"}}, // 100 ms are left for the second
			{0, 0, []string{first, second}, []string{"r-first", "r-second"}},
			{0, time.Hour, []string{first}, nil}, // no time is left for the second
			{0, 0, []string{second}, []string{"r-second"}},
			{29 * time.Second, 0, []string{second}, []string{"r-second"}},
			{time.Second, 0, []string{first, second}, []string{"r-first", "r-second"}},
		} {
			time.Sleep(step.pause)
			clusters.asked, clusters.takes[first] = nil, step.first
			var shown []string
			for id := range v.readPods(rollouts) {
				shown = append(shown, id)
			}
			slices.Sort(shown)
			if diff := cmp.Diff([][]string{step.asked, step.shown}, [][]string{clusters.asked, shown}); diff != "" {
				t.Errorf("step %d: applications that are asked for, rollouts with pods (-want +got):\n%s", i, diff)
			}
		}
	})
}

// TestRefusedLiveStates: that one caller may not read a live state, or has gone, says nothing about the
// cluster.
func TestRefusedLiveStates(t *testing.T) {
	var requests []*controlv1.GetLiveStateRequest
	f := newFake(t)
	v := &visit{Handler: f.page(), ctx: signedIn(t)}
	req := &controlv1.GetLiveStateRequest{ApplicationId: "0000search-id"}
	for _, code := range []codes.Code{codes.PermissionDenied, codes.NotFound, codes.ResourceExhausted} {
		f.fails("GetLiveState", code, "refused")
		if state := v.readLive(v.ctx, req); state != nil {
			t.Error(code, state)
		}
	}
	ctx, goes := context.WithCancel(v.ctx)
	f.answers["GetLiveState"] = func(proto.Message) (proto.Message, error) {
		goes()
		return nil, errOf(codes.Unavailable, "the call was cancelled")
	}
	if state := (&visit{Handler: v.Handler, ctx: ctx}).readLive(ctx, req); state != nil {
		t.Error("a browser that has gone gets", state)
	}
	f.live(&requests)
	if state := v.readLive(v.ctx, req); len(state.GetObjects()) != 1 {
		t.Error("after that it returns", state)
	}
}

// countedCluster counts the reads of live states.
type countedCluster struct{ reads atomic.Int64 }

func (c *countedCluster) LiveState(_ context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	c.reads.Add(1)
	time.Sleep(20 * time.Millisecond)
	return deploy.LiveState{ApplicationID: app.ID, Health: deploy.Healthy, ReadAt: time.Now()}, nil
}

// TestSharedLiveStates: browsers that follow a log and those that show pods share reads of the cluster.
func TestSharedLiveStates(t *testing.T) {
	cluster := &countedCluster{}
	agent := controltest.Start(t, t.TempDir(), func(c *control.Config) { c.Live = cluster })
	app := agent.Application("web", nil)
	conn, err := grpc.NewClient("passthrough:///"+agent.Server.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h := New(Config{Conn: conn, LiveWait: time.Minute}) // a busy machine takes its time for so many
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "API-KEY "+agent.ReadWrite)
	caller, err := h.control.GetCaller(ctx, &controlv1.GetCallerRequest{})
	if err != nil {
		t.Fatal(err)
	}
	r := replacement("web")
	r.ApplicationId = app.ID
	var browsers sync.WaitGroup
	began := time.Now()
	for range 20 {
		browsers.Go(func() {
			v := &visit{Handler: h, ctx: ctx, caller: caller, allowed: map[string]bool{}}
			var links *objectLinks
			for range 10 { // blocks of the log
				if links = v.objectLinks(&modelv1.Deployment{ApplicationId: app.ID}, links); links == nil {
					t.Error("the live state cannot be read")
					return
				}
			}
			if v.readPods([]*modelv1.Rollout{r}); v.oldest.IsZero() {
				t.Error("pods were not read, or their age was not noted")
			}
		})
	}
	browsers.Wait()
	// Callers that come during the first read share the second; on a slow machine more follow, when what was read is older
	// than they accept.
	if n, later := cluster.reads.Load(), int64(time.Since(began)/liveAge); n < 1 || n > 10+later {
		t.Errorf("the cluster was read %d times for 40 requests of 20 browsers", n)
	}
}

// TestPodsAreRenewed: in a refresh views accept pods of before a change, and renew reads these anew.
func TestPodsAreRenewed(t *testing.T) {
	list := &controlv1.ListRolloutsResponse{Rollouts: []*modelv1.Rollout{replacement("billing")}}
	for target, tc := range map[string]struct {
		api  *fakeAPI
		open func(*visit) (source, error)
	}{
		"/":                                 {busy(t).on("ListRollouts", list), liveNow},
		"/deployments/d1":                   {logged(t, 0).on("ListRollouts", list), liveDeployment},
		"/rollouts":                         {rolling(t, list.Rollouts...), liveRollouts},
		"/applications/search?tab=rollouts": {drifted(t).on("ListRollouts", list), liveApplication},
	} {
		var asked []*controlv1.GetLiveStateRequest
		tc.api.live(&asked)
		answer := tc.api.answers["GetLiveState"]
		readAt := noon.Add(-4 * time.Second)
		tc.api.answers["GetLiveState"] = func(m proto.Message) (proto.Message, error) {
			resp, err := answer(m)
			resp.(*controlv1.GetLiveStateResponse).LiveState.ReadAtMs = readAt.UnixMilli()
			return resp, err
		}
		r := request("GET", target, "")
		r.SetPathValue("id", "d1")
		r.SetPathValue("ref", "search")
		v, err := tc.api.page().visit(nil, r)
		if err != nil {
			t.Fatal(target, err)
		}
		src, err := tc.open(v)
		if err != nil {
			t.Fatal(target, err)
		}
		v.age, asked = knownAge, nil
		if _, err := src.parts(v); err != nil {
			t.Fatal(target, err)
		}
		if len(asked) != 1 || asked[0].MaxAgeMs != 15_000 || asked[0].LevelLimit != 60 || !v.oldest.Equal(readAt) {
			t.Errorf("%s: the parts ask for %v and have seen what was read at %v", target, asked, v.oldest)
			continue
		}
		asked = nil
		renewing, ok := src.(renewer)
		if !ok {
			t.Errorf("%s waits for clusters, and does not renew what it has read", target)
			continue
		}
		renewing.renew(&visit{Handler: v.Handler, ctx: v.ctx, age: liveAge})
		if len(asked) != 1 || asked[0].MaxAgeMs != 1000 || asked[0].LevelLimit == 0 {
			t.Errorf("%s: renewing asks for %v", target, asked)
		}
	}
}

// TestDoneIsRenewed: what was done today is read anew by renew, and by no refresh before.
func TestDoneIsRenewed(t *testing.T) {
	f, now := calm(t), noon
	h := New(Config{Conn: f, Token: f.page().config.Token, Now: func() time.Time { return now }})
	v, err := h.visit(nil, request("GET", "/", ""))
	if err != nil {
		t.Fatal(err)
	}
	v.age = knownAge
	src := &nowSource{known: nowRead{lasts: map[string]int64{}}}
	var read []int
	for _, renew := range []bool{false, false, true} {
		if now = now.Add(2 * time.Second); renew {
			src.renew(&visit{Handler: h, ctx: v.ctx, age: liveAge})
		}
		v.now, v.oldest = now, time.Time{}
		if _, err := src.parts(v); err != nil {
			t.Fatal(err)
		}
		read = append(read, int(v.oldest.Sub(noon).Seconds()))
	}
	if want := "[2 2 6]"; fmt.Sprint(read) != want {
		t.Errorf("the refreshes have what was read at %v, want %s", read, want)
	}
}

// TestSlowReadsAreRare: the longer a read takes, the longer is the pause before the next one, but
// never longer than the interval in which it is read without a change.
func TestSlowReadsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ took, want time.Duration }{
			{0, 2 * time.Second}, {50 * time.Millisecond, 2 * time.Second}, {200 * time.Millisecond, 4 * time.Second}, {3 * time.Second, 10 * time.Second},
		} {
			n := &renewal{src: slowRead(c.took), ctx: t.Context(), turn: make(chan struct{}, 1), done: make(chan struct{}, 1)}
			began := time.Now()
			n.start(&visit{Handler: &Handler{}})
			<-n.done
			if got := time.Since(began) + n.pause(); got != c.want {
				t.Errorf("after a read of %s the next one begins after %s, want %s", c.took, got, c.want)
			}
		}
	})
}

// slowRead is a renewer that takes a time.
type slowRead time.Duration

func (s slowRead) renew(*visit) { time.Sleep(time.Duration(s)) }
