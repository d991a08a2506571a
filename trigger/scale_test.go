package trigger

import (
	"fmt"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// TestManyApplications: one commit that touches all of many applications is one
// fetch and one pass, and each is deployed.
func TestManyApplications(t *testing.T) {
	const n = 300
	l := newEnv(t)
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("apps/a%04d/app.pipecd.yaml", i)] = appFile(fmt.Sprint("a", i), "  labels: {team: core}")
		files[fmt.Sprintf("apps/a%04d/deployment.yaml", i)] = "one"
	}
	timed := func(what string, do func()) {
		began := time.Now()
		do()
		t.Logf("%s: %s", what, time.Since(began))
	}
	l.upstream.Push(t, "one", files)
	timed("register and deploy", l.poll)
	for i := range n {
		files[fmt.Sprintf("apps/a%04d/deployment.yaml", i)] = "two"
	}
	before := l.trigger.watchers["apps"].repo.Git.Stats()
	l.upstream.Push(t, "two", files)
	timed("deploy again", l.poll)
	timed("poll without changes", l.poll)
	after := l.trigger.watchers["apps"].repo.Git.Stats()
	if fetches := after.Fetches - before.Fetches; fetches != 1 {
		t.Errorf("%d fetches", fetches)
	}
	counts := map[deploy.Status]int{}
	for _, status := range deploy.Statuses() {
		ds, err := l.store.DeploymentsIn(t.Context(), status)
		must(t, err)
		counts[status] = len(ds)
	}
	if counts[deploy.Pending] != n || counts[deploy.Cancelled] != n {
		t.Errorf("deployments: %v", counts)
	}
}
