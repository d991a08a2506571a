package app

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// killPoint is a request with an outside effect. The agent is killed when it has sent the request and
// nothing has happened, which only `make chaos` does, and when it has happened and the agent has no response.
type killPoint struct {
	name    string
	request string // regular expression of the method and the path
	body    string // part of the body, of requests to the Git host
	kills   int    // that are left: 2 is before the effect, 1 after it
}

func (p killPoint) matches(method, path, body string) bool {
	return regexp.MustCompile("^"+p.request+"$").MatchString(method+" "+path) && strings.Contains(body, p.body)
}

// killer holds requests of an agent at the kill points until the agent is killed.
type killer struct {
	held chan string   // the kill point
	end  chan struct{} // closed with the test
	away func()        // called while the agent is killed; nil is allowed
	each int           // kills at a point

	mu     sync.Mutex
	points []killPoint
	killed chan struct{} // closed when the agent is killed; nil while no request is held
}

func newKiller() *killer {
	k := &killer{held: make(chan string), end: make(chan struct{}), each: 1}
	if os.Getenv("PIPED_CHAOS") != "" {
		k.each = 2
	}
	return k
}

// hold holds a request at its kill point, if that is now, until the agent is killed. It reports
// whether it did.
func (k *killer) hold(method, path, body string, happened bool) bool {
	name, killed := k.take(method, path, body, happened)
	if killed == nil {
		return false
	}
	select {
	case k.held <- name:
		<-killed
	case <-k.end:
	}
	return true
}

// take takes the kill point of a request, if that is now.
func (k *killer) take(method, path, body string, happened bool) (name string, killed chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kills, when := 2, "before "
	if happened {
		kills, when = 1, "after "
	}
	for i, p := range k.points {
		if k.killed == nil && p.kills == kills && p.matches(method, path, body) {
			k.points[i].kills--
			k.killed = make(chan struct{})
			return when + p.name, k.killed
		}
	}
	return "", nil
}

// left returns the kill points at which the agent is to be killed yet.
func (k *killer) left() (names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.points {
		if p.kills > 0 {
			names = append(names, p.name)
		}
	}
	return names
}

// arm adds kill points.
func (k *killer) arm(points ...killPoint) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range points {
		p.kills = cmp.Or(p.kills, k.each)
		k.points = append(k.points, p)
	}
}

// api returns the kubeconfig of a proxy for the cluster's API server, for the agent.
func (k *killer) api(t *testing.T, kubeconfig string) string {
	t.Helper()
	_, path := proxied(t, kubeconfig, func(r *http.Request) {
		if !r.URL.Query().Has("dryRun") && k.hold(r.Method, r.URL.Path, "", false) {
			panic(http.ErrAbortHandler) // the API server does not get it
		}
	}, func(resp *http.Response) {
		if r := resp.Request; resp.StatusCode < http.StatusBadRequest && !r.URL.Query().Has("dryRun") {
			k.hold(r.Method, r.URL.Path, "", true)
		}
	})
	t.Cleanup(func() { close(k.end) }) // before the proxy is closed
	return path
}

// host handles the requests to the Git host. check is called with each before the host has it.
func (k *killer) host(check func(method, path, body string)) func(w http.ResponseWriter, r *http.Request, next http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		content, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		body := string(content)
		if k.hold(r.Method, r.URL.Path, body, false) {
			panic(http.ErrAbortHandler)
		}
		check(r.Method, r.URL.Path, body)
		r.Body = io.NopCloser(bytes.NewReader(content))
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r.WithContext(context.WithoutCancel(r.Context())))
		if k.hold(r.Method, r.URL.Path, body, true) {
			panic(http.ErrAbortHandler)
		}
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		_, _ = w.Write(answer.Body.Bytes()) // the agent may be gone
	}
}

// until kills the agent at all kill points and starts it again, and then waits for a condition.
func (k *killer) until(t *testing.T, agent *agenttest.Agent, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		select {
		case name := <-k.held:
			began := time.Now()
			agent.Kill()
			k.mu.Lock()
			close(k.killed)
			k.killed = nil
			k.mu.Unlock()
			if k.away != nil {
				k.away()
			}
			if err := agent.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Logf("killed %s, there again after %s", name, time.Since(began).Round(time.Millisecond))
		case <-time.After(pollInterval):
		}
		left := k.left()
		if len(left) == 0 && holds() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s; not killed at %q", patience, what, left)
		}
	}
}

// killedLife is the life of the preview of pull request 7, with the kill points of its parts.
type killedLife struct {
	*previewEnv
	files                     func(version string) map[string]string
	works                     func(version string) bool // as the cluster says
	left                      func() []string           // of the preview in the cluster
	opening, updating, ending []killPoint
	versions                  *sync.Map // of the heads
}

// propose pushes a version to the pull request and opens it.
func (l killedLife) propose(version string) {
	l.t.Helper()
	l.push(l.files(version))
	l.versions.Store(l.head, version)
	l.set("open", "preview")
}

// reported returns the version of the head about which a request to the Git host is, "" if it is about
// none.
func (l killedLife) reported(path, body string) (version string) {
	if number := regexp.MustCompile("/deployments/([0-9]+)/statuses$").FindStringSubmatch(path); number != nil {
		for _, d := range l.github.Deployments() {
			if strconv.FormatInt(d.ID, 10) == number[1] {
				path = d.SHA
			}
		}
	}
	l.versions.Range(func(head, of any) bool {
		if sha := head.(string); strings.Contains(path+body, sha) || strings.Contains(body, "`"+sha[:7]+"`") {
			version = of.(string)
		}
		return true
	})
	return version
}

// check fails the test if a request tells the Git host what is not so in the cluster.
func (l killedLife) check(_, path, body string) {
	isReady := strings.Contains(body, "### Preview: ready") || strings.Contains(body, `"description":"ready`) || strings.Contains(body, "https://web-pr-7.")
	if version := l.reported(path, body); isReady && !l.works(version) {
		l.t.Errorf("%s says that %q is ready, and it is not: %s", path, version, body)
	}
	if left := l.left(); strings.Contains(body, "### Preview: removed") && len(left) > 0 {
		l.t.Errorf("%s says that the preview is removed, and %q are left: %s", path, left, body)
	}
}

// namespaceLife is that of a preview in a namespace of its own.
func namespaceLife(t *testing.T) killedLife {
	e := newPreviewEnv(t)
	namespaces, within := "/api/v1/namespaces", "/namespaces/"+e.preview
	return killedLife{
		previewEnv: e, versions: &sync.Map{},
		files: func(version string) map[string]string { return previewedApp("web", e.namespace, version, "0s") },
		works: func(version string) bool { return e.ready("web:"+version) == 2 },
		left: func() (names []string) {
			if e.exists() {
				names = []string{e.preview}
			}
			return names
		},
		opening: append(hostPoints(),
			killPoint{name: "the namespace", request: "POST " + namespaces},
			killPoint{name: "the quota of the namespace", request: "PATCH /api/v1" + within + "/resourcequotas/limits"},
			killPoint{name: "the Deployment", request: "PATCH /apis/apps/v1" + within + "/deployments/web"},
		),
		updating: []killPoint{{name: "the Deployment of the next commit", request: "PATCH /apis/apps/v1" + within + "/deployments/web"}},
		ending:   append(endPoints(), killPoint{name: "the deletion of the namespace", request: "DELETE " + namespaces + "/" + e.preview}),
	}
}

// routedLife is that of a preview next to its application. What it has in common with the other mode is
// not repeated.
func routedLife(t *testing.T) killedLife {
	e := newRoutedEnv(t)
	deployment, route := "/apis/apps/v1/namespaces/"+e.namespace+"/deployments/web-pr-7", "/apis/gateway.networking.k8s.io/v1/namespaces/"+e.namespace+"/httproutes/web-pr-7"
	return killedLife{
		previewEnv: e.previewEnv, versions: &sync.Map{},
		files: func(version string) map[string]string {
			return routedApp("web", e.namespace, version, version, "0s", "0s")
		},
		works: func(version string) bool {
			pods := e.readyPods(map[string]string{"app": "web-pr-7"})
			return len(pods) == 2 && pods[0].Spec.Containers[0].Image == "registry.example/web:"+version && len(e.routes()) == 3
		},
		left: func() (names []string) {
			for name := range e.objectsOf(true) {
				if !strings.HasPrefix(name, "pods ") && !strings.HasPrefix(name, "replicasets ") { // these are collected by the cluster
					names = append(names, name)
				}
			}
			return names
		},
		opening:  []killPoint{{name: "the Deployment", request: "PATCH " + deployment}, {name: "the route", request: "PATCH " + route}},
		updating: []killPoint{{name: "the Deployment of the next commit", request: "PATCH " + deployment}},
		ending: append(endPoints(),
			killPoint{name: "the deletion of the Deployment", request: "DELETE " + deployment},
			killPoint{name: "the deletion of the route", request: "DELETE " + route},
		),
	}
}

// hostPoints are what the Git host is asked to do for a new preview.
func hostPoints() []killPoint {
	return []killPoint{
		{name: "the comment", request: "POST .*/issues/7/comments"},
		{name: "the comment that says ready", request: "PATCH .*/issues/comments/.*", body: "### Preview: ready"},
		{name: "the successful status", request: "POST .*/statuses/.*", body: `"description":"ready`},
		{name: "the deployment", request: "POST .*/deployments", body: "preview/pr-7"},
		{name: "the environment", request: "POST .*/deployments/.*/statuses", body: "https://web-pr-7."},
	}
}

// endPoints are what the Git host is asked to do at the end of a preview.
func endPoints() []killPoint {
	return []killPoint{
		{name: "the comment that says removed", request: "PATCH .*/issues/comments/.*", body: "### Preview: removed"},
		{name: "the status that says removed", request: "POST .*/statuses/.*", body: `"description":"removed`},
		{name: "the end of the environment", request: "POST .*/deployments/.*/statuses", body: `"inactive"`},
	}
}

// start starts an agent with a killer between it and the cluster and the Git host, and deploys the
// application of the branch.
func (l killedLife) start() (*killer, *agenttest.Agent, *client) {
	l.t.Helper()
	k := newKiller()
	l.github.SetFault(k.host(l.check))
	agent := startProcess(l.t, agenttest.Options{Remote: l.settings.remote, Kubeconfig: k.api(l.t, l.settings.kubeconfig), More: l.settings.more})
	api := dial(l.t, agent.Address, filepath.Dir(agent.KeyFile))
	api.mustEnd(appID("web"), l.repo.Push(l.t, "begin", l.files("v1")), modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	return k, agent, api
}

// isGone reports whether nothing of the preview is left in the cluster or the API.
func (l killedLife) isGone(api *client) bool {
	return len(l.left()) == 0 && len(l.objectsOf(true)) == 0 && len(api.previewApplications()) == 0 && api.pullPreview() == nil
}

// TestPreviewKilledAtEachPoint kills the agent at each request with an outside effect in the life of a
// preview, before the effect and after it. At every moment what the comment and the statuses say is true as
// the cluster is, there is one comment, and in the end nothing is left and nothing of the branch was touched.
func TestPreviewKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	for mode, begin := range map[string]func(*testing.T) killedLife{"namespace": namespaceLife, "route": routedLife} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := begin(t)
			k, agent, api := l.start()
			before := l.objectsOf(false)
			isReady := func() bool {
				return strings.Contains(l.comment(), "### Preview: ready") && strings.Contains(l.comment(), "`"+l.head[:7]+"`") && l.lastState() == "success"
			}

			k.arm(l.opening...)
			l.propose("v2")
			k.until(t, agent, "the preview is ready", isReady)
			first := l.head

			k.arm(l.updating...)
			l.propose("v3")
			k.until(t, agent, "the next commit is ready", isReady)

			k.arm(l.ending...)
			l.set("closed", "preview")
			k.until(t, agent, "the preview is removed", func() bool { return strings.Contains(l.comment(), "### Preview: removed") })
			eventually(t, "nothing is left", func() bool { return l.isGone(api) })
			l.mustBeShared(before)
			l.mustHaveReported(first)
			mustBeForgotten(t, openStore(t, filepath.Dir(agent.KeyFile)))
		})
	}
}

// TestPreviewEndsWhileKilled kills the agent when it has just made something of a preview, and the pull
// request is closed before it starts again. Nothing is left.
func TestPreviewEndsWhileKilled(t *testing.T) {
	t.Parallel()
	for mode, begin := range map[string]func(*testing.T) killedLife{"namespace": namespaceLife, "route": routedLife} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			l := begin(t)
			k, agent, api := l.start()
			before := l.objectsOf(false)
			k.away = func() { l.set("closed", "preview") }
			for _, p := range l.opening {
				if p.body != "" { // of what is reported, the first is enough
					continue
				}
				p.kills = 1
				k.arm(p)
				l.propose("v2")
				k.until(t, agent, "nothing is left after "+p.name, func() bool {
					return l.isGone(api) && (l.comment() == "" || strings.Contains(l.comment(), "### Preview: removed"))
				})
			}
			l.mustBeShared(before)
			mustBeForgotten(t, openStore(t, filepath.Dir(agent.KeyFile)))
		})
	}
}

// mustHaveReported fails the test unless the host has one comment, and one deployment and the right states of
// both heads of pull request 7.
func (l killedLife) mustHaveReported(first string) {
	l.t.Helper()
	if n := len(l.github.Comments(7)); n != 1 {
		l.t.Errorf("there are %d comments", n)
	}
	for _, head := range []string{first, l.head} {
		states, says := stateOf(l.github, head, "piped/preview")
		if len(states) > 1 && states[0] == "pending" { // not seen if the agent was away until it was ready
			states = states[1:]
		}
		if !slices.Equal(states, []string{"success"}) || head == l.head && !strings.HasPrefix(says, "removed: ") {
			l.t.Errorf("the states of %s are %q, and the last says %q", head, states, says)
		}
	}
	var heads []string
	for _, d := range l.github.Deployments() {
		if d.Environment != "preview/pr-7" {
			continue
		}
		heads = append(heads, d.SHA)
		if last := d.Statuses[len(d.Statuses)-1]; last.State != "inactive" {
			l.t.Errorf("the deployment of %s is %s", d.SHA, last.State)
		}
	}
	if !slices.Equal(heads, []string{first, l.head}) {
		l.t.Errorf("the deployments are of %q, want %q and %q", heads, first, l.head)
	}
}
