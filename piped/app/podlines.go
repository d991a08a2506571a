package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
)

// podLines reads the last lines that the pods of an application have written. It implements
// control.PodLines, and shows in comments why a preview does not work any more.
type podLines struct {
	live control.Live
	logs control.Objects
}

// Limits of podLines.
const (
	maxPodsRead   = 5
	podLinesLimit = 15 * time.Second
)

// LastPodLines implements control.PodLines. It reads the pods that are not healthy first, then the
// newest. Of a container that was restarted, it reads the instance that ended.
func (p podLines) LastPodLines(ctx context.Context, app deploy.Application, lines int) (out []deploy.PodLines, err error) {
	ctx, stop := context.WithTimeout(ctx, podLinesLimit)
	defer stop()
	state, err := p.live.LiveState(ctx, app, deploy.AllChildren)
	if err != nil {
		return nil, err
	}
	var pods []deploy.LiveObject
	for o := range descendants(state.Objects) {
		if o.Object.Kind == "Pod" && o.Object.Group == "" && !o.Deleting {
			pods = append(pods, o)
		}
	}
	slices.SortStableFunc(pods, func(a, b deploy.LiveObject) int {
		switch {
		case a.Health.WorseThan(b.Health):
			return -1
		case b.Health.WorseThan(a.Health):
			return 1
		}
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Object.Name, b.Object.Name))
	})
	for _, pod := range pods[:min(len(pods), maxPodsRead)] {
		out = append(out, p.of(ctx, app, pod, lines))
	}
	return out, nil
}

// of reads the log of a pod. An instance that ended says why it did, so it comes first if the pod
// is not healthy.
func (p podLines) of(ctx context.Context, app deploy.Application, pod deploy.LiveObject, lines int) deploy.PodLines {
	if pod.Health != deploy.Healthy {
		if out := p.read(ctx, app, pod, lines, true); out.Error == "" && len(out.Lines) > 0 {
			return out
		}
	}
	return p.read(ctx, app, pod, lines, false)
}

func (p podLines) read(ctx context.Context, app deploy.Application, pod deploy.LiveObject, lines int, previous bool) deploy.PodLines {
	group, namespace := "", pod.Object.Namespace
	out := deploy.PodLines{Pod: pod.Object.Name, Previous: previous}
	q := deploy.PodLogQuery{
		Pod:      deploy.ObjectSelector{Cluster: pod.Cluster, Group: &group, Kind: "Pod", Namespace: &namespace, Name: pod.Object.Name},
		Previous: previous, Tail: int64(lines),
	}
	err := p.logs.PodLog(ctx, app, q, func(part deploy.PodLog) error {
		if part.Container != "" {
			out.Container = part.Container
		}
		for _, l := range part.Lines {
			out.Lines = append(out.Lines, l.Text)
		}
		return nil
	})
	if err != nil {
		out.Error = err.Error()
	}
	return out
}

// crashLines returns the lines for a comment, under the name of their container. It fails if no log
// can be read.
func (p podLines) crashLines(ctx context.Context, app deploy.Application, lines int) ([]string, error) {
	found, err := p.LastPodLines(ctx, app, lines)
	for _, l := range found {
		if len(l.Lines) > 0 { // the first is the one that is worst
			return append([]string{fmt.Sprintf("pod %s, container %s:", l.Pod, l.Container)}, l.Lines...), err
		}
	}
	var failed []error
	for _, l := range found {
		if l.Error != "" {
			failed = append(failed, fmt.Errorf("pod %s: %s", l.Pod, strings.TrimSpace(l.Error)))
		}
	}
	return nil, errors.Join(append(failed, err)...)
}
