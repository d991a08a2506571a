package kubernetes

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/cluster/traffic"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// takeTrafficBack gives the primary all the traffic again where an earlier deployment
// has left some with a variant, because it was not rolled back. Call it before the
// variant is made anew: no variant gets traffic before it can take it.
func takeTrafficBack(ctx context.Context, w *work) error {
	if _, known, err := lastOverlay(w.run.Deployment); err != nil || known && w.run.Stage.Metadata[deploy.MetaTraffic] == "" {
		return err
	}
	left, found, err := w.leftOverlay(ctx)
	if err != nil || !found {
		return err
	}
	routes, err := left.Routing.Routes(w.set.Objects)
	if err != nil {
		return nil // nothing routes it any more
	}
	if err := w.permitThese(ctx, routes); err != nil {
		return err
	}
	w.log.Infof("An earlier deployment has left the traffic so: %s; all of it goes back to the primary", left.Shares)
	s := &shift{work: w, routing: left.Routing, now: left}
	if err := s.awaitPrimary(ctx); err != nil {
		return err
	}
	s.now = overlay{Routing: left.Routing, Shares: traffic.Stable(), Before: left.Shares, Ready: left.Ready}
	if err := s.now.save(ctx, w.run); err != nil {
		return err
	}
	if err := s.place(ctx, s.now.Shares); err != nil {
		return err
	}
	s.now.Since = w.Now()
	return s.now.save(ctx, w.run)
}

// permitThese is permitSet for some objects of the set.
func (w *work) permitThese(ctx context.Context, objects []manifest.Object) error {
	all := w.set.Objects
	defer func() { w.set.Objects = all }()
	w.set.Objects = objects
	return permitSet(ctx, w)
}

// routeAsGit gives the primary all the traffic that a first deployment has shared:
// there is no earlier success whose routes could be put back, but Git's send nothing
// to the variants either. Call it before the variants are removed.
func routeAsGit(ctx context.Context, w *work) error {
	shared, found, err := lastOverlay(w.run.Deployment)
	if err != nil || !found {
		return err
	}
	if err := render(ctx, w); err != nil {
		return fmt.Errorf("take the traffic from the canary and the baseline, which stay until then: %w", err)
	}
	routes, err := shared.Routing.Routes(w.set.Objects)
	if err != nil {
		return nil // nothing routes it any more
	}
	w.set.Objects = routes
	if err := apply(ctx, w); err != nil {
		return err
	}
	w.log.Successf("What routes the traffic is as in Git: all of it goes to the primary")
	return nil
}

// sharing returns how the deployment shares the traffic (own), or else how an earlier
// one has left it; found is false when all of it goes to the primary.
func (w *work) sharing(ctx context.Context) (o overlay, found, own bool, err error) {
	if o, own, err = lastOverlay(w.run.Deployment); err != nil || own {
		return o, own, own, err
	}
	o, found, err = w.leftOverlay(ctx)
	return o, found, false, err
}

// leftOverlay returns how an earlier deployment shares the traffic that has left
// variants behind, false when all of it goes to the primary.
func (w *work) leftOverlay(ctx context.Context) (left overlay, found bool, err error) {
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
			left, found, err = lastOverlay(d)
		}
		if err != nil || found && !left.Shares.Whole() {
			return left, found, err
		}
	}
	return left, false, nil
}
