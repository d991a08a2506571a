package trigger

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// TestHeldWhileItsClusterIsSilent: what may run already is not replaced unseen.
// The cluster is asked again after a while, less and less often, and what runs is
// taken over when it answers.
func TestHeldWhileItsClusterIsSilent(t *testing.T) {
	var running []string
	var asked int
	silent := true
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(string, string) ([]string, error) {
			if asked++; silent {
				return nil, deploy.Errorf(deploy.Unavailable, "cluster \"local\" cannot be reached")
			}
			return running, nil
		})
	})
	running = []string{l.upstream.Push(t, "running", map[string]string{"web/app.pipecd.yaml": appFile("web")})}
	l.push("head", map[string]string{"web/a.yaml": "1"})
	if got := l.deployments("web"); got != nil {
		t.Fatalf("while the cluster is silent there are deployments: %v", got)
	}
	want := "Not deployed yet: whether something of it runs already could not be found out: cluster \"local\" cannot be reached. " +
		"The cluster is asked again, at least every 2m; to deploy without waiting for it, sync by hand"
	if got := l.app("web").Notice; got != want {
		t.Errorf("the application says %q, want %q", got, want)
	}

	var pauses []int // in polls 10 s and a little apart, until it is asked again
	for _, was := 0, asked; len(pauses) < 5; {
		polls := 0
		for ; asked == was; polls++ {
			l.pass(10 * time.Second)
			l.poll()
		}
		was, pauses = asked, append(pauses, polls)
	}
	if pauses[0] > 2 || pauses[1] <= pauses[0] || pauses[3] < 5 || pauses[4] != pauses[3] {
		t.Errorf("it was asked again after %v polls, want increasing pauses up to a limit", pauses)
	}

	silent = false
	l.pass(maxSilence)
	l.poll()
	if diff := cmp.Diff([]string{"running PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("once it answers (-want +got):\n%s", diff)
	}
	if got := l.app("web").Notice; got != "" {
		t.Errorf("then the application still says %q", got)
	}
}

// TestHeldApplicationCanBeSyncedByHand: a person need not wait for the cluster to
// be asked again.
func TestHeldApplicationCanBeSyncedByHand(t *testing.T) {
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(string, string) ([]string, error) { return nil, deploy.Errorf(deploy.Unavailable, "no answer") })
	})
	l.push("head", map[string]string{"web/app.pipecd.yaml": appFile("web")})
	id := l.askSync("web")
	l.poll()
	if c := l.command(id); c.Status != deploy.CommandSucceeded {
		t.Errorf("the sync is %s because %q", c.Status, c.Metadata[deploy.MetaReason])
	}
	if diff := cmp.Diff([]string{"head PENDING"}, l.deployments("web")); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
	l.push("elsewhere", map[string]string{"x": "1"})
	l.end("web", deploy.Success)
	l.pass(maxSilence)
	l.poll()
	if got := l.app("web").Notice; got != "" {
		t.Errorf("after the success the application says %q", got)
	}
}

// TestSilentClusterHoldsUpNoOther: the applications of a provider that does not
// answer do not each wait for it, and those of another are deployed while it is
// waited for.
func TestSilentClusterHoldsUpNoOther(t *testing.T) {
	var l *env
	asked := make(chan string, 100)
	l = newEnv(t, func(_ *env, c *Config) {
		c.Providers = []string{"dead", "local"}
		c.Live = live(func(provider, _ string) ([]string, error) {
			asked <- provider
			if provider == "local" {
				return nil, nil
			}
			for end := time.Now().Add(10 * time.Minute); len(l.deployments("alive")) == 0; time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Error("the application of the other provider waits for the silent one")
					break
				}
			}
			return nil, deploy.Errorf(deploy.Unavailable, "no answer")
		})
	})
	files := map[string]string{"alive/app.pipecd.yaml": appFile("alive", "  platformProvider: local")}
	for i := range 60 {
		dir := "dead-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		files[dir+"/app.pipecd.yaml"] = appFile(dir, "  platformProvider: dead")
	}
	l.push("begin", files)
	close(asked)
	count := map[string]int{}
	for provider := range asked {
		count[provider]++
	}
	if count["local"] != 1 || count["dead"] == 0 || count["dead"] > maxLookups {
		t.Errorf("asked %v; want local once, dead at most %d times", count, maxLookups)
	}
	if len(l.deployments("alive")) != 1 || l.deployments("dead-aa") != nil || !strings.HasPrefix(l.app("dead-aa").Notice, waiting) {
		t.Errorf("deployments %v and %v, notice %q", l.deployments("alive"), l.deployments("dead-aa"), l.app("dead-aa").Notice)
	}
}

// TestClusterThatAnswersInPart: an application whose question got no answer is
// held and asked for again, whatever the answers for others are.
func TestClusterThatAnswersInPart(t *testing.T) {
	silent := true
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(_, dir string) ([]string, error) {
			if dir == "slow" && silent {
				return nil, deploy.Errorf(deploy.Unavailable, "no answer in time")
			}
			return nil, nil
		})
	})
	l.push("begin", map[string]string{"slow/app.pipecd.yaml": appFile("slow"), "web/app.pipecd.yaml": appFile("web")})
	silent = false
	for range 3 { // the other may have been held with it
		l.pass(maxSilence)
		l.poll()
	}
	for _, dir := range []string{"slow", "web"} {
		if got := l.deployments(dir); len(got) != 1 || l.app(dir).Notice != "" {
			t.Errorf("%s: deployments %v, notice %q", dir, got, l.app(dir).Notice)
		}
	}
}

// TestUnreachableChartHoldsItsApplicationAlone: what an application is rendered from
// is no matter of the cluster, which goes on to be asked for the others.
func TestUnreachableChartHoldsItsApplicationAlone(t *testing.T) {
	unreachable, asked := true, 0
	l := newEnv(t, func(_ *env, c *Config) {
		c.Live = live(func(_, dir string) ([]string, error) {
			if dir == "chart" {
				if asked++; unreachable {
					return nil, &SourceError{Err: deploy.Errorf(deploy.Unavailable, "get chart nginx of https://charts.example.com: no such host")}
				}
			}
			return nil, nil
		})
	})
	files := map[string]string{"chart/app.pipecd.yaml": appFile("chart")}
	dirs := []string{"aaa", "web", "zzz"}
	for _, dir := range dirs {
		files[dir+"/app.pipecd.yaml"] = appFile(dir)
	}
	l.push("begin", files)
	for _, dir := range dirs {
		if diff := cmp.Diff([]string{"begin PENDING"}, l.deployments(dir)); diff != "" || l.app(dir).Notice != "" {
			t.Errorf("%s (-want +got):\n%snotice %q", dir, diff, l.app(dir).Notice)
		}
	}
	want := "Not deployed yet: it cannot be rendered now: get chart nginx of https://charts.example.com: no such host. " +
		"It is tried again, at least every 2m; no other application waits for it"
	if got := l.app("chart"); got.Notice != want || l.deployments("chart") != nil {
		t.Errorf("the application has deployments %v and says %q, want %q", l.deployments("chart"), got.Notice, want)
	}

	l.push("more", map[string]string{"late/app.pipecd.yaml": appFile("late")})
	if got := l.deployments("late"); len(got) != 1 {
		t.Errorf("a later application has deployments %v", got)
	}
	was := asked
	for range 60 { // more than 10 minutes
		l.pass(10 * time.Second)
		l.poll()
	}
	if got := asked - was; got < 3 || got > 10 {
		t.Errorf("the chart was asked for %d times in 60 polls, want less and less often", got)
	}
	unreachable = false
	l.pass(maxSilence)
	l.poll()
	if diff := cmp.Diff([]string{"more PENDING"}, l.deployments("chart")); diff != "" || l.app("chart").Notice != "" {
		t.Errorf("once the chart is there (-want +got):\n%snotice %q", diff, l.app("chart").Notice)
	}
}
