package app

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/store/pgtest"
	"github.com/c785c783/piped/piped/store/storetest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestSuspendedInAnEffect: the active replica is suspended around a write that is not idempotent,
// the other one takes over and ends the deployment, and then the first one goes on. A Job that is
// deleted and created anew runs once, whichever request was the last one.
func TestSuspendedInAnEffect(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		at   func(r *http.Request) bool
	}{
		{"before the deletion", func(r *http.Request) bool {
			return r.Method == http.MethodPost && strings.Contains(r.URL.RawQuery, "dryRun")
		}},
		{"at the deletion", func(r *http.Request) bool { return r.Method == http.MethodDelete }},
		{"between deletion and creation", func(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.Query().Get("watch") == "" }},
		{"at the creation", func(r *http.Request) bool {
			return r.Method == http.MethodPatch && !strings.Contains(r.URL.RawQuery, "dryRun")
		}},
	} {
		t.Run(c.name, func(t *testing.T) { suspendInRecreation(t, c.name, c.at) })
	}
}

func suspendInRecreation(t *testing.T, name string, at func(*http.Request) bool) {
	cluster, repo := clustertest.Shared(t), newRepo(t)
	ns := cluster.Namespace(t)
	files := func(image string) map[string]string {
		return map[string]string{
			"web/app.pipecd.yaml": fmt.Sprintf("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  input: {namespace: %s}\n", ns),
			"web/app.yaml": fmt.Sprintf(`apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: "migrate:%s"}]}}}
`, image),
		}
	}
	var active atomic.Pointer[agenttest.Agent] // set while it is to be suspended
	suspended, deleted := make(chan error, 1), atomic.Bool{}
	_, kubeconfig := proxied(t, cluster.Kubeconfig(), func(r *http.Request) {
		a := active.Load()
		if a == nil || !strings.Contains(r.URL.Path, "/namespaces/"+ns+"/jobs") {
			return
		}
		if r.Method == http.MethodDelete {
			deleted.Store(true)
		}
		if at(r) && (r.Method != http.MethodGet || deleted.Load()) && active.CompareAndSwap(a, nil) {
			suspended <- syscall.Kill(a.PID(), syscall.SIGSTOP)
		}
	}, nil)
	dir := t.TempDir()
	o := agenttest.Options{Binary: buildAgent(t), Dir: dir, Remote: repo.Dir, Kubeconfig: kubeconfig, DSN: pgtest.Start(t).NewDSN(t), Interval: 200 * time.Millisecond}
	first := startProcess(t, o)
	before := &client{t: t, ctx: t.Context(), api: first.API, control: first.Control}
	web := appID("web")
	before.mustEnd(web, repo.Push(t, "first", files("v1")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	o.StoreKey, o.Kubeconfig = filepath.Join(dir, "piped", storeKeyFile), cluster.Kubeconfig()
	second, err := agenttest.StartReplica(first, o, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Close(); err != nil {
			t.Errorf("the replica: %v", err)
		}
	})
	r := &replicas{t: t, client: before, first: first, second: second}
	r.standsBy(second)

	jobs := cluster.Client(t).BatchV1().Jobs(ns)
	events, err := jobs.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	active.Store(first)
	commit := repo.Push(t, "second", files("v2"))
	select {
	case err := <-suspended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatalf("there was no request %s:\n%s", name, first.Tail())
	}
	// The server does now what it does after 15 s without a word of the agent.
	if _, err := storetest.Raw(t, o.DSN).ExecContext(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`); err != nil {
		t.Fatal(err)
	}
	r.answers(second)
	after := &client{t: t, ctx: t.Context(), api: second.API, control: second.Control}
	after.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	r.signal(first, syscall.SIGCONT)
	select {
	case <-first.Ended():
	case <-time.After(patience):
		t.Fatal("the agent that was suspended does not end")
	}
	r.relaunch(first)
	mustHaveEndedOnce(t, after.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS))

	live, err := jobs.Get(t.Context(), "migrate", metav1.GetOptions{})
	if err != nil || live.Spec.Template.Spec.Containers[0].Image != "migrate:v2" {
		t.Fatalf("the Job: %+v, %v", live, err)
	}
	mustBeCreatedOnce(t, events, live)
}

// mustBeCreatedOnce fails if a watch that began before a Job was created anew has seen another new
// one.
func mustBeCreatedOnce(t *testing.T, events watch.Interface, live *batchv1.Job) {
	t.Helper()
	created, late := map[string]bool{}, time.After(patience)
	var quiet <-chan time.Time // once the live one has been seen, others follow within a second
	for {
		select {
		case e, ok := <-events.ResultChan():
			if !ok {
				t.Fatal("the watch has ended")
			}
			job, is := e.Object.(*batchv1.Job)
			if is && job.Spec.Template.Spec.Containers[0].Image == "migrate:v2" {
				created[string(job.UID)] = true
			}
			if quiet == nil && created[string(live.UID)] {
				quiet = time.After(time.Second)
			}
		case <-late:
			t.Fatalf("the watch shows the Jobs %v, not the live one, %s", created, live.UID)
		case <-quiet:
			if len(created) != 1 {
				t.Errorf("the Jobs %v were created, want only %s", created, live.UID)
			}
			return
		}
	}
}
