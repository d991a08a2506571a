package pipectl

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

func newDeploymentWatch(t *tool) *cobra.Command {
	req := &controlv1.WatchDeploymentsRequest{}
	var labels []string
	cmd := &cobra.Command{
		Use:   "watch",
		Short: "Show deployments while they run.",
		Long: `Show deployments while they run: one with its stages until it ends, several
until all have ended, others until Ctrl-C.`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if req.Labels, err = labelsFromPairs(labels); err != nil {
				return err
			}
			p, log, c, err := t.live(cmd)
			if err != nil {
				return err
			}
			defer c.close()
			w := &watcher{p: p, client: c, req: req, log: log, now: t.now, states: map[string]*modelv1.Deployment{}}
			return w.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&req.DeploymentIds, "deployment-id", nil, "The deployment IDs. Empty means all.")
	flags.StringSliceVar(&req.ApplicationIds, "app-id", nil, "The application IDs. Empty means all.")
	flags.StringSliceVar(&labels, "label", nil, "A label that must match, as KEY:VALUE. Can be given several times.")
	flags.Int32Var(&req.CompletedLimit, "completed-limit", 0, "The number of completed deployments to begin with.")
	return required(cmd)
}

// watcher shows the deployments selected by its request.
type watcher struct {
	p      *printer
	client *client
	req    *controlv1.WatchDeploymentsRequest
	log    *logger
	now    func() time.Time
	states map[string]*modelv1.Deployment // last shown states
}

func (w *watcher) run(ctx context.Context) error {
	if len(w.req.GetDeploymentIds()) == 1 && w.p.format == formatTable {
		return w.one(ctx, w.req.GetDeploymentIds()[0])
	}
	open := func(ctx context.Context) (grpc.ServerStreamingClient[controlv1.WatchDeploymentsResponse], error) {
		return w.client.control.WatchDeployments(ctx, w.req)
	}
	err := follow(ctx, following{what: "deployments", say: w.log.infof, tick: func() {}}, open, w.take)
	if err != nil {
		return err
	}
	return w.end()
}

// one shows a single deployment with its stages.
func (w *watcher) one(ctx context.Context, id string) error {
	p := &progress{screen: w.p.screen, now: w.now, moving: w.p.tty, line: func(line string) { fmt.Fprintln(w.p.out, line) }}
	end, err := p.watch(ctx, w.client, id)
	if err != nil {
		return err
	}
	return endedWith(end)
}

// take shows a state that was not shown yet; after a broken connection the agent sends
// all states again.
func (w *watcher) take(m *controlv1.WatchDeploymentsResponse) error {
	d := m.GetDeployment()
	if d == nil {
		return w.checkFound()
	}
	before := w.states[d.GetId()]
	if before != nil && d.GetRevision() <= before.GetRevision() {
		return nil
	}
	w.states[d.GetId()] = d
	if w.p.format == formatTable && before.GetStatus() == d.GetStatus() && before != nil {
		return nil // the line describes the deployment, not its stages
	}
	if err := w.p.print(d, func(p *printer) error { return p.change(d) }); err != nil {
		return err
	}
	if w.over() {
		return errDone
	}
	return nil
}

// checkFound returns an error if the agent has not sent a requested deployment. It is
// called after the agent has sent all that matched at the start.
func (w *watcher) checkFound() error {
	for _, id := range w.req.GetDeploymentIds() {
		if w.states[id] == nil {
			return hint(fmt.Errorf("deployment %q not found", id), "'pipectl deployment list' shows the IDs")
		}
	}
	return nil
}

// change writes one line for a change of a deployment.
func (p *printer) change(d *modelv1.Deployment) error {
	s := deploymentStatus(d.GetStatus())
	head := fmt.Sprintf("%s  %s  %s  ", time.UnixMilli(changedAt(d)).UTC().Format(time.TimeOnly), d.GetId(), clean(d.GetApplicationName()))
	return p.linef("%s%s%s", head, p.paint(s.color, s.text), because(d.GetStatusReason()))
}

// changedAt returns the last change of a deployment, in unix milliseconds.
func changedAt(d *modelv1.Deployment) int64 {
	return max(d.GetCreatedAtMs(), d.GetStartedAtMs(), d.GetCompletedAtMs(), d.GetUpdatedAt()*1000)
}

// over reports whether all requested deployments have ended; without requested ones
// there is no end.
func (w *watcher) over() bool {
	ids := w.req.GetDeploymentIds()
	return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return !ended(w.states[id].GetStatus()) })
}

// end returns the error for the first deployment that did not succeed.
func (w *watcher) end() error {
	for _, id := range w.req.GetDeploymentIds() {
		if err := endedWith(w.states[id]); err != nil {
			return err
		}
	}
	return nil
}
