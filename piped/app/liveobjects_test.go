package app

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// objectsApp returns the files of an application with a Deployment and a Secret, whose password
// is also in a ConfigMap and in the pods.
func objectsApp(t *testing.T, ns string, files map[string]string) map[string]string {
	t.Helper()
	files["web/app.pipecd.yaml"] = strings.ReplaceAll(files["web/app.pipecd.yaml"], "[web.yaml]", "[web.yaml, app.yaml]")
	files["web/app.yaml"] = `apiVersion: v1
kind: ConfigMap
metadata: {name: config}
data: {greeting: hello, url: "db://{{ .encryptedSecrets.password }}@db"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: app, image: "registry.example/web:v1", env: [{name: PASSWORD, value: "{{ .encryptedSecrets.password }}"}]}]
`
	return files
}

// TestLiveObjects deploys an application with a decrypted secret, and reads its objects, events
// and logs while somebody changes them. Nothing shows the secret.
func TestLiveObjects(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	cluster := clustertest.Shared(t)
	ns, kube := cluster.Namespace(t), cluster.Client(t)
	repo, own := newRepo(t), ageIdentity(t)
	agent := runAgent(t, settings{
		dataDir: t.TempDir(), remote: repo.Dir, kubeconfig: cluster.Kubeconfig(),
		more: fmt.Sprintf("  secretManagement: {type: AGE, config: {identityData: %s, recipient: %s}}\n", base64.StdEncoding.EncodeToString([]byte(own.String())), own.Recipient()),
	})
	web := appID("web")
	commit := repo.Push(t, "add web", objectsApp(t, ns, encryptedApp(t, ns, own, password)))
	agent.mustEnd(web, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	live := watchLive(agent, web)

	shown := "" // everything that was read
	read := func(kind, name string, more ...func(*controlv1.GetLiveObjectRequest)) *controlv1.GetLiveObjectResponse {
		t.Helper()
		req := &controlv1.GetLiveObjectRequest{ApplicationId: web, Object: &controlv1.ObjectSelector{Kind: kind, Name: name}}
		for _, f := range more {
			f(req)
		}
		var resp *controlv1.GetLiveObjectResponse
		err := whenNotBusy(func() (err error) {
			resp, err = agent.control.GetLiveObject(agent.ctx, req)
			return err
		})
		if err != nil {
			t.Fatalf("%s %s: %v", kind, name, err)
		}
		shown += resp.String()
		return resp
	}
	whole := func(r *controlv1.GetLiveObjectRequest) { r.Diff, r.ManagedFields = true, true }

	config := read("configmap", "config", whole)
	if config.GetGitCommit() != commit || !config.GetCompared() || config.GetDrift() != nil || config.GetNote() != "" {
		t.Errorf("the ConfigMap is compared as %v", config)
	}
	mustContain(t, config.GetLiveYaml(), "greeting: hello", "url: (secret)", "uid: ", "pipecd.dev/application: ")
	mustContain(t, config.GetGitYaml(), "greeting: hello", "url: (secret)", "namespace: "+ns)
	if strings.Contains(config.GetLiveYaml(), "managedFields") || strings.Contains(config.GetGitYaml(), "uid") {
		t.Errorf("live:\n%s\nin Git:\n%s", config.GetLiveYaml(), config.GetGitYaml())
	}
	mustContain(t, read("Secret", "web").GetLiveYaml(), "password: (secret)")

	pod := live.pod()
	detail := read("Pod", pod.GetName())
	mustContain(t, detail.GetLiveYaml(), "kind: Pod", "image: registry.example/web:v1", "value: (secret)", "nodeName: ")
	mustContain(t, detail.GetNote(), "it was created by Deployment "+ns+"/web")

	// A change by hand is in the diff, with who made it, and is sent to the watcher.
	patch := []byte(`{"data":{"greeting":"bye"}}`)
	if _, err := kube.CoreV1().ConfigMaps(ns).Patch(t.Context(), "config", types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	config = read("ConfigMap", "config", whole)
	fields := config.GetDrift().GetFields()
	if len(fields) != 1 || fields[0].GetPath() != "data.greeting" || fields[0].GetGitValue() != `"hello"` || fields[0].GetLiveValue() != `"bye"` || fields[0].GetManager() != "somebody" {
		t.Errorf("the drift is %v", config.GetDrift())
	}
	var managers []string
	for _, m := range config.GetManagers() {
		managers = append(managers, m.GetManager()+": "+strings.Join(m.GetFields(), " "))
	}
	mustContain(t, strings.Join(managers, "\n"), "somebody: data.greeting", "piped: ", "data.url")
	if err := kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "config", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	live.await("ConfigMap config", modelv1.Health_HEALTH_MISSING)
	gone := read("ConfigMap", "config", whole)
	if gone.GetLiveYaml() != "" || gone.GetDrift().GetKind() != modelv1.DriftKind_DRIFT_KIND_MISSING {
		t.Errorf("a deleted object: %v", gone)
	}
	if _, err := kube.AppsV1().Deployments(ns).Patch(t.Context(), "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{FieldManager: "somebody"}); err != nil {
		t.Fatal(err)
	}
	live.awaitReplicas("Deployment web", 3)

	agent.wantLog(web, pod, &shown)
	agent.wantEvents(web, ns, &shown)
	agent.wantNoObject(web, cluster.Namespace(t))
	if strings.Contains(shown, password) || strings.Contains(shown, base64.StdEncoding.EncodeToString([]byte(password))) {
		t.Errorf("the secret is shown:\n%s", shown)
	}
}

// wantLog follows the log of a pod to its end, and checks the refusals.
func (c *client) wantLog(app string, pod *modelv1.ObjectRef, shown *string) {
	c.t.Helper()
	follow := func(req *controlv1.FollowPodLogsRequest) (lines []string, end string, err error) {
		req.ApplicationId = app
		err = whenNotBusy(func() error {
			lines, end = nil, ""
			stream, err := c.control.FollowPodLogs(c.ctx, req)
			for err == nil {
				var m *controlv1.FollowPodLogsResponse
				if m, err = stream.Recv(); err == nil {
					*shown += m.String()
					for _, l := range m.GetLines() {
						lines = append(lines, l.GetText())
					}
					end += m.GetEndReason()
				}
			}
			return err
		})
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return lines, end, err
	}
	lines, end, err := follow(&controlv1.FollowPodLogsRequest{Pod: pod.GetName(), TailLines: 2, Follow: true})
	if err != nil || len(lines) < 2 || !strings.HasPrefix(lines[0], "app of pod "+pod.GetName()) || !strings.HasPrefix(end, "container app ") {
		c.t.Errorf("the log: %q, end %q, %v", lines, end, err)
	}
	if _, _, err := follow(&controlv1.FollowPodLogsRequest{Pod: "none"}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "it has web-") {
		c.t.Errorf("the log of an unknown pod: %v", err)
	}
	if _, _, err := follow(&controlv1.FollowPodLogsRequest{Pod: pod.GetName(), Container: "none"}); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "it has app") {
		c.t.Errorf("the log of an unknown container: %v", err)
	}
}

// wantEvents waits for the event that a Deployment was scaled, in both lists that contain it.
func (c *client) wantEvents(app, ns string, shown *string) {
	c.t.Helper()
	for _, object := range []*controlv1.ObjectSelector{nil, {Kind: "Deployment", Name: "web", Namespace: &ns}} {
		found := ""
		for end := time.Now().Add(patience); time.Now().Before(end) && !strings.Contains(found, "Deployment ScalingReplicaSet"); time.Sleep(pollInterval) {
			var resp *controlv1.ListObjectEventsResponse
			err := whenNotBusy(func() (err error) {
				resp, err = c.control.ListObjectEvents(c.ctx, &controlv1.ListObjectEventsRequest{ApplicationId: app, Object: object})
				return complete(err, resp.GetIncompleteReason())
			})
			if err != nil {
				c.t.Fatalf("events: %v", err)
			}
			*shown += resp.String()
			for _, e := range resp.GetEvents() {
				found += e.GetObject().GetKind() + " " + e.GetReason() + "\n"
			}
		}
		mustContain(c.t, found, "Deployment ScalingReplicaSet", "ReplicaSet SuccessfulCreate")
	}
}

// wantNoObject checks that an object of the same namespace that does not belong to the
// application, and one elsewhere, do not exist for it.
func (c *client) wantNoObject(app, elsewhere string) {
	c.t.Helper()
	for _, s := range []*controlv1.ObjectSelector{
		{Kind: "ConfigMap", Name: "kube-root-ca.crt"}, {Kind: "Namespace", Name: elsewhere}, {Kind: "ConfigMap", Name: "kube-root-ca.crt", Namespace: &elsewhere},
	} {
		err := whenNotBusy(func() error {
			_, err := c.control.GetLiveObject(c.ctx, &controlv1.GetLiveObjectRequest{ApplicationId: app, Object: s})
			return err
		})
		if status.Code(err) != codes.NotFound {
			c.t.Errorf("%v: %v", s, err)
		}
		err = whenNotBusy(func() error {
			_, err := c.control.ListObjectEvents(c.ctx, &controlv1.ListObjectEventsRequest{ApplicationId: app, Object: s})
			return err
		})
		if status.Code(err) != codes.NotFound {
			c.t.Errorf("events of %v: %v", s, err)
		}
	}
}

// liveWatcher is a call of WatchLiveState with the objects that it has sent.
type liveWatcher struct {
	t       *testing.T
	recv    func() (*controlv1.WatchLiveStateResponse, error)
	objects map[string]*modelv1.LiveObject // by kind and name
}

// watchLive watches the live state of an application, and returns once it has caught up.
func watchLive(c *client, app string) *liveWatcher {
	c.t.Helper()
	ctx, end := context.WithTimeout(c.ctx, patience)
	c.t.Cleanup(end)
	var w *liveWatcher
	err := whenNotBusy(func() error {
		stream, err := c.control.WatchLiveState(ctx, &controlv1.WatchLiveStateRequest{ApplicationId: app, Children: true})
		if err != nil {
			return err
		}
		w = &liveWatcher{c.t, stream.Recv, map[string]*modelv1.LiveObject{}}
		for caughtUp := false; !caughtUp && err == nil; {
			caughtUp, err = w.receive()
		}
		return err
	})
	if err != nil {
		c.t.Fatalf("watch the live state: %v", err)
	}
	return w
}

// next receives a message.
func (w *liveWatcher) next() {
	w.t.Helper()
	if _, err := w.receive(); err != nil {
		w.t.Fatalf("watch the live state: %v; objects: %v", err, w.objects)
	}
}

// receive receives a message, and reports whether the call has caught up with it.
func (w *liveWatcher) receive() (caughtUp bool, err error) {
	m, err := w.recv()
	if err != nil {
		return false, err
	}
	for _, o := range m.GetState().GetObjects() {
		w.objects[o.GetObject().GetKind()+" "+o.GetObject().GetName()] = o
	}
	return m.GetCaughtUp(), nil
}

// await waits until an object has a health.
func (w *liveWatcher) await(object string, health modelv1.Health) {
	w.t.Helper()
	for w.objects[object].GetHealth() != health {
		w.next()
	}
}

// awaitReplicas waits until an object has available replicas, and as many pods.
func (w *liveWatcher) awaitReplicas(object string, n int32) {
	w.t.Helper()
	for w.objects[object].GetAvailableReplicas() != n || len(w.objects[object].GetChildren()[0].GetChildren()) != int(n) {
		w.next()
	}
}

// pod returns a pod of the Deployment.
func (w *liveWatcher) pod() *modelv1.ObjectRef {
	w.t.Helper()
	for len(w.objects["Deployment web"].GetChildren()) == 0 || len(w.objects["Deployment web"].GetChildren()[0].GetChildren()) == 0 {
		w.next()
	}
	return w.objects["Deployment web"].GetChildren()[0].GetChildren()[0].GetObject()
}

// TestSelects: each field of a selector that is set restricts it.
func TestSelects(t *testing.T) {
	t.Parallel()
	ref := deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	for name, c := range map[string]struct {
		s    deploy.ObjectSelector
		want bool
	}{
		"kind and name":         {deploy.ObjectSelector{Kind: "deployment", Name: "web"}, true},
		"everything":            {deploy.ObjectSelector{Cluster: "dev", Group: new("apps"), Kind: "Deployment", Namespace: new("shop"), Name: "web"}, true},
		"another kind":          {deploy.ObjectSelector{Kind: "Service", Name: "web"}, false},
		"another name":          {deploy.ObjectSelector{Kind: "Deployment", Name: "Web"}, false},
		"the core group":        {deploy.ObjectSelector{Group: new(""), Kind: "Deployment", Name: "web"}, false},
		"a cluster-wide object": {deploy.ObjectSelector{Kind: "Deployment", Namespace: new(""), Name: "web"}, false},
		"another cluster":       {deploy.ObjectSelector{Cluster: "prod", Kind: "Deployment", Name: "web"}, false},
	} {
		if got := selects(c.s, "dev", ref); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestLiveChanges: a change is notified to the subscribers of its application, and one without
// an application to all, until they stop.
func TestLiveChanges(t *testing.T) {
	t.Parallel()
	var l liveChanges
	l.notify("web")
	got := ""
	stopWeb := l.subscribe("web", func() { got += "w" })
	stopOther := l.subscribe("web", func() { got += "w" })
	l.subscribe("api", func() { got += "a" })
	for _, step := range []struct {
		do   func()
		want string
	}{
		{func() { l.notify("web") }, "ww"},
		{func() { l.notify("api") }, "a"},
		{stopWeb, ""},
		{func() { l.notify("web") }, "w"},
		{stopOther, ""},
		{func() { l.notify("web") }, ""},
		{func() { l.notify("") }, "a"},
	} {
		got = ""
		if step.do(); got != step.want {
			t.Fatalf("notified %q, want %q", got, step.want)
		}
	}
	if len(l.subscribers) != 1 {
		t.Errorf("subscribers are left: %v", l.subscribers)
	}
}
