package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// MaxLogLine is the number of bytes of a line that are shown. A Log returns more, so that a
// secret across that limit is found.
const MaxLogLine = 16 << 10

// Limits of a Log.
const (
	readLogLine = MaxLogLine + 4<<10
	maxLogLines = 64 << 10 // bytes of the lines that Next returns at once
)

// defaultContainer is the annotation of a pod with the container whose log kubectl shows.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// Log is the open log of a container. Close it.
type Log struct {
	Container string

	cluster *cluster.Cluster
	pod     *corev1.Pod
	query   deploy.PodLogQuery
	stream  io.Closer
	reader  *bufio.Reader
}

// OpenLog opens the log of a container of a pod. The log ends when ctx ends. The error is of
// kind NotFound if there is no such pod, Invalid if it has no such container or several and
// none is named, or if the agent may not read it, and Illegal if the container has no such log.
func OpenLog(ctx context.Context, c *cluster.Cluster, pod deploy.ObjectRef, q deploy.PodLogQuery) (*Log, error) {
	l := &Log{cluster: c, query: q}
	var err error
	if l.pod, err = readPod(ctx, c, pod); err != nil {
		return nil, err
	}
	if l.Container, err = containerOf(l.pod, q.Container); err != nil {
		return nil, err
	}
	stream, err := c.Typed().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, l.options()).Stream(ctx)
	if err != nil {
		return nil, l.explain(err)
	}
	l.stream, l.reader = stream, bufio.NewReaderSize(stream, readLogLine)
	return l, nil
}

// options returns the options of the request. Kubernetes has whole seconds only, so it returns
// lines that Next drops.
func (l *Log) options() *corev1.PodLogOptions {
	o := &corev1.PodLogOptions{Container: l.Container, Follow: l.query.Follow, Previous: l.query.Previous, Timestamps: true}
	since := l.query.Since
	if l.query.After.After(since) {
		since = l.query.After
	}
	if !since.IsZero() {
		o.SinceTime = &metav1.Time{Time: since.Truncate(time.Second)}
	}
	if l.query.Tail > 0 {
		o.TailLines = &l.query.Tail
	}
	return o
}

// readPod reads a pod by a list, because the agent needs no right to get pods.
func readPod(ctx context.Context, c *cluster.Cluster, ref deploy.ObjectRef) (pod *corev1.Pod, err error) {
	var list *corev1.PodList
	err = withTimeout(ctx, func(ctx context.Context) (err error) {
		list, err = c.Typed().CoreV1().Pods(ref.Namespace).List(ctx, metav1.ListOptions{FieldSelector: byObjectName(ref.Name)})
		return err
	})
	switch {
	case err != nil:
		return nil, c.Classify(fmt.Errorf("read %s: %w", ref, err))
	case len(list.Items) == 0:
		return nil, deploy.Errorf(deploy.NotFound, "there is no %s any more", ref)
	}
	return &list.Items[0], nil
}

// containerOf returns the container of a pod with a name; for "" the only one, or the default
// of kubectl.
func containerOf(pod *corev1.Pod, name string) (string, error) {
	var all []string
	for _, c := range pod.Spec.InitContainers {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.Containers {
		all = append(all, c.Name)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all = append(all, c.Name)
	}
	wanted := name
	if wanted == "" {
		wanted = pod.Annotations[defaultContainer]
	}
	if wanted == "" && len(pod.Spec.Containers) == 1 {
		return pod.Spec.Containers[0].Name, nil
	}
	for _, have := range all {
		if have == wanted {
			return have, nil
		}
	}
	if wanted == "" {
		return "", deploy.Errorf(deploy.Invalid, "pod %s has several containers: name one of %s", pod.Name, strings.Join(all, ", "))
	}
	return "", deploy.Errorf(deploy.Invalid, "pod %s has no container %s: it has %s", pod.Name, wanted, strings.Join(all, ", "))
}

// explain adds to an error what was read and what to do. A container that has not started, or
// has no previous instance, is answered by the API server as a bad request.
func (l *Log) explain(err error) error {
	what := fmt.Sprintf("read the log of pod %s/%s, container %s", l.pod.Namespace, l.pod.Name, l.Container)
	switch {
	case apierrors.IsForbidden(err):
		return deploy.Errorf(deploy.Invalid, "%s: %w (it needs get on pods/log)%s", what, err, l.cluster.Remedy(err))
	case apierrors.IsNotFound(err):
		return deploy.Errorf(deploy.NotFound, "%s: %w", what, err)
	case apierrors.IsBadRequest(err):
		return deploy.Errorf(deploy.Illegal, "%s: %w; %s", what, err, stateOf(l.pod, l.Container))
	}
	return l.cluster.Classify(fmt.Errorf("%s: %w", what, err))
}

// Next returns the next lines. It waits for the first one, and returns those that have arrived
// together. It returns io.EOF at the end of the log.
func (l *Log) Next() (lines []deploy.PodLogLine, err error) {
	size := 0
	for {
		line, read, err := l.line()
		if err != nil {
			if len(lines) > 0 && errors.Is(err, io.EOF) {
				return lines, nil
			}
			return lines, l.ended(err)
		}
		if size += read; l.wanted(line) {
			lines = append(lines, line)
		}
		if len(lines) > 0 && (l.reader.Buffered() == 0 || size >= maxLogLines) {
			return lines, nil
		}
	}
}

// wanted reports whether a line belongs to the query.
func (l *Log) wanted(line deploy.PodLogLine) bool {
	return line.At.IsZero() || !line.At.Before(l.query.Since) && (l.query.After.IsZero() || line.At.After(l.query.After))
}

// ended returns io.EOF, or the explained error that ended the log.
func (l *Log) ended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return l.explain(err)
}

// line reads one line, and returns its number of bytes in the stream.
func (l *Log) line() (line deploy.PodLogLine, read int, err error) {
	raw, err := l.reader.ReadSlice('\n')
	read = len(raw)
	text := string(raw)
	for errors.Is(err, bufio.ErrBufferFull) { // skip the rest
		line.Truncated = true
		raw, err = l.reader.ReadSlice('\n')
		read += len(raw)
	}
	if err != nil && (read == 0 || !errors.Is(err, io.EOF)) {
		return line, read, err
	}
	line.Text = strings.TrimRight(text, "\r\n")
	stamp, rest, ok := strings.Cut(line.Text, " ")
	if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
		line.At, line.Text = at, ""
		if ok {
			line.Text = rest
		}
	}
	return line, read, nil
}

// End returns why a log that was followed has ended, for users.
func (l *Log) End(ctx context.Context) string {
	ref := deploy.ObjectRef{Version: "v1", Kind: "Pod", Namespace: l.pod.Namespace, Name: l.pod.Name}
	pod, err := readPod(ctx, l.cluster, ref)
	switch {
	case deploy.IsKind(err, deploy.NotFound), err == nil && pod.UID != l.pod.UID:
		return fmt.Sprintf("pod %s was deleted", l.pod.Name)
	case err != nil:
		return fmt.Sprintf("the log ended, and why is unknown: %v", err)
	case pod.DeletionTimestamp != nil:
		return fmt.Sprintf("pod %s is being deleted", pod.Name)
	}
	return stateOf(pod, l.Container)
}

// Close ends the log.
func (l *Log) Close() error { return l.stream.Close() }

// stateOf describes the state of a container.
func stateOf(pod *corev1.Pod, container string) string {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for _, s := range list {
			if s.Name == container {
				return fmt.Sprintf("container %s %s", container, describeState(s))
			}
		}
	}
	return fmt.Sprintf("container %s has not started", container)
}

func describeState(s corev1.ContainerStatus) string {
	ended := s.State.Terminated
	switch {
	case s.State.Running != nil && s.LastTerminationState.Terminated != nil:
		ended = s.LastTerminationState.Terminated
		return fmt.Sprintf("ended with exit code %d (%s) and was restarted", ended.ExitCode, ended.Reason)
	case s.State.Running != nil:
		return "runs"
	case ended != nil:
		return fmt.Sprintf("ended with exit code %d (%s)", ended.ExitCode, ended.Reason)
	case s.State.Waiting != nil && s.State.Waiting.Reason != "":
		return "waits: " + s.State.Waiting.Reason
	}
	return "has not started"
}
