package rollout

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// stand provides the cluster and the store to Wait. Its cache follows the live state
// unless it is stale.
type stand struct {
	mu       sync.Mutex
	live     map[string]Snapshot // by workload name
	cached   map[string]Snapshot
	stale    bool
	down     error
	pods     []corev1.Pod
	podReads int
	lease    func() Lease  // nil if there is no lease
	slow     time.Duration // how long Confirm takes
	slowPods time.Duration // how long Pods takes
	wakes    map[string]func()
	lines    []string

	stored  map[string]deploy.Rollout
	saves   int
	saveErr error
	marks   map[string]int
}

func newStand() *stand {
	return &stand{live: map[string]Snapshot{}, cached: map[string]Snapshot{}, wakes: map[string]func(){},
		stored: map[string]deploy.Rollout{}, marks: map[string]int{}}
}

func (s *stand) Cached(_ context.Context, rec deploy.Rollout) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached[rec.Workload.Name], nil
}

func (s *stand) Confirm(ctx context.Context, rec deploy.Rollout) (Snapshot, error) {
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return Snapshot{}, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live[rec.Workload.Name], s.down
}

func (s *stand) Pods(ctx context.Context, _ deploy.Rollout, _ Snapshot) ([]corev1.Pod, []corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-time.After(s.slowPods):
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	s.podReads++
	return s.pods, nil, s.down
}

// NewPods ignores which workload the pods belong to.
func (s *stand) NewPods(context.Context, deploy.Rollout, Snapshot) ([]corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods, s.down
}

func (s *stand) Controllers(context.Context) (Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return s.lease(), s.down
	}
	return Lease{}, s.down
}

func (s *stand) Subscribe(ref deploy.ObjectRef, wake func()) (func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakes[ref.Name] = wake
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.wakes, ref.Name)
	}, nil
}

func (s *stand) save(_ context.Context, rec deploy.Rollout) (deploy.Rollout, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saves++
	if s.saveErr != nil {
		return rec, s.saveErr
	}
	stored := s.stored[rec.ID]
	if stored.Version != rec.Version || stored.Phase.Terminal() {
		return stored, deploy.Errorf(deploy.Conflict, "written meanwhile")
	}
	if rec.Phase.Terminal() {
		s.marks[rec.ID]++
	}
	rec.Version++
	s.stored[rec.ID] = rec
	return rec, nil
}

// show makes pods of the new and old template the state of a workload.
func (s *stand) show(name string, available, old int32) {
	w := Workload{Kind: KindDeployment, Name: name, UID: "u", Generation: 2, ObservedGeneration: 2, Template: Template{"B", "b"},
		Replicas: 3, Deadline: 60 * time.Second, TemplateManager: "piped"}
	s.put(name, Snapshot{Workload: &w, Revisions: []Revision{
		{UID: "1", Name: name + "-a", OwnerUID: "u", Number: 1, Template: Template{"A", "a"}, Desired: old, Total: old},
		{UID: "2", Name: name + "-b", OwnerUID: "u", Number: 2, Template: Template{"B", "b"}, Desired: 3, Total: 3, Ready: available, Available: available},
	}})
}

func (s *stand) put(name string, snapshot Snapshot) {
	s.mu.Lock()
	s.live[name] = snapshot
	if !s.stale {
		s.cached[name] = snapshot
	}
	wake := s.wakes[name]
	if s.stale {
		wake = nil
	}
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

func (s *stand) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// applied stores and returns the record of a workload just applied.
func (s *stand) applied(name string) deploy.Rollout {
	rec := deploy.Rollout{ID: name, DeploymentID: "d", Workload: deploy.ObjectRef{Group: "apps", Kind: KindDeployment, Namespace: "shop", Name: name}}
	rec = Intended(rec, &Workload{Template: Template{"A", "a"}, Replicas: 3}, "")
	rec = Applied(rec, Workload{UID: "u", Generation: 2, Template: Template{"B", "b"}, Replicas: 3}, time.Now())
	rec.Version = 1
	s.stored[name] = rec
	return rec
}

func (s *stand) request(records ...deploy.Rollout) Request {
	return Request{Records: records, Observer: s, Save: s.save, Policy: Policy{NoFailFast: true}, Progress: func(line string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lines = append(s.lines, line)
	}}
}

// startWait runs Wait and returns a function that waits for its end.
func startWait(ctx context.Context, req Request) func() ([]deploy.Rollout, error) {
	type result struct {
		ended []deploy.Rollout
		err   error
	}
	done := make(chan result, 1)
	go func() {
		ended, err := Wait(ctx, req)
		done <- result{ended, err}
	}()
	return func() ([]deploy.Rollout, error) {
		r := <-done
		return r.ended, r.err
	}
}

func TestWaitEndsAtTheEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.show("web", 0, 3)
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(time.Second)
		s.show("web", 2, 1)
		time.Sleep(time.Second)
		before := time.Now()
		s.show("web", 3, 0)
		ended, err := result()
		if err != nil || ended[0].Phase != deploy.RolloutComplete {
			t.Fatalf("%+v, %v", ended, err)
		}
		if took := time.Since(before); took > 5*time.Millisecond {
			t.Errorf("ended %s after the event", took)
		}
		want := []string{"web: 0 of 3 new pods available, 3 old pods left", "web: 2 of 3 new pods available, 1 old pod left",
			"web: 3 of 3 pods available in ReplicaSet web-b, no old pod left"}
		if diff := cmp.Diff(want, s.lines); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
		if len(s.wakes) != 0 || s.marks["web"] != 1 || s.podReads != 0 {
			t.Errorf("%d subscriptions left, %d marks, pods read %d times", len(s.wakes), s.marks["web"], s.podReads)
		}
	})
}

// TestTheEndIsNotBeforeWhatShowsIt: the cache does not contain a new workload yet, as if
// it were deleted. Its pods become available while the API server is asked. The end must
// not be before that.
func TestTheEndIsNotBeforeWhatShowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.slow, s.stale = 5*time.Second, true
		rec := s.applied("web")
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(2 * time.Second)
		available := time.Now()
		s.show("web", 3, 0)
		ended, err := result()
		if err != nil || ended[0].Phase != deploy.RolloutComplete || ended[0].CompletedAt.Before(available) {
			t.Fatalf("%s at %s, %v; its pods were available at %s", ended[0].Phase, ended[0].CompletedAt, err, available)
		}
	})
}

// TestWaitReportsMarkLatency: the latency from the event that completed the rollout to
// the mark is reported once.
func TestWaitReportsMarkLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.show("web", 0, 3)
		req := s.request(s.applied("web"))
		req.Save = func(ctx context.Context, rec deploy.Rollout) (deploy.Rollout, error) {
			time.Sleep(200 * time.Millisecond)
			return s.save(ctx, rec)
		}
		var marked []time.Duration
		req.Marked = func(after time.Duration) { marked = append(marked, after) }
		result := startWait(t.Context(), req)
		time.Sleep(10 * time.Second)
		s.show("web", 3, 0)
		if _, err := result(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]time.Duration{200 * time.Millisecond}, marked); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWaitFindsTheEndWithoutEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.show("web", 0, 3)
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(time.Second)
		s.set(func() { s.stale = true }) // the watch is cut
		s.show("web", 3, 0)
		began := time.Now()
		if ended, err := result(); err != nil || ended[0].Phase != deploy.RolloutComplete || time.Since(began) > pollInterval {
			t.Errorf("after %s: %+v, %v", time.Since(began), ended, err)
		}
	})
}

func TestWaitReadsPodsOnlyWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-b-1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Image: "web:2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such tag"}},
		}}}}}
		s.show("web", 0, 3)
		req := s.request(rec)
		req.Policy.NoFailFast = false
		began := time.Now()
		result := startWait(t.Context(), req)
		time.Sleep(4 * time.Second)
		early := 0
		s.set(func() { early = s.podReads })
		if early != 0 {
			t.Errorf("pods read %d times within 4 s", early)
		}
		ended, err := result()
		if err != nil || ended[0].Phase != deploy.RolloutFailed || !strings.Contains(ended[0].Reason, "no such tag") {
			t.Fatalf("%+v, %v", ended, err)
		}
		// The progress deadline of this Deployment (60 s + 10 s) comes before fail-fast
		// (90 s).
		if took := time.Since(began); took < 70*time.Second || took > 71*time.Second {
			t.Errorf("failed after %s", took)
		}
		if s.podReads < 2 || s.podReads > 20 {
			t.Errorf("pods read %d times", s.podReads)
		}
	})
}

func TestWaitDecidesNothingWhileTheClusterCannotBeAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.show("web", 1, 2)
		began := time.Now()
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(20 * time.Second)
		s.set(func() { s.down = deploy.Errorf(deploy.Unavailable, "connection refused") })
		time.Sleep(time.Hour)
		var got deploy.RolloutPhase
		s.set(func() { got = s.stored["web"].Phase })
		if got != deploy.RolloutProgressing {
			t.Fatalf("phase %s while the cluster cannot be asked", got)
		}
		s.set(func() { s.down = nil })
		ended, err := result()
		if err != nil || ended[0].Phase != deploy.RolloutFailed {
			t.Fatalf("%+v, %v", ended, err)
		}
		// The clock stopped for the whole hour, except for at most one polling interval
		// before it. 70 s of this clock are the deadline and its grace period.
		took := time.Since(began)
		if min, max := time.Hour+70*time.Second, time.Hour+70*time.Second+presenceInterval+2*time.Second; took < min || took > max {
			t.Errorf("failed after %s, want %s to %s", took, min, max)
		}
		complaints := 0
		for _, line := range s.lines {
			if strings.Contains(line, "cannot ask the cluster how it stands, still waiting: connection refused") {
				complaints++
			}
		}
		if complaints != 1 {
			t.Errorf("complained %d times, want once:\n%s", complaints, strings.Join(s.lines, "\n"))
		}
	})
}

func TestWaitStopped(t *testing.T) {
	for _, c := range []struct {
		cause  deploy.StopReason
		phase  deploy.RolloutPhase
		reason string
	}{
		{deploy.StopTimedOut, deploy.RolloutTimedOut, "the stage's time ran out; it stood at: web: 1 of 3 new pods available, 2 old pods left"},
		{deploy.StopCancelled, deploy.RolloutSuperseded, "the stage was cancelled; it stood at: web: 1 of 3 new pods available, 2 old pods left"},
		{deploy.StopShutdown, deploy.RolloutProgressing, ""},
	} {
		t.Run(string(c.cause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStand()
				rec := s.applied("web")
				s.show("web", 1, 2)
				ctx, cancel := context.WithCancelCause(t.Context())
				result := startWait(ctx, s.request(rec))
				time.Sleep(time.Second)
				cancel(c.cause)
				ended, err := result()
				stood := " while waiting for Deployment shop/web: 1 of 3 new pods available, 2 old pods left"
				if !errors.Is(err, c.cause) || !strings.HasSuffix(err.Error(), stood) {
					t.Errorf("error %v, want %v%s", err, c.cause, stood)
				}
				if ended[0].Phase != c.phase || c.reason != "" && ended[0].Reason != c.reason {
					t.Errorf("%s: %s, want %s: %s", ended[0].Phase, ended[0].Reason, c.phase, c.reason)
				}
				if diff := cmp.Diff(s.stored["web"], ended[0]); diff != "" {
					t.Errorf("not as stored:\n%s", diff)
				}
			})
		})
	}
}

// TestWaitStoppedWhileItReadsPods: the reason known from the last read of the pods remains.
func TestWaitStoppedWhileItReadsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.pods = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "web-b-1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", Image: "web:2", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such tag"}},
		}}}}}
		s.show("web", 0, 3)
		ctx, cancel := context.WithCancelCause(t.Context())
		result := startWait(ctx, s.request(rec))
		time.Sleep(20 * time.Second)
		s.set(func() { s.slowPods = time.Hour })
		time.Sleep(20 * time.Second)
		cancel(deploy.StopTimedOut)
		ended, err := result()
		if !errors.Is(err, deploy.StopTimedOut) || !strings.Contains(err.Error(), "no such tag") || !strings.Contains(ended[0].Reason, "no such tag") {
			t.Errorf("error %v, reason %q: want both to contain why the pods were not ready", err, ended[0].Reason)
		}
	})
}

func TestWaitYieldsToAnotherEvaluator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.show("web", 0, 3)
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(time.Second)
		s.set(func() {
			other := s.stored["web"]
			other.Phase, other.Reason = deploy.RolloutComplete, "by another replica"
			other.Version++
			s.stored["web"] = other
		})
		s.show("web", 3, 0)
		ended, err := result()
		if err != nil || ended[0].Reason != "by another replica" || s.marks["web"] != 0 {
			t.Errorf("%+v, %v, %d marks of our own", ended, err, s.marks["web"])
		}
	})
}

func TestWaitKeepsTryingToStoreTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.show("web", 3, 0)
		s.saveErr = deploy.Errorf(deploy.Unavailable, "the database does not answer")
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(time.Minute)
		s.set(func() { s.saveErr = nil })
		if ended, err := result(); err != nil || ended[0].Phase != deploy.RolloutComplete || s.marks["web"] != 1 {
			t.Errorf("%+v, %v, %d marks", ended, err, s.marks["web"])
		}
	})
}

func TestWaitStoresCountsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		rec := s.applied("web")
		s.show("web", 0, 300)
		result := startWait(t.Context(), s.request(rec))
		for old := int32(299); old > 0; old-- {
			time.Sleep(100 * time.Millisecond)
			s.show("web", 0, old)
		}
		s.show("web", 3, 0)
		if _, err := result(); err != nil {
			t.Fatal(err)
		}
		if s.saves < 3 || s.saves > 10 {
			t.Errorf("stored %d times in 30 s of steady progress", s.saves)
		}
	})
}

func TestWaitGivesUpTheRestWhenOneFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		names := []string{"api", "db", "web"}
		var records []deploy.Rollout
		for _, name := range names {
			records = append(records, s.applied(name))
			s.show(name, 1, 2)
		}
		result := startWait(t.Context(), s.request(records...))
		time.Sleep(30 * time.Second)
		s.show("db", 2, 1)
		time.Sleep(time.Second)
		s.set(func() { s.stale = true })
		s.show("db", 3, 0) // visible only in a poll
		time.Sleep(20 * time.Second)
		s.set(func() { s.stale = false })
		s.show("web", 2, 1)
		ended, err := result()
		if err != nil {
			t.Fatal(err)
		}
		want := []deploy.RolloutPhase{deploy.RolloutFailed, deploy.RolloutComplete, deploy.RolloutSuperseded}
		for i, rec := range ended {
			if rec.Phase != want[i] || s.marks[rec.ID] != 1 {
				t.Errorf("%s: %s (%s), %d marks; want %s", names[i], rec.Phase, rec.Reason, s.marks[rec.ID], want[i])
			}
		}
		if want := "given up because Deployment shop/api failed; it stood at: web: 2 of 3 new pods available, 1 old pod left"; ended[2].Reason != want {
			t.Errorf("reason %q, want %q", ended[2].Reason, want)
		}
	})
}

func TestWaitRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		intent := Intended(deploy.Rollout{ID: "web", DeploymentID: "d", Workload: deploy.ObjectRef{Kind: KindDeployment, Name: "web"}}, nil, "B")
		s.stored["web"] = intent
		if _, err := Wait(t.Context(), s.request(intent)); !deploy.IsKind(err, deploy.Internal) || !strings.Contains(err.Error(), "was not applied") {
			t.Errorf("an intent: %v", err)
		}
		rec := s.applied("web")
		s.show("web", 3, 0)
		s.down = deploy.Errorf(deploy.Invalid, "deployments is forbidden")
		if _, err := Wait(t.Context(), s.request(rec)); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "wait for the rollout of Deployment shop/web") {
			t.Errorf("a refusal: %v", err)
		}
	})
}

func TestWaitReturnsEndedRecordsAtOnce(t *testing.T) {
	rec := deploy.Rollout{ID: "web", Phase: deploy.RolloutComplete, Version: 7}
	s := newStand()
	ended, err := Wait(t.Context(), s.request(rec))
	if err != nil || s.saves != 0 {
		t.Fatalf("%v, stored %d times", err, s.saves)
	}
	if diff := cmp.Diff([]deploy.Rollout{rec}, ended); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}
