package live

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/apply/applytest"
	"github.com/c785c783/piped/piped/deploy"
)

const crashingApp = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: bad}
spec:
  selector: {matchLabels: {app: bad}}
  template: {metadata: {labels: {app: bad}}, spec: {containers: [{name: app, image: "example.com/bad:crash"}, {name: log, image: "example.com/log:v1"}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {a: b}}
`

// awaitPod returns the pod of a Deployment once ok returns true.
func (l *env) awaitPod(t *testing.T, ok func(*corev1.Pod) bool) corev1.Pod {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		pods, err := l.Typed().CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(pods.Items) == 1 && ok(&pods.Items[0]) {
			return pods.Items[0]
		}
	}
	t.Fatal("there is no such pod")
	return corev1.Pod{}
}

// crashed reports whether a container of a pod has crashed and was restarted.
func crashed(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == "app" && c.LastTerminationState.Terminated != nil {
			return true
		}
	}
	return false
}

// TestObjectsOfACluster reads the content, the events and the logs of a workload that crashes.
func TestObjectsOfACluster(t *testing.T) {
	t.Parallel()
	l := newEnv(t)
	l.apply(t, crashingApp)
	pod := l.awaitPod(t, crashed)
	ref := deploy.ObjectRef{Version: "v1", Kind: "Pod", Namespace: l.ns, Name: pod.Name}
	t.Run("content", func(t *testing.T) { l.testReadObject(t, ref, string(pod.UID)) })
	t.Run("events", func(t *testing.T) { l.testEvents(t, ref) })
	t.Run("logs", func(t *testing.T) { l.testLogs(t, ref) })
}

func (l *env) testReadObject(t *testing.T, pod deploy.ObjectRef, uid string) {
	l.requests.Take()
	found, err := ReadObject(t.Context(), l.Cluster, pod, uid, true)
	if err != nil || found.GetName() != pod.Name || found.GetKind() != "Pod" || found.GetAPIVersion() != "v1" {
		t.Errorf("the pod: %v, %v", found, err)
	}
	for _, r := range l.requests.Take() { // the agent has no right to get pods
		if strings.HasSuffix(r, "/"+pod.Name) {
			t.Errorf("sent %s", r)
		}
	}
	if found, err := ReadObject(t.Context(), l.Cluster, pod, "another", true); err != nil || found != nil {
		t.Errorf("a pod with another UID: %v, %v", found, err)
	}
	config := deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: l.ns, Name: "config"}
	if found, err := ReadObject(t.Context(), l.Cluster, config, "", false); err != nil || found.Object["data"] == nil {
		t.Errorf("the ConfigMap: %v, %v", found, err)
	}
	config.Name = "none"
	if found, err := ReadObject(t.Context(), l.Cluster, config, "", false); err != nil || found != nil {
		t.Errorf("a ConfigMap that does not exist: %v, %v", found, err)
	}
}

func (l *env) testEvents(t *testing.T, pod deploy.ObjectRef) {
	var events []deploy.ObjectEvent
	var last string
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var problems []string
		var err error
		events, problems, err = Events(t.Context(), l.Cluster, []deploy.ObjectRef{pod, {Group: "apps", Version: "v1", Kind: "Deployment", Namespace: l.ns, Name: "bad"}})
		if err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		last = ""
		for _, e := range events {
			last += fmt.Sprintf("%s %s %s %s\n", e.Object.Kind, e.Type, e.Reason, e.Source)
		}
		if strings.Contains(last, "Pod Warning BackOff kubelet") && strings.Contains(last, "Deployment Normal ScalingReplicaSet deployment-controller") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("events:\n%s", last)
		}
	}
	for i, e := range events {
		if e.Object.Kind == "ReplicaSet" || e.Cluster != "test" || e.Count < 1 || e.FirstAt.IsZero() || e.LastAt.Before(e.FirstAt) {
			t.Errorf("event %+v", e)
		}
		if i > 0 && e.LastAt.After(events[i-1].LastAt) {
			t.Errorf("event %d is later than the one before", i)
		}
	}

	view, err := l.As("system:serviceaccount:" + l.ns + ":nobody")
	if err != nil {
		t.Fatal(err)
	}
	events, problems, err := Events(t.Context(), view, []deploy.ObjectRef{pod})
	if err != nil || len(events) > 0 || len(problems) != 1 || !strings.Contains(problems[0], "list the events in namespace "+l.ns) {
		t.Errorf("without the right: %v, %q, %v", events, problems, err)
	}
	if _, _, err := Events(t.Context(), applytest.Unreachable(t), []deploy.ObjectRef{pod}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("of an unreachable cluster: %v", err)
	}
}

func (l *env) testLogs(t *testing.T, pod deploy.ObjectRef) {
	read := func(q deploy.PodLogQuery) (lines []string, log *Log) {
		t.Helper()
		log, err := OpenLog(t.Context(), l.Cluster, pod, q)
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		for {
			next, err := log.Next()
			for _, line := range next {
				if line.At.IsZero() {
					t.Errorf("the line %q has no time", line.Text)
				}
				lines = append(lines, line.Text)
			}
			if errors.Is(err, io.EOF) {
				return lines, log
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	text := func(n, of int, instance string) string {
		return fmt.Sprintf("app of pod %s, %s: line %d of %d", pod.Name, instance, n, of)
	}
	if lines, _ := read(deploy.PodLogQuery{Container: "app", Tail: 2}); len(lines) != 2 || lines[1] != text(30, 30, "this instance") {
		t.Errorf("the last lines: %q", lines)
	}
	if lines, _ := read(deploy.PodLogQuery{Container: "app", Previous: true}); len(lines) != 30 || lines[0] != text(1, 30, "the instance before") {
		t.Errorf("the previous instance: %q", lines)
	}
	if lines, _ := read(deploy.PodLogQuery{Container: "app", Since: time.Now().Add(time.Hour)}); len(lines) != 0 {
		t.Errorf("lines of the future: %q", lines)
	}
	lines, log := read(deploy.PodLogQuery{Container: "app", Tail: 1, Follow: true})
	if len(lines) < 2 || lines[0] != text(30, 30, "this instance") {
		t.Errorf("a log that is followed: %q", lines)
	}
	if end := log.End(t.Context()); !strings.HasPrefix(end, "container app ") {
		t.Errorf("it ends because %q", end)
	}

	none := pod
	none.Name = "none"
	for name, c := range map[string]struct {
		pod  deploy.ObjectRef
		q    deploy.PodLogQuery
		kind deploy.Kind
		text string
	}{
		"several containers":   {pod, deploy.PodLogQuery{}, deploy.Invalid, "has several containers: name one of app, log"},
		"an unknown container": {pod, deploy.PodLogQuery{Container: "web"}, deploy.Invalid, "has no container web: it has app, log"},
		"an unknown pod":       {none, deploy.PodLogQuery{}, deploy.NotFound, "there is no Pod"},
	} {
		_, err := OpenLog(t.Context(), l.Cluster, c.pod, c.q)
		if !deploy.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want kind %s with %q", name, err, c.kind, c.text)
		}
	}
}

// TestContainerOf: without a name, it is the only container, or the default of kubectl.
func TestContainerOf(t *testing.T) {
	pod := func(annotation string, names ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		if annotation != "" {
			p.Annotations = map[string]string{defaultContainer: annotation}
		}
		for _, n := range names {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: n})
		}
		p.Spec.InitContainers = []corev1.Container{{Name: "init"}}
		return p
	}
	for _, c := range []struct {
		pod        *corev1.Pod
		name, want string
	}{
		{pod("", "app"), "", "app"},
		{pod("log", "app", "log"), "", "log"},
		{pod("log", "app", "log"), "app", "app"},
		{pod("", "app"), "init", "init"},
		{pod("", "app", "log"), "", ""},
		{pod("gone", "app"), "", ""},
	} {
		got, err := containerOf(c.pod, c.name)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q of %v: %q, %v, want %q", c.name, c.pod.Annotations, got, err, c.want)
		}
	}
}

// TestLogThatIsNotThere: kubelets answer a bad request for a container without a log, or without a
// previous instance; the error adds the state of the container.
func TestLogThatIsNotThere(t *testing.T) {
	running, waiting := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}
	for want, status := range map[string]corev1.ContainerStatus{
		"container app runs":                                             {Name: "app", State: running},
		"container app waits: ImagePullBackOff":                          {Name: "app", State: waiting},
		"container app ended with exit code 3 (Error)":                   {Name: "app", State: ended},
		"container app ended with exit code 3 (Error) and was restarted": {Name: "app", State: running, LastTerminationState: ended},
		"container app has not started":                                  {Name: "other", State: running},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{status}}}
		err := (&Log{pod: pod, Container: "app"}).explain(apierrors.NewBadRequest("there is none"))
		if !deploy.IsKind(err, deploy.Illegal) || err.Error() != "read the log of pod shop/web, container app: there is none; "+want {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestLogLines: long lines are cut, an incomplete last line counts, and lines that a query does
// not select are dropped.
func TestLogLines(t *testing.T) {
	at := func(n int) string { return fmt.Sprintf("2026-01-02T03:04:05.%09dZ", n) }
	long := strings.Repeat("x", 3*readLogLine)
	stream := at(1) + " one\n" + at(2) + " two\r\n" + at(3) + " \n" + at(4) + " " + long + "\n" + "no time\n" + at(5) + " end"
	after, err := time.Parse(time.RFC3339Nano, at(1))
	if err != nil {
		t.Fatal(err)
	}
	l := &Log{query: deploy.PodLogQuery{After: after}, reader: bufio.NewReaderSize(strings.NewReader(stream), readLogLine)}
	var got []string
	for {
		lines, err := l.Next()
		for _, line := range lines {
			if line.Truncated {
				line.Text = fmt.Sprint(len(line.Text) >= MaxLogLine && strings.HasPrefix(long, line.Text))
			}
			got = append(got, fmt.Sprint(line.At.Nanosecond(), " ", line.Text, " ", line.Truncated))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"2 two false", "3  false", "4 true true", "0 no time false", "5 end false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestObjectEvent: components record events by the former and the present API.
func TestObjectEvent(t *testing.T) {
	first, last := time.Unix(100, 0), time.Unix(200, 0)
	about := corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u"}
	for name, c := range map[string]struct {
		event  corev1.Event
		count  int32
		source string
		last   time.Time
	}{
		"former": {corev1.Event{
			InvolvedObject: about, Count: 7, Source: corev1.EventSource{Component: "kubelet"}, FirstTimestamp: metav1.Time{Time: first}, LastTimestamp: metav1.Time{Time: last},
		}, 7, "kubelet", last},
		"series": {corev1.Event{
			InvolvedObject: about, ReportingController: "scheduler", EventTime: metav1.MicroTime{Time: first},
			Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.MicroTime{Time: last}},
		}, 3, "scheduler", last},
		"once": {corev1.Event{InvolvedObject: about, ReportingController: "scheduler", EventTime: metav1.MicroTime{Time: first}}, 1, "scheduler", first},
	} {
		got := objectEvent(&c.event)
		if got.Object != (deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}) || got.UID != "u" ||
			got.Count != c.count || got.Source != c.source || !got.FirstAt.Equal(first) || !got.LastAt.Equal(c.last) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
