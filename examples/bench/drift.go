package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubemetadata "k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/proto/pipecd/apiservice"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	driftBurst = 10 // changes made at once
	driftFor   = time.Minute
	driftPause = 10 * time.Second
	// scaleFlap makes the cluster's autoscaler go from 1 to 2 and back.
	scaleFlap = "1,2,5s"
)

// driftBench is one run of measureDrift.
type driftBench struct {
	*environment
	*scene
	name  string // begins the names of its figures
	fleet driftFleet
	calls calls // of the agent to the API server, since it was started again
	proxy *agenttest.APIProxy
	meta  kubemetadata.Interface
}

// measureDrift deploys 1,000 applications of ten objects and measures how the agent
// watches over them: how long it takes after a start until it knows that all are
// as in Git, what it asks the API server while nothing happens and while
// autoscalers scale, and how soon it reports what is changed by hand. The floor of
// that is a watch of nothing but metadata.
func measureDrift(ctx context.Context, e *environment) (err error) {
	d := &driftBench{environment: e, name: "drift", fleet: newDriftFleet(e.drift)}
	if err := d.prepare(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.proxy.Close()) }()
	defer d.agent.Close()
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"deploy", d.deploy}, {"start", d.start}, {"rest", d.rest}, {"scale", d.scale}, {"change", d.change}, {"heal", d.heal},
	} {
		if err := part.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return d.agent.Close()
}

func (d *driftBench) prepare(ctx context.Context) error {
	if _, err := d.client(ctx, d.fleet.namespace); err != nil {
		return err
	}
	var err error
	if d.meta, err = metadataOf(d.cluster.Kubeconfig()); err != nil {
		return err
	}
	if d.proxy, err = agenttest.ServeAPI(d.cluster.Kubeconfig(), d.calls.saw); err != nil {
		return err
	}
	d.scene, err = d.newScene(ctx, "drift", agenttest.Options{Interval: time.Second})
	if err != nil {
		return errors.Join(err, d.proxy.Close())
	}
	return nil
}

// metadataOf returns a client without limits of the cluster of a kubeconfig, for metadata.
func metadataOf(kubeconfig string) (kubemetadata.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	return kubemetadata.NewForConfig(config)
}

// deploy deploys everything once.
func (d *driftBench) deploy(ctx context.Context) error {
	p, err := d.pass(ctx, "all", d.fleet.files(), d.fleet.count)
	if err != nil {
		return err
	}
	d.info("drift.objects", float64(d.fleet.count*objectsPerApplication), "")
	d.info("drift.deployed", seconds(p.took), "s")
	d.info("drift.deployed.cpu", seconds(p.cpu), "s")
	began := latest(p.deployments, completed)
	synced, err := d.awaitSynced(ctx, d.fleet.count)
	if err != nil {
		return err
	}
	rss, err := memory(d.agent.PID(), "VmRSS")
	if err != nil {
		return err
	}
	d.info("drift.deployed_to_all_synced", max(0, seconds(synced.Sub(began))), "s")
	d.info("drift.rss_after_deploying", rss, "MiB")
	return nil
}

// start starts the agent again, when it has forgotten all sync states, and
// measures until it knows them.
func (d *driftBench) start(ctx context.Context) error {
	if err := d.agent.Stop(); err != nil {
		return err
	}
	var ids []string
	for i := range d.fleet.count {
		ids = append(ids, d.fleet.id(i))
	}
	if err := forget(ctx, filepath.Join(d.dir, "drift"), ids); err != nil {
		return fmt.Errorf("forget the sync states: %w", err)
	}
	if err := d.moveTo(d.environment, d.proxy); err != nil {
		return err
	}
	c, err := d.relearn(ctx, d.fleet.count)
	if err != nil {
		return err
	}
	rest, sweep := splitSweep(d.calls.take(), nil)
	reads := 0
	for _, call := range rest {
		if call.reads(d.fleet.namespace) {
			reads++
		}
	}
	d.atMost("drift.start_to_all_synced", seconds(c.took), "s", 10)
	d.info("drift.start.cpu", seconds(c.cpu), "s")
	d.info("drift.start.peak_rss", c.peak, "MiB")
	d.info("drift.start.api_calls", float64(len(rest)), "")
	d.info("drift.start.api_calls_of_the_sweep", float64(len(sweep)), "")
	d.exactly("drift.start.objects_read", reads, 0)
	return nil
}

// relearn starts the agent, which has stopped, and waits until it knows that n applications are SYNCED.
func (s *scene) relearn(ctx context.Context, n int) (c cost, err error) {
	began := time.Now()
	if err := s.agent.Restart(ctx); err != nil {
		return c, err
	}
	synced, err := s.awaitSynced(ctx, n)
	if err != nil {
		return c, err
	}
	return s.costOf(synced.Sub(began))
}

// costOf returns what the agent has used since its start, for something that took a time.
func (s *scene) costOf(took time.Duration) (c cost, err error) {
	c.took = took
	if c.cpu, err = cpuTime(s.agent.PID()); err == nil {
		c.peak, err = memory(s.agent.PID(), "VmHWM")
	}
	return c, err
}

// forget makes the sync states of applications unknown. The agent of the directory does not run.
func forget(ctx context.Context, dir string, ids []string) (err error) {
	s, err := store.Open(ctx, "sqlite://"+filepath.Join(dir, "piped", "piped.db"), store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	unknown := deploy.SyncState{Status: deploy.SyncUnknown, ShortReason: "Forgotten", At: time.Now()}
	for _, id := range ids {
		if _, err := s.SetSyncState(ctx, id, unknown); err != nil {
			return err
		}
	}
	return nil
}

// rest watches the agent while nothing happens.
func (d *driftBench) rest(ctx context.Context) error {
	time.Sleep(driftPause) // what the start causes is over
	if err := d.watchCalls(ctx, "drift.rest", nil); err != nil {
		return err
	}
	rss, err := memory(d.agent.PID(), "VmRSS")
	if err != nil {
		return err
	}
	file, err := memory(d.agent.PID(), "RssFile")
	if err != nil {
		return err
	}
	d.atMost("drift.rss", rss, "MiB", 120)
	d.info("drift.rss_of_the_program_file", file, "MiB")
	return nil
}

// scale watches the agent while autoscalers change replicas.
func (d *driftBench) scale(ctx context.Context) error {
	scalers := d.meta.Resource(schema.GroupVersionResource{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}).Namespace(d.fleet.namespace)
	annotate := func(value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"devcluster.piped.dev/scale-flap":%s}}}`, value)
		for i := range d.fleet.scaled {
			if _, err := scalers.Patch(ctx, d.fleet.name(i), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "metrics"}); err != nil {
				return err
			}
		}
		return nil
	}
	if err := annotate(fmt.Sprintf("%q", scaleFlap)); err != nil {
		return err
	}
	time.Sleep(driftPause) // what the annotation causes is over
	scaled := map[string]bool{}
	for i := range d.fleet.scaled {
		scaled[fmt.Sprintf("/apis/apps/v1/namespaces/%s/deployments/%s", d.fleet.namespace, d.fleet.name(i))] = true
	}
	if err := d.watchCalls(ctx, "drift.scaled", scaled); err != nil {
		return err
	}
	if err := annotate("null"); err != nil {
		return err
	}
	n, err := d.unsynced(ctx)
	d.exactly("drift.scaled.not_synced", n, 0)
	time.Sleep(driftPause)
	return err
}

// watchCalls counts the agent's calls and processor time for a while. Others are
// the paths of objects that others change.
func (d *driftBench) watchCalls(ctx context.Context, name string, others map[string]bool) error {
	before, err := cpuTime(d.agent.PID())
	if err != nil {
		return err
	}
	d.calls.take()
	began := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(driftFor):
	}
	rest, sweep := splitSweep(d.calls.take(), others)
	took := time.Since(began)
	after, err := cpuTime(d.agent.PID())
	if err != nil {
		return err
	}
	d.atMost(name+".api_calls", float64(len(rest))/took.Seconds(), "per second", 1)
	d.info(name+".api_calls_of_the_sweep", float64(len(sweep))/took.Seconds(), "per second")
	d.info(name+".cpu", 100*float64(after-before)/float64(took), "% of a core")
	counts := map[string]int{}
	for _, c := range rest {
		counts[fmt.Sprintf("%s, watch %t, dry run %t", c.method, c.watch, c.dryRun)]++
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, counts)
	return nil
}

// awaitSynced returns when the last of n applications became SYNCED, once all are.
func (s *scene) awaitSynced(ctx context.Context, n int) (last time.Time, err error) {
	err = s.agent.Await(ctx, "all applications to be SYNCED", patience, func(ctx context.Context) (bool, error) {
		time.Sleep(500 * time.Millisecond) // answers cost what is measured
		apps, err := s.applications(ctx)
		if err != nil {
			return false, err
		}
		synced := 0
		last = time.Time{}
		for _, app := range apps {
			if app.GetSyncState().GetStatus() == modelv1.ApplicationSyncStatus_SYNCED {
				synced++
			}
			if at := time.UnixMilli(app.GetSyncStateSinceMs()); at.After(last) {
				last = at
			}
		}
		return synced == n, fmt.Errorf("%d of %d so far", synced, n)
	})
	return last, err
}

// unsynced returns how many applications are not SYNCED now.
func (s *scene) unsynced(ctx context.Context) (n int, err error) {
	apps, err := s.applications(ctx)
	for _, app := range apps {
		if app.GetSyncState().GetStatus() != modelv1.ApplicationSyncStatus_SYNCED {
			n++
			fmt.Fprintf(os.Stderr, "drift: %s is %s: %s\n", app.GetName(), app.GetSyncState().GetStatus(), app.GetSyncState().GetReason())
		}
	}
	return n, err
}

// applications returns all applications.
func (s *scene) applications(ctx context.Context) ([]*modelv1.Application, error) {
	request := &apiservice.ListApplicationsRequest{Limit: 500}
	var all []*modelv1.Application
	for {
		answer, err := s.agent.API.ListApplications(ctx, request)
		if err != nil || len(answer.GetApplications()) == 0 {
			return all, err
		}
		all = append(all, answer.GetApplications()...)
		request.Cursor = answer.GetCursor()
	}
}
