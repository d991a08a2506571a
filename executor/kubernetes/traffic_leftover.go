package kubernetes

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// takeTrafficBack gives the primary all traffic if an earlier deployment, which was not
// rolled back, left a share with a variant. Call it before the variant is rolled out again,
// because no variant may get traffic before it is ready.
func takeTrafficBack(ctx context.Context, w *work) error {
	if _, known, err := lastTrafficState(w.run.Deployment); err != nil || known && w.run.Stage.Metadata[deploy.MetaTraffic] == "" {
		return err
	}
	left, found, err := w.leftoverTraffic(ctx)
	if err != nil || !found {
		return err
	}
	routes, err := left.Routing.Routes(w.set.Objects)
	if err != nil {
		return nil // no object routes the traffic any more
	}
	if err := w.permit(routes); err != nil {
		return err
	}
	w.log.Infof("An earlier deployment left the traffic shared (%s); all of it goes back to the primary", left.Shares)
	s := &shift{work: w, routing: left.Routing, state: left}
	if err := s.awaitPrimary(ctx); err != nil {
		return err
	}
	s.state = trafficState{Routing: left.Routing, Shares: traffic.Stable(), Before: left.Shares, Ready: left.Ready}
	if err := s.state.save(ctx, w.run); err != nil {
		return err
	}
	if err := s.place(ctx, s.state.Shares); err != nil {
		return err
	}
	s.state.Since = w.Now()
	return s.state.save(ctx, w.run)
}

// routeAsGit gives the primary all traffic after a first deployment has shared it. There is
// no earlier success whose routes could be restored, but the routes in Git send no traffic
// to the variants. Call it before the variants are removed.
func routeAsGit(ctx context.Context, w *work) error {
	shared, found, err := lastTrafficState(w.run.Deployment)
	if err != nil || !found {
		return err
	}
	if err := render(ctx, w); err != nil {
		return fmt.Errorf("take the traffic from the canary and the baseline before they are removed: %w", err)
	}
	routes, err := shared.Routing.Routes(w.set.Objects)
	if err != nil {
		return nil // no object routes the traffic any more
	}
	if err := w.applyObjects(ctx, routes); err != nil {
		return err
	}
	w.log.Successf("The routes are as in Git: all traffic goes to the primary")
	return nil
}

// currentTraffic returns the traffic state of this deployment (own), or else the state that
// an earlier deployment left. found is false if there is neither: then all traffic goes to
// the primary.
func (w *work) currentTraffic(ctx context.Context) (o trafficState, found, own bool, err error) {
	if o, own, err = lastTrafficState(w.run.Deployment); err != nil || own {
		return o, own, own, err
	}
	o, found, err = w.leftoverTraffic(ctx)
	return o, found, false, err
}

// leftoverTraffic returns the traffic state of an earlier deployment whose variants are
// still in the inventory and get traffic. found is false if there is none.
func (w *work) leftoverTraffic(ctx context.Context) (left trafficState, found bool, err error) {
	inventory, err := w.inventory(ctx)
	if err != nil {
		return left, false, err
	}
	asked := map[string]bool{w.run.Deployment.ID: true}
	for _, item := range ofVariants(inventory, kubernetes.Canary, kubernetes.Baseline) {
		if asked[item.DeploymentID] {
			continue
		}
		asked[item.DeploymentID] = true
		d, err := w.Store.Deployment(ctx, item.DeploymentID)
		if deploy.IsKind(err, deploy.NotFound) {
			continue
		}
		if err == nil {
			left, found, err = lastTrafficState(d)
		}
		if err != nil || found && !left.Shares.Whole() {
			return left, found, err
		}
	}
	return left, false, nil
}
