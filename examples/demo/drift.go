package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

const (
	healing   = "self-heal" // heals itself, except for its replicas
	handScale = 3           // replicas that a person wants

	synced    = modelv1.ApplicationSyncStatus_SYNCED
	outOfSync = modelv1.ApplicationSyncStatus_OUT_OF_SYNC
)

// byHand changes a live Deployment as a person does with kubectl.
func (d *demo) byHand(ctx context.Context, app, command, patch string) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	d.out.fact("by hand", "kubectl -n "+d.stage.namespace+" "+command)
	_, err = client.AppsV1().Deployments(d.stage.namespace).Patch(ctx, app, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-by-hand"})
	if err != nil {
		return fmt.Errorf("change Deployment %s/%s by hand: %w", d.stage.namespace, app, err)
	}
	return nil
}

// setImage sets the image of an application's Deployment by hand.
func (d *demo) setImage(ctx context.Context, app, tag string) error {
	image := d.stage.images.at(tag)
	return d.byHand(ctx, app, fmt.Sprintf("set image deployment/%s web=%s", app, image),
		fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"web","image":%q}]}}}}`, image))
}

// scale sets the replicas of an application's Deployment by hand.
func (d *demo) scale(ctx context.Context, app string, replicas int) error {
	return d.byHand(ctx, app, fmt.Sprintf("scale deployment/%s --replicas=%d", app, replicas), fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// drift changes the image of a running application by hand, and shows what the
// agent says of it. Nothing puts it back: the application does not heal itself.
func (d *demo) drift(ctx context.Context) error {
	began := time.Now()
	if err := d.setImage(ctx, subject, d.stage.images.hand); err != nil {
		return err
	}
	app, err := d.awaitSync(ctx, subject, outOfSync)
	if err != nil {
		return err
	}
	d.out.gap()
	d.out.good("%s is %s after %s: %s", subject, app.SyncState.Status, seconds(time.Since(began)), app.SyncState.ShortReason)
	d.out.gap()
	if err := d.agent.pipectl(ctx, d.out, "application", "drift", "--app-id", app.Id, "--diff"); err != nil {
		return err
	}
	d.out.gap()
	return d.expectDrift(ctx, app.Id, map[string]string{
		"spec.template.spec.containers[name=web].image": fmt.Sprintf("%q instead of %q by kubectl-by-hand", d.stage.images.at(d.stage.images.hand), d.stage.images.at(d.stage.images.fixed)),
	})
}

// heal changes what an application leaves to people, and what it does not: only
// that is put back.
func (d *demo) heal(ctx context.Context) error {
	app, err := d.awaitSync(ctx, healing, synced)
	if err != nil {
		return err
	}
	if err := d.scale(ctx, healing, handScale); err != nil {
		return err
	}
	if err := d.agent.pipectl(ctx, d.out, "application", "drift", "--app-id", app.Id, "--refresh"); err != nil {
		return err
	}
	if err := d.expectDrift(ctx, app.Id, map[string]string{}); err != nil {
		return err
	}
	d.out.gap()
	if err := d.setImage(ctx, healing, d.stage.images.hand); err != nil {
		return err
	}
	d.out.gap()
	if _, err := d.expect(ctx, healing, onDrift, success); err != nil {
		return err
	}
	if err := d.expectImage(ctx, healing, d.stage.images.first); err != nil {
		return err
	}
	return d.expectReplicas(ctx, healing, handScale)
}

// application returns an application as the agent sees it now.
func (d *demo) application(ctx context.Context, name string) (*modelv1.Application, error) {
	apps, err := d.agent.applications(ctx, d.repo.apps)
	i := slices.IndexFunc(apps, func(app *modelv1.Application) bool { return app.Name == name })
	if err == nil && i < 0 {
		err = fmt.Errorf("there is no application %s", name)
	}
	if err != nil {
		return nil, err
	}
	return apps[i], nil
}

// awaitSync returns an application once its sync state is what is wanted.
func (d *demo) awaitSync(ctx context.Context, name string, want modelv1.ApplicationSyncStatus) (app *modelv1.Application, err error) {
	err = d.agent.Await(ctx, name+" to be "+want.String(), waitTimeout, func(ctx context.Context) (bool, error) {
		if app, err = d.application(ctx, name); err != nil {
			return false, err
		}
		state := app.GetSyncState()
		return state.GetStatus() == want, fmt.Errorf("it is %s: %s", state.GetStatus(), state.GetReason())
	})
	return app, err
}

// expectDrift checks which fields of an application differ from Git, and how.
func (d *demo) expectDrift(ctx context.Context, id string, want map[string]string) error {
	resp, err := d.agent.Control.GetDriftReport(ctx, &controlv1.GetDriftReportRequest{ApplicationId: id, Refresh: true})
	if err != nil {
		return fmt.Errorf("ask for the drift report: %w", err)
	}
	got := map[string]string{}
	for _, object := range resp.GetReport().GetObjects() {
		for _, f := range object.GetFields() {
			got[f.Path] = fmt.Sprintf("%s instead of %s by %s", f.LiveValue, f.GitValue, f.Manager)
		}
	}
	switch {
	case !maps.Equal(got, want):
		d.differ("the report says that these fields differ: %q instead of %q", got, want)
	case len(want) == 0:
		d.out.good("the report says that nothing differs")
	default:
		d.out.good("the report names the field, both values and who changed it")
	}
	return nil
}

// expectReplicas checks how many replicas are wanted of an application.
func (d *demo) expectReplicas(ctx context.Context, app string, want int32) error {
	client, err := d.client()
	if err != nil {
		return err
	}
	live, err := client.AppsV1().Deployments(d.stage.namespace).Get(ctx, app, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read Deployment %s/%s: %w", d.stage.namespace, app, err)
	}
	if got := *live.Spec.Replicas; got != want {
		d.differ("Deployment %s/%s has %d replicas instead of %d", d.stage.namespace, app, got, want)
		return nil
	}
	d.out.good("seen in the cluster: Deployment %s/%s still has %d replicas", d.stage.namespace, app, want)
	return nil
}

// expectStates checks that all applications are as in Git, and shows that. Two are
// not: of one the last commit was taken back, and another has left behind the
// ConfigMap that it used before.
func (d *demo) expectStates(ctx context.Context) error {
	rows := [][]string{{"APPLICATION", "DIFFERS", "STATE"}}
	apps, err := d.agent.applications(ctx, d.repo.apps)
	if err != nil {
		return err
	}
	for _, app := range apps {
		want := synced
		if app.Name == routed || app.Name == kustomized {
			want = outOfSync
		}
		now, err := d.awaitSync(ctx, app.Name, want)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			d.differ("%s", err)
		}
		rows = append(rows, []string{app.Name, now.GetSyncState().GetShortReason(), now.GetSyncState().GetStatus().String()})
	}
	d.out.table(rows)
	d.out.gap()
	return nil
}
