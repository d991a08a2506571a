package observe

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/cluster/health"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/cluster/workloads/workloadstest"
	"github.com/c785c783/piped/piped/deploy"
)

// healthEnv publishes the health of one application by a clock that the test sets.
type healthEnv struct {
	*env
	health *HealthEvents
	now    time.Time
}

func newHealthEnv(t *testing.T) *healthEnv {
	t.Helper()
	l := &healthEnv{env: newEnv(t), now: time.Now()}
	l.start(t)
	return l
}

// start makes Vitals as an agent that starts does.
func (l *healthEnv) start(t *testing.T) {
	t.Helper()
	l.health = NewHealthEvents(HealthConfig{
		Observer: l.Observer, Store: l.store, Now: func() time.Time { return l.now }, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Redact: func(_ context.Context, _ deploy.Application, text string) (string, error) {
			return strings.ReplaceAll(text, l.Namespace, "***"), nil
		},
	})
	begun := false
	if err := l.health.begin(t.Context(), &begun); err != nil || !begun {
		t.Fatal(err)
	}
}

// await waits until the caches show the application in a health, and evaluates it.
func (l *healthEnv) await(t *testing.T, want deploy.Health) {
	t.Helper()
	l.shown(t, want)
	l.health.mu.Lock()
	l.health.dirty[l.App] = true // as the handler does, which may be about to
	l.health.mu.Unlock()
	l.advance(t, 0)
}

// shown waits until the caches show the application in a health.
func (l *healthEnv) shown(t *testing.T, want deploy.Health) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; {
		found := l.Observer.Of(l.App)
		if len(found) == 1 && worstOf(found).health == want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the caches never show %s: %+v", want, found)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// advance lets time pass and evaluates.
func (l *healthEnv) advance(t *testing.T, passed time.Duration) {
	t.Helper()
	l.now = l.now.Add(passed)
	if _, err := l.health.evaluateAll(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// published returns the health events with their reasons.
func (l *healthEnv) published(t *testing.T) (published []string) {
	t.Helper()
	events, err := l.store.Events(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Type != deploy.EventHealthy && e.Type != deploy.EventDegraded {
			continue
		}
		said := e.Details()
		published = append(published, fmt.Sprintf("%s: %s is %s: %s", e.Type, said.Application, said.To, said.Reason))
	}
	return published
}

// TestHealthEvents follows an application on a real cluster: what is published, once each, and
// over a restart.
func TestHealthEvents(t *testing.T) {
	t.Parallel()
	l := newHealthEnv(t)
	// Not Recreate: the Deployment may then go on to say NewReplicaSetAvailable of the new
	// ReplicaSet, when the controller's steps conflict, and the reason would be another.
	l.Wait(t, l.Apply(t, "s1", workloadstest.Text(rollout.KindDeployment, "example.com/web:v1", "progressDeadlineSeconds: 2")), nil)
	l.await(t, deploy.Healthy)
	if l.advance(t, time.Hour); len(l.health.pulses) != 0 {
		t.Errorf("of a healthy application there is kept %v", l.health.pulses)
	}

	l.Patch(t, rollout.KindDeployment, "kubectl", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/web:bad-image"}]}}}}`)
	l.await(t, deploy.HealthDegraded)
	l.advance(t, 29*time.Second)
	want := []string(nil)
	check := func(step string) {
		t.Helper()
		if diff := cmp.Diff(want, l.published(t)); diff != "" {
			t.Fatalf("%s: published (-want +got):\n%s", step, diff)
		}
	}
	check("before it has lasted")
	want = append(want, "APPLICATION_DEGRADED: web is DEGRADED: Deployment ***/web: its rollout has made no progress for 2s; 1 of 1 pod is available")
	l.advance(t, time.Second)
	l.advance(t, time.Hour)
	check("degraded")
	l.start(t)
	l.advance(t, time.Hour)
	check("after a restart")

	l.Patch(t, rollout.KindDeployment, "kubectl", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/web:v1"}]}}}}`)
	l.await(t, deploy.Healthy)
	if _, err := l.store.UpdateDeployment(t.Context(), "d", func(d *deploy.Deployment) error { return d.Plan(deploy.Plan{}, l.now) }); err != nil {
		t.Fatal(err)
	}
	l.advance(t, time.Hour)
	check("while a deployment is under way")
	if _, err := l.store.UpdateDeployment(t.Context(), "d", func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", l.now) }); err != nil {
		t.Fatal(err)
	}
	l.health.onDeploymentEnd([]deploy.Change{{Topic: deploy.TopicDeployment, ID: "d", ApplicationID: l.App, Status: deploy.Cancelled}})
	l.advance(t, 2*time.Second)
	want = append(want, "APPLICATION_HEALTHY: web is HEALTHY: its workload is healthy again")
	check("at the end of the deployment")
	l.advance(t, time.Hour)
	l.advance(t, time.Hour)
	check("later")
	if len(l.health.pulses)+len(l.health.tracked) != 0 {
		t.Errorf("of a healthy application there is kept %v", l.health.pulses)
	}

	l.Patch(t, rollout.KindDeployment, "kubectl", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/web:bad-image"}]}}}}`)
	l.await(t, deploy.HealthDegraded)
	l.advance(t, 30*time.Second)
	published := l.published(t)
	if len(published) != 3 || !strings.HasPrefix(published[2], "APPLICATION_DEGRADED: ") { // why depends on how far it is
		t.Fatalf("degraded again: published %v", published)
	}
	want = published
	if err := l.Typed().AppsV1().Deployments(l.Namespace).Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "the workload is gone", func() bool { return len(l.Observer.Of(l.App)) == 0 })
	l.advance(t, 0)
	l.advance(t, 29*time.Second)
	check("before its workloads have been gone for long")
	l.advance(t, time.Second)
	l.advance(t, 0)
	want = append(want, "APPLICATION_HEALTHY: web is HEALTHY: it has no workloads any more")
	check("its workloads are gone")
	degraded, err := l.store.DegradedApplications(t.Context())
	if err != nil || len(degraded)+len(l.health.pulses)+len(l.health.tracked) != 0 {
		t.Errorf("of an application without workloads there is kept %v, %v, %v", degraded, l.health.pulses, err)
	}
}

// TestHealthEventsRun: the running component notices a workload that breaks and a deployment
// that ends, and reports at once.
func TestHealthEventsRun(t *testing.T) {
	t.Parallel()
	l := newHealthEnv(t)
	l.Wait(t, l.Apply(t, "s1", workloadstest.Text(rollout.KindDeployment, "example.com/web:v1", "progressDeadlineSeconds: 2, strategy: {type: Recreate}")), nil)
	l.shown(t, deploy.Healthy)
	l.health.cfg.Now = time.Now
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan bool)
	go func() { l.health.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })

	l.Patch(t, rollout.KindDeployment, "kubectl", `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/web:bad-image"}]}}}}`)
	l.shown(t, deploy.HealthDegraded)
	clustertest.Eventually(t, "the broken application is followed", func() bool {
		l.health.mu.Lock()
		defer l.health.mu.Unlock()
		return l.health.tracked[l.App]
	})
	broken := time.Now()
	if _, err := l.store.UpdateDeployment(t.Context(), "d", func(d *deploy.Deployment) error { return d.Complete(deploy.Cancelled, "", time.Now()) }); err != nil {
		t.Fatal(err)
	}
	clustertest.Eventually(t, "it is published", func() bool { return len(l.published(t)) > 0 })
	if took := time.Since(broken); took > 20*time.Second {
		t.Errorf("published %s after the end of the deployment, want at once", took)
	}
	if published := l.published(t); len(published) != 1 || !strings.HasPrefix(published[0], "APPLICATION_DEGRADED: web is DEGRADED: ") {
		t.Errorf("published %q", published)
	}
}

// A workload that is gone says nothing any more, and what is not ours is left alone.
func TestHealthEventsOfOthers(t *testing.T) {
	t.Parallel()
	l := newHealthEnv(t)
	l.health.onWorkloadChange("unknown", rollout.Workload{Kind: rollout.KindDeployment, Replicas: 1})
	l.advance(t, 0)
	if _, known := l.health.pulses["unknown"]; known {
		t.Error("an application without workloads is followed")
	}
	l.health.track("unknown", false).See(deploy.HealthDegraded, l.now)
	next, err := l.health.report(t.Context(), "unknown", l.health.pulses["unknown"], deploy.HealthDegraded, finding{})
	if err != nil || !next.IsZero() || len(l.health.pulses) != 0 {
		t.Errorf("an application of another agent: %v, %s, followed %v", err, next, l.health.pulses)
	}
}

func TestWorstOf(t *testing.T) {
	live := func(kind, name string, replicas, available int32) *workloads.Object {
		k := &workloads.Object{Workload: rollout.Workload{Kind: kind, Replicas: replicas, Available: available, Updated: replicas, Total: replicas}}
		k.Namespace, k.Name = "shop", name
		return k
	}
	broken := live(rollout.KindDeployment, "api", 2, 0)
	broken.Workload.Failure = rollout.Condition{Status: "True", Message: "exceeded quota"}
	healthy, starting := live(rollout.KindDaemonSet, "log", 3, 3), live(rollout.KindStatefulSet, "db", 3, 2)
	for name, c := range map[string]struct {
		of   []*workloads.Object
		due  deploy.Health
		want string
	}{
		"all healthy":  {[]*workloads.Object{healthy, healthy}, deploy.Healthy, "all its 2 workloads are healthy again"},
		"one":          {[]*workloads.Object{healthy}, deploy.Healthy, "its workload is healthy again"},
		"on its way":   {[]*workloads.Object{healthy, starting}, deploy.HealthDegraded, "StatefulSet shop/db: 2 of 3 pods are available; the application has not been healthy for 10m0s"},
		"the worst":    {[]*workloads.Object{starting, broken, healthy}, deploy.HealthDegraded, "Deployment shop/api: pods cannot be created: exceeded quota"},
		"two as bad":   {[]*workloads.Object{broken, healthy, broken}, deploy.HealthDegraded, "Deployment shop/api: pods cannot be created: exceeded quota; another workload is as bad"},
		"three as bad": {[]*workloads.Object{broken, broken, broken}, deploy.HealthDegraded, "Deployment shop/api: pods cannot be created: exceeded quota; 2 other workloads are as bad"},
	} {
		t.Run(name, func(t *testing.T) {
			f := worstOf(c.of)
			if got := f.reason(c.due, 10*time.Minute); got != c.want {
				t.Errorf("says %q, want %q", got, c.want)
			}
			h, _ := health.Workload(c.of[0].Workload)
			if h.WorseThan(f.health) {
				t.Errorf("%s is worse than %s", h, f.health)
			}
		})
	}
}
