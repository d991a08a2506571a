package githost

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost/githosttest"
)

// newWorkloadEnv returns an env whose host only sets statuses of the commits of workloads.
func newWorkloadEnv(t *testing.T) *env {
	t.Helper()
	l := newEnv(t)
	l.host.CommitStatus, l.host.Deployments, l.host.Comments = false, false, false
	l.host.Workloads = &config.WorkloadStatuses{Repositories: []config.RepositoryPattern{"shop/*"}, Images: []config.ImageSource{
		{Image: image(t, `registry.example.com/shop/(?P<name>[^/:]+):(?:main-)?(?P<commit>[0-9a-f]+)`), Repository: "shop/${name}"},
	}}
	return l
}

func image(t *testing.T, expression string) (p config.ImagePattern) {
	t.Helper()
	if err := p.UnmarshalText([]byte(expression)); err != nil {
		t.Fatal(err)
	}
	return p
}

// foreign returns the first record of a rollout of no application, of a workload in namespace shop
// that is annotated with repository git.example.com/shop/web and a commit.
func foreign(kind, name string, revision int64, commit string) deploy.Rollout {
	began := time.Now().Add(-time.Hour).Truncate(time.Second).Add(time.Duration(revision) * time.Minute)
	r := deploy.Rollout{
		ID: deploy.ExternalRolloutID("cluster", kind+name, revision), Cluster: "cluster", UID: kind + name, Revision: revision,
		Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: kind, Namespace: "shop", Name: name},
		Phase:    deploy.RolloutProgressing, Reason: name + ": field manager \"argocd\" changed the pod template", StartedAt: began, AppliedAt: began,
	}
	if commit != "" {
		r.SourceRepository, r.SourceCommit = "https://git.example.com/shop/web", commit
	}
	return r
}

// save stores a record and returns it as stored.
func (l *env) save(r deploy.Rollout) deploy.Rollout {
	l.t.Helper()
	r, err := l.store.SaveRollout(l.t.Context(), r)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// ends stores the end of a rollout that took a time.
func (l *env) ends(r deploy.Rollout, phase deploy.RolloutPhase, took time.Duration, reason string) {
	l.t.Helper()
	r.Phase, r.CompletedAt, r.Reason = phase, r.StartedAt.Add(took), reason
	l.save(r)
}

// TestStatusesOfWorkloads: each workload that names a commit has a status of its own there, which
// follows its rollouts.
func TestStatusesOfWorkloads(t *testing.T) {
	l := newWorkloadEnv(t)
	l.page = "https://piped.example.com"
	l.run()
	web, db := l.save(foreign("Deployment", "web", 1, commitA)), l.save(foreign("StatefulSet", "web", 1, commitA))
	l.save(foreign("Deployment", "none", 1, ""))
	agent := l.save(foreign("DaemonSet", "agent", 1, strings.ToUpper(commitA)))
	l.waitDelivered()
	const link = " https://piped.example.com/rollouts?namespace=shop"
	began := []string{
		`piped/cluster/shop/agent (DaemonSet) pending: rolling out: agent: field manager "argocd" changed the pod template` + link,
		`piped/cluster/shop/web (StatefulSet) pending: rolling out: web: field manager "argocd" changed the pod template` + link,
		`piped/cluster/shop/web pending: rolling out: web: field manager "argocd" changed the pod template` + link,
	}
	got := l.statuses(commitA)
	slices.Sort(got)
	if diff := cmp.Diff(began, got); diff != "" {
		t.Errorf("statuses at the start (-want +got):\n%s", diff)
	}
	l.ends(web, deploy.RolloutComplete, 42*time.Second, "complete")
	l.ends(db, deploy.RolloutFailed, time.Minute, "StatefulSet shop/web: no progress; pod web-0, container app: CrashLoopBackOff.")
	l.ends(agent, deploy.RolloutGone, time.Minute, "agent: the workload was deleted")
	l.waitDelivered()
	want := []string{
		"piped/cluster/shop/agent (DaemonSet) error: agent: the workload was deleted",
		"piped/cluster/shop/web (StatefulSet) failure: pod web-0, container app: CrashLoopBackOff. StatefulSet shop/web: no progress",
		"piped/cluster/shop/web success: live: rollout took 42 s",
	}
	if diff := cmp.Diff(want, l.last(commitA)); diff != "" {
		t.Errorf("statuses at the end (-want +got):\n%s", diff)
	}
	for _, call := range l.github.Calls() {
		if call != "POST /repos/shop/web/statuses/"+commitA {
			t.Errorf("call %s", call)
		}
	}
}

// TestStatusesOfInterruptedWorkloads: a commit that another one interrupts has no result, one that is
// rolled out again has the last result.
func TestStatusesOfInterruptedWorkloads(t *testing.T) {
	l := newWorkloadEnv(t)
	l.run()
	first := l.save(foreign("Deployment", "web", 1, commitA))
	l.ends(first, deploy.RolloutSuperseded, time.Minute, "web: revision 2 followed before the rollout ended")
	second := l.save(foreign("Deployment", "web", 2, commitB))
	l.ends(second, deploy.RolloutComplete, time.Minute, "complete")
	l.waitDelivered()
	if got, want := l.last(commitA), []string{"piped/cluster/shop/web error: web: revision 2 followed before the rollout ended"}; !slices.Equal(got, want) {
		t.Errorf("the interrupted commit: %q, want %q", got, want)
	}
	if got, want := l.last(commitB), []string{"piped/cluster/shop/web success: live: rollout took 1 min 0 s"}; !slices.Equal(got, want) {
		t.Errorf("the commit that followed: %q, want %q", got, want)
	}

	// Restarted twice, the second time before the first has ended.
	third := l.save(foreign("Deployment", "web", 3, commitA))
	l.waitDelivered()
	l.ends(third, deploy.RolloutSuperseded, time.Second, "web: revision 4 followed before the rollout ended")
	fourth := l.save(foreign("Deployment", "web", 4, commitA))
	l.waitDelivered()
	if got := l.last(commitA); len(got) != 1 || !strings.HasPrefix(got[0], "piped/cluster/shop/web pending: rolling out: ") {
		t.Errorf("a commit that is rolled out again: %q", got)
	}
	l.ends(fourth, deploy.RolloutComplete, 5*time.Second, "complete")
	l.waitDelivered()
	if got, want := l.last(commitA), []string{"piped/cluster/shop/web success: live: rollout took 5.0 s"}; !slices.Equal(got, want) {
		t.Errorf("a commit that was rolled out again: %q, want %q", got, want)
	}
	if got, want := l.last(commitB), []string{"piped/cluster/shop/web success: live: rollout took 1 min 0 s"}; !slices.Equal(got, want) {
		t.Errorf("a commit that is not live any more: %q, want %q", got, want)
	}
}

// TestStatusesOfRecoveredWorkloads: a commit whose rollout completed after it had failed is live.
func TestStatusesOfRecoveredWorkloads(t *testing.T) {
	l := newWorkloadEnv(t)
	l.run()
	r := l.save(foreign("Deployment", "web", 1, commitA))
	l.ends(r, deploy.RolloutTimedOut, time.Minute, "web: no progress")
	l.waitDelivered()
	if got, want := l.last(commitA), []string{"piped/cluster/shop/web failure: web: no progress"}; !slices.Equal(got, want) {
		t.Errorf("it failed: %q, want %q", got, want)
	}
	if err := l.store.RecoverRollout(t.Context(), r.ID, time.Now()); err != nil {
		t.Fatal(err)
	}
	l.waitDelivered()
	if got, want := l.last(commitA), []string{"piped/cluster/shop/web success: live: the rollout had failed, and completed later"}; !slices.Equal(got, want) {
		t.Errorf("it recovered: %q, want %q", got, want)
	}
}

// TestWorkloadsCannotChooseTheTarget: a workload names a repository that is not allowed, or one that
// only looks as if it was. No request is sent.
func TestWorkloadsCannotChooseTheTarget(t *testing.T) {
	l := newWorkloadEnv(t)
	l.run()
	names := []string{
		"https://evil.example.com/shop/web", "git@evil.example.com:shop/web.git", "evil.example.com/shop/web", "https://git.example.com@evil.example.com/shop/web",
		"https://git.example.com.evil.example.com/shop/web", "https://git.example.com/other/web", "git@git.example.com:other/web", "git.example.com/other/web",
		"https://git.example.com/shop", "https://git.example.com/shop/web/secret", "https://git.example.com/shop/..", "https://git.example.com/shop/../other/web",
		"https://git.example.com/shop/%2e%2e", "https://git.example.com/shop/web?x=/../../other/web", "https://git.example.com/shop/web#x", "https://git.example.com/shop/..%2fother",
		"git@git.example.com:shop/../other/web", "git.example.com/shop/web/../../other/secret", "git.example.com/shop/web issues", "git.example.com/shop/.", "git.example.com//shop/web/..",
		"git.example.com/shop/we\\b", "file:///shop/web", "/shop/web", "shop/web", "", "git.example.com", "git.example.com/", "https://", "://git.example.com/shop/web",
	}
	for i, name := range names {
		r := foreign("Deployment", fmt.Sprintf("web-%d", i), 1, commitA)
		r.SourceRepository = name
		l.ends(l.save(r), deploy.RolloutComplete, time.Second, "complete")
	}
	for i, commit := range []string{"main", "HEAD", "../" + commitA, commitA + "/../x", "abcdef", strings.Repeat("a", 65), commitA + "?x", ""} {
		r := foreign("Deployment", fmt.Sprintf("commit-%d", i), 1, "")
		r.SourceRepository, r.SourceCommit = "https://git.example.com/shop/web", commit
		l.ends(l.save(r), deploy.RolloutComplete, time.Second, "complete")
	}
	for i, image := range []string{
		"registry.example.com/shop/..:" + commitA, "evil.example.com/registry.example.com/shop/web:" + commitA, "registry.example.com/shop/web?x:" + commitA,
		"registry.example.com/shop/web:" + commitA + "-dirty", "registry.example.com/other/web:" + commitA, "web", "",
	} {
		r := foreign("Deployment", fmt.Sprintf("image-%d", i), 1, "")
		r.Images = image
		l.ends(l.save(r), deploy.RolloutComplete, time.Second, "complete")
	}
	l.waitDelivered()
	if calls := l.github.Calls(); len(calls) != 0 {
		t.Errorf("calls: %q", calls)
	}
}

// TestNamesOfRepositories are understood as remotes and as paths with the host.
func TestNamesOfRepositories(t *testing.T) {
	l := newWorkloadEnv(t)
	l.run()
	for i, name := range []string{
		"https://git.example.com/shop/web", "https://git.example.com/shop/web.git", "git@git.example.com:shop/web.git", "ssh://git@git.example.com:2222/shop/web", "git.example.com/shop/web",
		"GIT.example.com/Shop/web", "https://user:password@git.example.com/shop/web/",
	} {
		r := foreign("Deployment", fmt.Sprintf("web-%d", i), 1, commitA)
		r.SourceRepository = name
		l.ends(l.save(r), deploy.RolloutComplete, time.Second, "complete")
		l.waitDelivered()
		if got := l.last(commitA); len(got) != i+1 {
			t.Errorf("%s: statuses %q", name, got)
		}
	}
	for _, call := range l.github.Calls() {
		if !strings.EqualFold(call, "POST /repos/shop/web/statuses/"+commitA) {
			t.Errorf("call %s", call)
		}
	}
}

// TestCommitsOfImages: images name commits by their tags, also by the first characters of a hash.
// Annotations go before them.
func TestCommitsOfImages(t *testing.T) {
	const commitC = "c6ae82c7b1a177c8d03f9e96e0adf2466113728f"
	l := newWorkloadEnv(t)
	l.github.SetCommits(commitA, commitB)
	l.run()
	two := foreign("Deployment", "two", 1, "")
	two.Images = "registry.example.com/shop/web:main-" + commitA[:7] + "@sha256:" + strings.Repeat("0", 64) + " envoy:v1 registry.example.com/shop/api:" + commitB
	l.ends(l.save(two), deploy.RolloutComplete, time.Second, "complete")
	annotated := foreign("Deployment", "annotated", 1, commitC)
	annotated.Images = "registry.example.com/shop/web:" + commitA
	l.ends(l.save(annotated), deploy.RolloutComplete, time.Second, "complete")
	unknown := foreign("Deployment", "unknown", 1, "")
	unknown.Images = "registry.example.com/shop/web:" + strings.Repeat("f", 12)
	l.ends(l.save(unknown), deploy.RolloutComplete, time.Second, "complete")
	l.until("all but the unknown commit is delivered", func() bool {
		return len(l.last(commitA)) > 0 && len(l.last(commitB)) > 0 && len(l.last(commitC)) > 0
	}, new([]string))
	for commit, want := range map[string]string{commitA: "two", commitB: "two", commitC: "annotated"} {
		if got := l.last(commit); len(got) != 1 || !strings.HasPrefix(got[0], "piped/cluster/shop/"+want+" ") {
			t.Errorf("commit %s: %q, want the status of %s", commit[:7], got, want)
		}
	}
	for _, call := range l.github.Calls() {
		if strings.HasPrefix(call, "POST ") && strings.HasSuffix(call, commitB) && call != "POST /repos/shop/api/statuses/"+commitB {
			t.Errorf("call %s", call)
		}
	}
}

// TestStatusesOfWorkloadsElsewhere: GitLab and Gitea get them too, also for abbreviated hashes, and
// after the host was down.
func TestStatusesOfWorkloadsElsewhere(t *testing.T) {
	for kind, c := range map[config.GitHostType]struct{ find, hash, set, header, failed string }{
		config.GitHostGitLab: {"/projects/shop%2Fweb/repository/commits/" + commitA[:8], "id", "/projects/shop%2Fweb/statuses/" + commitA, "PRIVATE-TOKEN", "failed"},
		config.GitHostGitea:  {"/repos/shop/web/git/commits/" + commitA[:8], "sha", "/repos/shop/web/statuses/" + commitA, "Authorization", "failure"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			l := newWorkloadEnv(t)
			var mu sync.Mutex
			var states []string
			down := true
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				switch path := r.URL.EscapedPath(); {
				case down:
					down = false
					w.WriteHeader(http.StatusBadGateway)
				case !strings.HasSuffix(r.Header.Get(c.header), githosttest.Token):
					w.WriteHeader(http.StatusUnauthorized)
				case r.Method == http.MethodGet && path == c.find:
					_ = json.NewEncoder(w).Encode(map[string]string{c.hash: commitA})
				case r.Method == http.MethodPost && path == c.set:
					var sent struct{ State, Name, Context string }
					_ = json.NewDecoder(r.Body).Decode(&sent)
					states = append(states, sent.Name+sent.Context+" "+sent.State)
					_, _ = w.Write([]byte("{}"))
				default:
					t.Errorf("%s %s", r.Method, path)
				}
			}))
			defer s.Close()
			l.host.Type, l.host.APIURL = kind, s.URL
			l.run()
			l.ends(l.save(foreign("Deployment", "web", 1, commitA[:8])), deploy.RolloutTimedOut, time.Minute, "web: no progress")
			l.waitDelivered()
			mu.Lock()
			defer mu.Unlock()
			if len(states) == 0 || states[len(states)-1] != "piped/cluster/shop/web "+c.failed {
				t.Errorf("states %q", states)
			}
		})
	}
}

// TestStatusesOfWorkloadsAreSentAgain: the answer of the host is lost when the agent ends. After its
// restart the host gets the state of then, and nothing pending after the end.
func TestStatusesOfWorkloadsAreSentAgain(t *testing.T) {
	l := newWorkloadEnv(t)
	var lost atomic.Int32
	l.github.SetFault(func(_ http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(httptest.NewRecorder(), r)
		lost.Add(1)
		<-r.Context().Done() // the agent ends before it gets the response
	})
	stop := l.run()
	web, api := l.save(foreign("Deployment", "web", 1, commitA)), l.save(foreign("Deployment", "api", 1, commitA))
	l.until("the host is called", func() bool { return lost.Load() > 0 }, new([]string))
	stop()
	l.ends(web, deploy.RolloutComplete, time.Second, "complete")
	l.github.SetFault(nil)
	l.run()
	l.waitDelivered()
	want := []string{`piped/cluster/shop/api pending: rolling out: api: field manager "argocd" changed the pod template`, "piped/cluster/shop/web success: live: rollout took 1.0 s"}
	if diff := cmp.Diff(want, l.last(commitA)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	var states []string
	for _, s := range l.github.Statuses(commitA) {
		if s.Context == "piped/cluster/shop/web" {
			states = append(states, s.State)
		}
	}
	if states = slices.Compact(states); !slices.Equal(states, []string{"success"}) && !slices.Equal(states, []string{"pending", "success"}) {
		t.Errorf("states %q", states)
	}
	l.ends(api, deploy.RolloutComplete, time.Second, "complete")
	l.waitDelivered()
	if got := l.last(commitA); len(got) != 2 || !strings.HasPrefix(got[0], "piped/cluster/shop/api success: ") {
		t.Errorf("statuses %q", got)
	}
}

// TestLongContexts: contexts of workloads with long names are as long as hosts accept, and differ.
func TestLongContexts(t *testing.T) {
	seen := map[string]bool{}
	for _, end := range []string{"a", "b"} {
		got := workloads{Config{Host: config.GitHost{ContextPrefix: "piped"}}}.context(foreign("Deployment", strings.Repeat("n", 252)+end, 1, "").Ended())
		if n := len(got); n > 255 || seen[got] {
			t.Errorf("%d characters, or repeated: %s", n, got)
		}
		seen[got] = true
	}
}
