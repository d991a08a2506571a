package pipectl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// shownPods is the number of pods whose logs are shown unless the user names pods.
const shownPods = 5

func newApplicationLogs(t *tool) *cobra.Command {
	l := &podLogs{req: &controlv1.FollowPodLogsRequest{}}
	var since string
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Show the logs of an application's pods.",
		Long: fmt.Sprintf(`Show the logs of an application's pods: of the %d newest, unless --pod names others.
If they are several, each line begins with the name of its pod. With --follow, show
lines as they are written until the containers end, also over broken connections.`, shownPods),
		Example: `  pipectl application logs web --follow
  pipectl application logs web --pod=web-6c9f --previous --tail=50`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if since != "" {
				at, err := parseTime("since", since, t.now())
				if err != nil {
					return err
				}
				l.req.SinceMs = at.UnixMilli()
			}
			var c *client
			if l.p, l.log, c, err = t.live(cmd); err != nil {
				return err
			}
			defer c.close()
			l.client = c
			return l.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&l.pods, "pod", nil, "The names of pods. Empty means the newest.")
	flags.StringVar(&l.req.Namespace, "namespace", "", "The namespace of the pods. Empty means any.")
	flags.StringVar(&l.req.Container, "container", "", "The container. Empty means the only one or the default one of a pod.")
	flags.BoolVar(&l.req.Previous, "previous", false, "Show the log of the previous instance of the container.")
	flags.StringVar(&since, "since", "", "Only lines since then: how long ago, such as 10m, or a time, such as 2026-01-31T12:00:00Z.")
	flags.Int32Var(&l.req.TailLines, "tail", 0, "Only the last lines. 0 means 1000, or all with --since.")
	flags.BoolVarP(&l.req.Follow, "follow", "f", false, "Show lines as they are written, until the containers end.")
	flags.BoolVar(&l.timestamps, "timestamps", false, "Show when each line was written.")
	cmd.MarkFlagsMutuallyExclusive("previous", "follow")
	return aboutApplication(t, cmd, &l.req.ApplicationId)
}

// podLogs shows the logs of pods.
type podLogs struct {
	req        *controlv1.FollowPodLogsRequest // without pod
	pods       []string
	timestamps bool

	p      *printer
	log    *logger
	client *client
	mu     sync.Mutex // guards p, which the logs of several pods share
}

func (l *podLogs) run(ctx context.Context) error {
	refs, err := l.chosen(ctx)
	if err != nil {
		return err
	}
	if !l.req.GetFollow() {
		for _, ref := range refs {
			err = errors.Join(err, l.one(ctx, ref, len(refs) > 1))
		}
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for _, ref := range refs {
		g.Go(func() error { return l.one(ctx, ref, len(refs) > 1) })
	}
	return g.Wait()
}

// chosen returns the pods that the user names, or the newest of the application, oldest first.
func (l *podLogs) chosen(ctx context.Context) (refs []*modelv1.ObjectRef, err error) {
	for _, name := range l.pods {
		refs = append(refs, &modelv1.ObjectRef{Name: name, Namespace: l.req.GetNamespace()})
	}
	if len(refs) > 0 {
		return refs, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := l.client.control.GetLiveState(ctx, &controlv1.GetLiveStateRequest{ApplicationId: l.req.GetApplicationId(), Children: true})
	if err != nil {
		return nil, unknownApplication(failed("failed to find the pods", err))
	}
	pods := podsOf(resp.GetLiveState().GetObjects())
	if ns := l.req.GetNamespace(); ns != "" {
		pods = slices.DeleteFunc(pods, func(o *modelv1.LiveObject) bool { return o.GetObject().GetNamespace() != ns })
	}
	if len(pods) == 0 {
		return nil, hint(errors.New("the application has no pods"), "'pipectl application tree' shows its objects and why they have none")
	}
	slices.SortStableFunc(pods, func(a, b *modelv1.LiveObject) int { return int(b.GetCreatedAtMs() - a.GetCreatedAtMs()) })
	if n := len(pods) - shownPods; n > 0 {
		l.log.infof("Showing the logs of the %d newest of %d pods; --pod selects others.", shownPods, len(pods))
		pods = pods[:shownPods]
	}
	for _, o := range slices.Backward(pods) {
		refs = append(refs, o.GetObject())
	}
	return refs, nil
}

// podsOf returns the pods among objects and what they created.
func podsOf(objects []*modelv1.LiveObject) (pods []*modelv1.LiveObject) {
	for _, o := range objects {
		if o.GetObject().GetKind() == "Pod" && o.GetObject().GetGroup() == "" {
			pods = append(pods, o)
		}
		pods = append(pods, podsOf(o.GetChildren())...)
	}
	return pods
}

// one shows the log of one pod. After a broken connection it resumes after the last line.
func (l *podLogs) one(ctx context.Context, pod *modelv1.ObjectRef, several bool) error {
	req := &controlv1.FollowPodLogsRequest{
		ApplicationId: l.req.GetApplicationId(), Pod: pod.GetName(), Namespace: pod.GetNamespace(), Cluster: pod.GetCluster(), Container: l.req.GetContainer(),
		Previous: l.req.GetPrevious(), SinceMs: l.req.GetSinceMs(), TailLines: l.req.GetTailLines(), Follow: l.req.GetFollow(),
	}
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.FollowPodLogsResponse], error) {
		return l.client.control.FollowPodLogs(ctx, req)
	}
	var container string
	err := follow(ctx, following{what: "the log of pod " + pod.GetName(), say: l.log.infof, tick: func() {}, ends: true}, open, func(m *controlv1.FollowPodLogsResponse) error {
		if m.GetPod() != nil {
			pod, container = m.GetPod(), m.GetContainer()
		}
		if m.GetCursor() != "" {
			req.After, req.TailLines, req.SinceMs = m.GetCursor(), 0, 0
		}
		m.Pod, m.Container = pod, container // in each message, also for programs
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.show(m, several)
	})
	return unknownObject(err)
}

// show prints new lines of a log.
func (l *podLogs) show(m *controlv1.FollowPodLogsResponse, several bool) error {
	err := l.p.print(m, func(p *printer) error {
		for _, line := range m.GetLines() {
			if err := p.linef("%s", l.text(m, line, several)); err != nil {
				return err
			}
		}
		return nil
	})
	if reason := m.GetEndReason(); reason != "" {
		l.log.infof("%s: the log ends: %s", m.GetPod().GetName(), clean(reason))
	}
	return err
}

// text returns a line with what precedes it.
func (l *podLogs) text(m *controlv1.FollowPodLogsResponse, line *controlv1.PodLogLine, several bool) string {
	head := ""
	if several {
		head = l.p.paint(cyan, clean(m.GetPod().GetName())) + "  "
	}
	if l.timestamps && line.GetAtMs() != 0 {
		head += l.p.paint(faint, time.UnixMilli(line.GetAtMs()).UTC().Format("2006-01-02T15:04:05.000Z")) + "  "
	}
	text := head + cleanLines(line.GetText())
	if line.GetTruncated() {
		text += l.p.paint(faint, " (truncated)")
	}
	return text
}
