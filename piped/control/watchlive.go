package control

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// Intervals of WatchLiveState.
const (
	liveDebounce = time.Second      // the least time between two reads
	livePoll     = 10 * time.Second // until a read without a notified change
)

// WatchLiveState streams the live objects of an application, then those that change. Changes
// are notified by the caches of the cluster; what these do not contain is found by reads at
// livePoll. Calls about one application are woken together, so that they share their reads.
func (s *controlService) WatchLiveState(req *controlv1.WatchLiveStateRequest, stream grpc.ServerStreamingServer[controlv1.WatchLiveStateResponse]) error {
	ctx := stream.Context()
	app, sub, err := s.watchApplication(ctx, req.ApplicationId)
	if err != nil {
		return err
	}
	defer sub.close()
	changed := make(chan struct{}, 1)
	stop := s.objects.OnLiveChange(app, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	w := liveWatch{send: stream.Send, sent: map[string][sha256.Size]byte{}}
	for {
		state, err := s.sharedLiveState(ctx, app, relevant(req.Children), 0)
		switch {
		case err == nil:
			err = w.update(liveState(state))
		case w.caughtUp && deploy.IsKind(err, deploy.Unavailable):
			err = w.unavailable(err)
		}
		if err != nil {
			return err
		}
		if err := s.awaitLive(ctx, sub, changed, app.ID); err != nil {
			return err
		}
		if app, err = s.registered(ctx, app.ID); err != nil {
			return err
		}
	}
}

// sharedLiveState returns a live state that was read at most age ago, or reads it once for all
// calls that request it at the same time.
func (s *controlService) sharedLiveState(ctx context.Context, app deploy.Application, children deploy.LiveChildren, age time.Duration) (deploy.LiveState, error) {
	return s.liveStates.do(ctx, fmt.Sprintf("%s/%d", app.ID, children), age, func(ctx context.Context) (deploy.LiveState, error) {
		return s.live.LiveState(ctx, app, children)
	})
}

// awaitLive returns after a change of the application or of its objects, or when they are to be
// read anyway, but not before liveDebounce.
func (s *controlService) awaitLive(ctx context.Context, sub *entrySubscription, changed <-chan struct{}, applicationID string) error {
	if err := sleep(ctx, liveDebounce); err != nil {
		return err
	}
	poll := time.NewTimer(untilPoll(time.Now(), applicationID))
	defer poll.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-changed:
	case <-poll.C:
	case <-sub.signal:
		_, err := sub.take()
		return err
	}
	return nil
}

// untilPoll returns the time until an application is read anyway: the same moment for all calls
// about it, different ones for other applications.
func untilPoll(now time.Time, applicationID string) time.Duration {
	h := fnv.New32a()
	h.Write([]byte(applicationID))
	offset := time.Duration(h.Sum32()) % livePoll
	return livePoll - (time.Duration(now.UnixNano())-offset)%livePoll
}

// sleep waits, or returns the cause of the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// liveWatch is what one call of WatchLiveState has sent.
type liveWatch struct {
	send     func(*controlv1.WatchLiveStateResponse) error
	caughtUp bool
	head     *modelv1.LiveState           // without objects
	sent     map[string][sha256.Size]byte // digests of the objects
	refs     map[string]*modelv1.ObjectRef
}

// update sends the objects that are new, changed or removed, and the state if it has changed
// otherwise.
func (w *liveWatch) update(state *modelv1.LiveState) error {
	objects, refs := state.Objects, map[string]*modelv1.ObjectRef{}
	state.Objects = nil
	var changed []*modelv1.LiveObject
	for _, o := range objects {
		key, digest := liveKey(o.Object), digestOf(o)
		if refs[key] = o.Object; w.sent[key] != digest {
			w.sent[key] = digest
			changed = append(changed, withinResponse(o))
		}
	}
	var removed []*modelv1.ObjectRef
	for _, key := range slices.Sorted(maps.Keys(w.refs)) {
		if refs[key] == nil {
			removed = append(removed, w.refs[key])
			delete(w.sent, key)
		}
	}
	w.refs = refs
	if len(removed) > 0 {
		if err := w.send(&controlv1.WatchLiveStateResponse{State: state, Removed: removed}); err != nil {
			return err
		}
	}
	if err := w.objects(state, changed); err != nil {
		return err
	}
	if len(changed) == 0 && len(removed) == 0 && !w.same(state) {
		if err := w.send(&controlv1.WatchLiveStateResponse{State: state}); err != nil {
			return err
		}
	}
	w.head = state
	if w.caughtUp {
		return nil
	}
	w.caughtUp = true
	return w.send(&controlv1.WatchLiveStateResponse{CaughtUp: true})
}

// objects sends objects in as many messages as they need.
func (w *liveWatch) objects(state *modelv1.LiveState, objects []*modelv1.LiveObject) error {
	for len(objects) > 0 {
		part := &modelv1.LiveState{ApplicationId: state.ApplicationId, Health: state.Health, ReadAtMs: state.ReadAtMs, IncompleteReason: state.IncompleteReason}
		n := fit(objects)
		part.Objects, objects = objects[:n], objects[n:]
		if err := w.send(&controlv1.WatchLiveStateResponse{State: part}); err != nil {
			return err
		}
	}
	return nil
}

// same reports whether a state without objects differs from the last one by its time only.
func (w *liveWatch) same(state *modelv1.LiveState) bool {
	return w.head != nil && w.head.Health == state.Health && w.head.IncompleteReason == state.IncompleteReason
}

// unavailable sends that the state cannot be read, once for each reason.
func (w *liveWatch) unavailable(err error) error {
	state := &modelv1.LiveState{ApplicationId: w.head.ApplicationId, ReadAtMs: w.head.ReadAtMs, IncompleteReason: text(err.Error())}
	if w.same(state) {
		return nil
	}
	w.head = state
	return w.send(&controlv1.WatchLiveStateResponse{State: state})
}

// withinResponse returns an object without its children if it exceeds a response with them.
func withinResponse(o *modelv1.LiveObject) *modelv1.LiveObject {
	if proto.Size(o) > maxResponse {
		o.ChildrenLeftOut += int32(len(o.Children))
		o.Children = nil
	}
	return o
}

func liveKey(r *modelv1.ObjectRef) string {
	return strings.Join([]string{r.Cluster, r.Group, r.Kind, r.Namespace, r.Name}, "/")
}

func digestOf(m proto.Message) [sha256.Size]byte {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil { // no object can cause this: its texts are valid UTF-8
		panic(fmt.Sprintf("marshal a live object: %v", err))
	}
	return sha256.Sum256(data)
}
