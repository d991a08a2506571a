package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// Limits of CrashLog and PodsOf.
const (
	crashLines = 20
	crashBytes = 64 << 10
	crashPods  = 500 // pods read of one Job
)

// CrashLog returns the last lines of the log of a container that crashed, at most 20 lines
// and 64 KiB. They are not redacted: they may contain secrets. A line that the limit cuts is
// omitted. The error is of kind Invalid without the permission to read logs.
func (c *Cluster) CrashLog(ctx context.Context, crash rollout.Crash) ([]string, error) {
	lines, limit := int64(crashLines), int64(crashBytes)
	stream, err := c.typed.CoreV1().Pods(crash.Namespace).GetLogs(crash.Pod, &corev1.PodLogOptions{
		Container: crash.Container, Previous: crash.Previous, TailLines: &lines, LimitBytes: &limit,
	}).Stream(ctx)
	if err != nil {
		return nil, c.explainLog(crash, err)
	}
	defer stream.Close()
	text, err := io.ReadAll(io.LimitReader(stream, limit))
	if err != nil {
		return nil, c.explainLog(crash, err)
	}
	if int64(len(text)) == limit {
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	if len(text) == 0 {
		return nil, nil
	}
	read := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	return read[max(0, len(read)-crashLines):], nil
}

func (c *Cluster) explainLog(crash rollout.Crash, err error) error {
	what := fmt.Sprintf("read the log of pod %s/%s, container %s", crash.Namespace, crash.Pod, crash.Container)
	if apierrors.IsForbidden(err) {
		return deploy.Errorf(deploy.Invalid, "%s: %w (it needs get on pods/log)%s", what, err, c.Remedy(err))
	}
	return c.Classify(fmt.Errorf("%s: %w", what, err))
}

// PodsOf returns the pods of a Job, at most 500, or the Pod itself. It returns none for
// objects of other kinds, and none if the object does not exist.
func (c *Cluster) PodsOf(ctx context.Context, ref deploy.ObjectRef) ([]corev1.Pod, error) {
	options := metav1.ListOptions{Limit: crashPods}
	switch kind := (schema.GroupKind{Group: ref.Group, Kind: ref.Kind}); {
	case IsJob(kind):
		options.LabelSelector = batchv1.JobNameLabel + "=" + ref.Name
	case kind == schema.GroupKind{Kind: "Pod"}:
		options.FieldSelector = "metadata.name=" + ref.Name
	default:
		return nil, nil
	}
	list, err := c.typed.CoreV1().Pods(ref.Namespace).List(ctx, options)
	if err != nil {
		return nil, c.Classify(fmt.Errorf("list the pods of %s: %w", ref, err))
	}
	return list.Items, nil
}

// IsJob reports whether kind is batch Job, in any version.
func IsJob(kind schema.GroupKind) bool { return kind.Group == "batch" && kind.Kind == "Job" }
