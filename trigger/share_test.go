package trigger

import (
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/ownership/ownershiptest"
)

// TestOneReplicaWatches: a repository is polled, and its commands are answered, by the replica that has
// the right to it. The next one finds what came in between, and is reached by requests of polls.
func TestOneReplicaWatches(t *testing.T) {
	ours, theirs := ownershiptest.New("apps"), ownershiptest.New()
	replica := func(rights *ownershiptest.Rights) func(*env, *Config) {
		return func(_ *env, c *Config) { c.Rights, c.Interval = rights, time.Hour }
	}
	l := newEnv(t, replica(ours))
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	first := l.trigger
	l.start()
	l.restart(replica(theirs))
	second := l.trigger
	l.start()
	polled := func(tr *Trigger) time.Time { return tr.watchers["apps"].repo.Git.State().CheckedAt }
	await(t, "the first deployment", func() bool { return len(l.all("web")) == 1 })
	ask := func() {
		must(t, l.store.RequestPoll(t.Context(), "apps"))
	}
	l.upstream.Push(t, "announced", map[string]string{"web/d.yaml": "1"})
	ask()
	await(t, "the announced commit", func() bool { return len(l.all("web")) == 2 })
	if at := polled(second); !at.IsZero() {
		t.Errorf("the replica without the right has polled at %s", at)
	}

	ours.HandOver("apps")
	last := polled(first)
	l.upstream.Push(t, "in between", map[string]string{"web/d.yaml": "2"})
	id, gone := l.askSync("web"), l.askSync("nowhere")
	ask()
	theirs.Grant("apps")
	theirs.Grant(appID("nowhere"))
	await(t, "the answers", func() bool {
		return l.command(id).Status == deploy.CommandSucceeded && l.command(gone).Status == deploy.CommandFailed
	})
	l.upstream.Push(t, "announced later", map[string]string{"web/d.yaml": "3"})
	ask()
	await(t, "the commit that was announced to the next replica", func() bool {
		ds := l.all("web")
		return ds[len(ds)-1].Trigger.Commit.Message == "announced later"
	})
	if n := len(l.all("web")); n != 5 {
		t.Errorf("there are %d deployments: %v", n, l.deployments("web"))
	}
	if at := polled(first); !at.Equal(last) {
		t.Errorf("the replica that handed the repository over has polled it at %s", at)
	}
}

// TestTriggerOfATermThatIsOver: the store refuses deployments of a replica whose right is over.
func TestTriggerOfATermThatIsOver(t *testing.T) {
	rights := ownershiptest.New()
	rights.GrantTerm("apps", deploy.Term{Partition: deploy.PartitionOf("apps"), Number: 7})
	l := newEnv(t, func(_ *env, c *Config) { c.Rights = rights })
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	stop := l.start()
	must(t, l.trigger.Passed(t.Context(), "apps"))
	stop()
	if n := len(l.registered()); n != 0 {
		t.Errorf("%d applications were registered", n)
	}
}
