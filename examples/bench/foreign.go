package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/c785c783/piped/piped/app/agenttest"
)

const (
	foreignRollouts = 50 // at once
	foreignRest     = time.Minute
	foreignMore     = 150 // MiB that watching all workloads may cost
)

// foreignBench is one run of measureForeign.
type foreignBench struct {
	*environment
	fleet  foreignFleet
	client kubernetes.Interface
	calls  calls // of the agent to the API server
	proxy  *agenttest.APIProxy
}

// measureForeign measures what it costs to record the rollouts of a cluster of 5,000
// Deployments that others deploy: memory compared with that of an agent that watches no more
// than its applications, calls while nothing happens, and how soon the start and the end of
// 50 rollouts at once are announced after an independent watch sees them.
func measureForeign(ctx context.Context, e *environment) (err error) {
	f := &foreignBench{environment: e, fleet: newForeignFleet(e.foreign)}
	if f.client, err = e.client(ctx, f.fleet.namespaces()...); err != nil {
		return err
	}
	began := time.Now()
	if err := f.create(ctx); err != nil {
		return fmt.Errorf("create the workloads: %w", err)
	}
	fmt.Fprintf(os.Stderr, "foreign: created %d Deployments in %s\n", f.fleet.count, time.Since(began).Round(time.Second))
	if f.proxy, err = agenttest.ServeAPI(e.cluster.Kubeconfig(), f.calls.saw); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.proxy.Close()) }()
	kubeconfig, err := f.proxy.Kubeconfig(e.dir)
	if err != nil {
		return err
	}
	f.info("foreign.deployments", float64(f.fleet.count), "")
	f.info("foreign.replicasets", float64(f.fleet.count*(foreignOld+1)), "")
	without, err := f.without(ctx, kubeconfig)
	if err != nil {
		return fmt.Errorf("watch applications: %w", err)
	}
	return f.with(ctx, kubeconfig, without)
}

// create creates the workloads. The controllers, which are slower, do not run meanwhile.
func (f *foreignBench) create(ctx context.Context) error {
	const controllers = "controller-manager"
	if err := f.cluster.StopComponent(ctx, controllers); err != nil {
		return err
	}
	if err := f.fleet.create(ctx, f.client); err != nil {
		return err
	}
	if err := f.cluster.StartComponent(ctx, controllers); err != nil {
		return err
	}
	return f.fleet.awaitSeen(ctx, f.client)
}

// used is the memory of an agent, in MiB.
type used struct{ peak, rest float64 }

// memoryOf returns the memory of an agent once it is at rest.
func (f *foreignBench) memoryOf(ctx context.Context, agent *agenttest.Agent) (u used, err error) {
	if err := atRest(ctx, agent.PID(), 10*time.Second); err != nil {
		return u, err
	}
	if u.peak, err = memory(agent.PID(), "VmHWM"); err == nil {
		u.rest, err = memory(agent.PID(), "VmRSS")
	}
	return u, err
}

// without measures an agent that watches its applications, of which there are none.
func (f *foreignBench) without(ctx context.Context, kubeconfig string) (u used, err error) {
	repo, err := f.newRepo("foreign-without")
	if err != nil {
		return u, err
	}
	agent, err := f.start(ctx, "foreign-without", repo, agenttest.Options{Interval: defaultInterval, Kubeconfig: kubeconfig})
	if err != nil {
		return u, err
	}
	u, err = f.memoryOf(ctx, agent)
	f.info("foreign.applications.peak_rss", u.peak, "MiB")
	f.info("foreign.applications.rss", u.rest, "MiB")
	return u, errors.Join(err, agent.Close())
}

// with measures an agent that watches all workloads.
func (f *foreignBench) with(ctx context.Context, kubeconfig string, without used) error {
	repo, err := f.newRepo("foreign-all")
	if err != nil {
		return err
	}
	heard := newMoments()
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		var body struct {
			Metadata struct {
				Rollout struct{ Namespace, Name string }
			}
		}
		if json.NewDecoder(r.Body).Decode(&body) == nil {
			heard.saw(r.Header.Get("Piped-Event")+" "+body.Metadata.Rollout.Namespace+"/"+body.Metadata.Rollout.Name, now)
		}
	}))
	defer hook.Close()
	f.calls.take()
	began := time.Now()
	agent, err := f.start(ctx, "foreign-all", repo, agenttest.Options{
		Interval: defaultInterval, Kubeconfig: kubeconfig, WatchIn: "*", More: fmt.Sprintf(notifying, hook.URL),
	})
	if err != nil {
		return err
	}
	defer agent.Close()
	u, err := f.memoryOf(ctx, agent)
	if err != nil {
		return err
	}
	f.info("foreign.all.start_to_rest", seconds(time.Since(began)), "s")
	f.info("foreign.all.start.api_calls", float64(len(f.calls.take())), "")
	f.info("foreign.all.rss", u.rest, "MiB")
	if err := f.rest(ctx); err != nil {
		return err
	}
	if err := f.roll(ctx, heard); err != nil {
		return err
	}
	after, err := f.memoryOf(ctx, agent)
	if err != nil {
		return err
	}
	f.info("foreign.all.peak_rss_at_the_start", u.peak, "MiB")
	f.info("foreign.all.peak_rss", after.peak, "MiB")
	f.info("foreign.all.rss_after_rollouts", after.rest, "MiB")
	f.atMost("foreign.more_rss", max(u.rest, after.rest)-without.rest, "MiB", foreignMore)
	f.atMost("foreign.more_rss_at_the_peak", after.peak-without.peak, "MiB", foreignMore)
	return agent.Close()
}

// notifying are lines of a configuration that sends rollouts to a URL.
const notifying = `  notifications:
    routes: [{name: rollouts, receiver: hook, groups: [ROLLOUT]}]
    receivers: [{name: hook, webhook: {url: %q}}]
`

// rest counts the agent's calls while nothing happens. The watches have to be renewed from
// time to time, and so has the Lease with which every agent claims the cluster, whatever it watches.
func (f *foreignBench) rest(ctx context.Context) error {
	f.calls.take()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(foreignRest):
	}
	n, leases := 0, 0
	for _, c := range f.calls.take() {
		switch {
		case c.watch:
		case strings.Contains(c.path, "/leases/piped-"):
			leases++
		default:
			n++
			fmt.Fprintf(os.Stderr, "foreign.rest: %s %s\n", c.method, c.path)
		}
	}
	f.info("foreign.rest.lease_calls_per_minute", float64(leases), "")
	f.exactly("foreign.rest.api_calls_per_minute", n, 0)
	return nil
}

// roll changes the images of 50 Deployments at once and measures how soon the agent announces
// the start and the end of each. A rollout starts with its ReplicaSet, for which the controller's
// budget of requests makes it wait.
func (f *foreignBench) roll(ctx context.Context, heard *moments) error {
	const tag = "next"
	w, err := watchRollouts(ctx, f.client, f.fleet.namespace(0), tag, foreignRollouts)
	if err != nil {
		return err
	}
	created := newMoments()
	stop, err := f.watchReplicaSets(ctx, w.image, created)
	if err != nil {
		w.close()
		return err
	}
	defer stop()
	f.calls.take()
	written := map[string]time.Time{}
	for i := range foreignRollouts {
		patch := fmt.Appendf(nil, `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"%s"}]}}}}`, w.image)
		name := f.fleet.name(i)
		if _, err := f.client.AppsV1().Deployments(f.fleet.namespace(0)).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-set"}); err != nil {
			w.close()
			return err
		}
		written[name] = time.Now()
	}
	err = w.wait(ctx)
	complete := w.close()
	if err != nil {
		return err
	}
	var floors, starts, ends []time.Duration
	for name, end := range complete {
		object := f.fleet.namespace(0) + "/" + name
		started, err := heard.of(ctx, "ROLLOUT_STARTED "+object)
		if err != nil {
			return err
		}
		ended, err := heard.of(ctx, "ROLLOUT_ENDED "+object)
		if err != nil {
			return err
		}
		made, err := created.of(ctx, name)
		if err != nil {
			return err
		}
		floors = append(floors, max(0, made.Sub(written[name])))
		starts, ends = append(starts, max(0, started.Sub(made))), append(ends, max(0, ended.Sub(end)))
	}
	f.info("foreign.rollouts", float64(len(complete)), "")
	f.info("foreign.rollouts.api_calls", float64(len(f.calls.take())), "")
	f.info("foreign.floor.replicaset_after_the_write.p50", milliseconds(median(floors)), "ms")
	f.info("foreign.floor.replicaset_after_the_write.worst", milliseconds(worst(floors)), "ms")
	f.atMost("foreign.start_announced_after_its_replicaset.p50", milliseconds(median(starts)), "ms", 1000)
	f.info("foreign.start_announced_after_its_replicaset.worst", milliseconds(worst(starts)), "ms")
	f.atMost("foreign.end_announced_after_completion.p50", milliseconds(median(ends)), "ms", 1000)
	f.info("foreign.end_announced_after_completion.worst", milliseconds(worst(ends)), "ms")
	return nil
}

// watchReplicaSets watches, beside the agent, for the ReplicaSets with an image, until stop is called.
// Each is a moment of its Deployment.
func (f *foreignBench) watchReplicaSets(ctx context.Context, image string, created *moments) (stop func(), err error) {
	w, err := f.client.AppsV1().ReplicaSets(f.fleet.namespace(0)).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	go func() {
		for event := range w.ResultChan() {
			set, ok := event.Object.(*appsv1.ReplicaSet)
			if ok && event.Type == watch.Added && set.Spec.Template.Spec.Containers[0].Image == image {
				created.saw(set.Labels["app.kubernetes.io/name"], time.Now())
			}
		}
	}()
	return w.Stop, nil
}
