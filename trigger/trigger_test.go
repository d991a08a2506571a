package trigger

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git/gittest"
)

// start runs the trigger until the returned func is called or the test
// ends.
func (l *env) start() (stop func()) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	started := l.trigger
	running.Go(func() { must(l.t, started.Run(ctx)) })
	stop = func() {
		cancel()
		running.Wait()
	}
	l.t.Cleanup(stop)
	return stop
}

// TestHintsAreCoalesced: a burst of hints is one poll, also while one is under way, and a hint
// about a repository that is not watched is nothing.
func TestHintsAreCoalesced(t *testing.T) {
	var server *gittest.HTTPServer
	l := newEnv(t, func(l *env, c *Config) {
		server = l.upstream.HTTP(t, gittest.HTTPOptions{})
		l.config.Remote, c.Interval = server.URL, time.Hour
	})
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	arrived, release := make(chan struct{}, 100), make(chan struct{})
	server.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		arrived <- struct{}{}
		<-release
		next.ServeHTTP(w, r)
	})
	stop := l.start()
	<-arrived // the first poll is under way
	for range 100 {
		l.trigger.Poll("apps")
		l.trigger.Poll("unknown")
	}
	l.upstream.Push(t, "change", map[string]string{"web/d.yaml": "1"})
	close(release)
	await(t, "the poll that was asked for", func() bool { return len(l.all("web")) > 0 && server.Listings() == 2 })
	l.upstream.Push(t, "change again", map[string]string{"web/d.yaml": "2"})
	l.trigger.Poll("apps")
	await(t, "the poll after the next hint", func() bool {
		ds := l.all("web")
		return ds[len(ds)-1].Trigger.Commit.Message == "change again"
	})
	await(t, "the last poll", func() bool { return server.Listings() >= 3 })
	stop()
	if n := server.Listings(); n != 3 {
		t.Errorf("the remote was asked %d times, want 3", n)
	}
}

// TestAnotherTriggerGoesOn: what comes while no trigger runs, as when one makes
// room for another with a new configuration, is found by the next.
func TestAnotherTriggerGoesOn(t *testing.T) {
	l := newEnv(t, func(_ *env, c *Config) { c.Interval = time.Hour })
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web", "  trigger: {onOutOfSync: {disabled: false, minWindow: 0s}}")})
	stop := l.start()
	await(t, "the first deployment", func() bool { return len(l.all("web")) == 1 })
	stop()

	l.finish("web", deploy.Success)
	l.state("web", deploy.OutOfSync)
	l.trigger = New(l.trigger.Config)
	stop = l.start()
	await(t, "the self-heal", func() bool { return l.heals("web") == 1 })
	stop()

	id := l.askSync("web")
	gone := l.askSync("nowhere")
	l.trigger = New(l.trigger.Config)
	l.start()
	await(t, "the answers", func() bool {
		return l.command(id).Status == deploy.CommandSucceeded && l.command(gone).Status == deploy.CommandFailed
	})
}

// TestCommitsInSeries: after a commit that a hint announced, the next one is found long before the
// interval has passed.
func TestCommitsInSeries(t *testing.T) {
	l := newEnv(t, func(_ *env, c *Config) { c.Interval, c.Now = time.Minute, time.Now })
	l.upstream.Push(t, "begin", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	l.start()
	await(t, "the first deployment", func() bool { return len(l.all("web")) == 1 })
	l.upstream.Push(t, "announced", map[string]string{"web/d.yaml": "1"})
	l.trigger.Poll("apps")
	await(t, "the announced commit", func() bool { return len(l.all("web")) == 2 })
	pushed := time.Now()
	l.upstream.Push(t, "not announced", map[string]string{"web/d.yaml": "2"})
	await(t, "the commit that nothing announced", func() bool { return len(l.all("web")) == 3 })
	if took := time.Since(pushed); took > 40*time.Second {
		t.Errorf("the commit was found after %s", took)
	}
}
