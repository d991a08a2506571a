package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// change changes objects by hand, first one after the other, then in bursts, and
// takes all of it back.
func (d *driftBench) change(ctx context.Context) error {
	w, err := watchDrift(ctx, d.agent)
	if err != nil {
		return err
	}
	defer w.close()
	floor, err := watchMetadata(ctx, d.meta, d.fleet.namespace)
	if err != nil {
		return err
	}
	defer floor.close()
	first, n := d.fleet.scaled, d.fleet.changed
	alone, err := d.changeMany(ctx, w, floor, first, n/2, 1)
	if err != nil {
		return err
	}
	bursts, err := d.changeMany(ctx, w, floor, first+n/2, n/2, driftBurst)
	if err != nil {
		return err
	}
	d.printChanges(d.name+".change", append(alone, bursts...))
	d.printChanges(d.name+".change.one_by_one", alone)
	d.printChanges(d.name+".change.in_bursts", bursts)
	return d.takeBack(ctx, w, first, n)
}

// changed is how long it took until a change was seen, since the API server had
// answered, and since it was asked.
type changed struct{ report, floor, askedToReport, askedToFloor time.Duration }

// changeMany changes an object of each of n applications, some at once.
func (d *driftBench) changeMany(ctx context.Context, w *driftWatch, floor *metadataWatch, first, n, atOnce int) ([]changed, error) {
	all := make([]changed, n)
	for from := 0; from < n; from += atOnce {
		group, ctx := errgroup.WithContext(ctx)
		for i := from; i < min(n, from+atOnce); i++ {
			group.Go(func() (err error) {
				all[i], err = d.changeOne(ctx, w, floor, first+i)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (d *driftBench) changeOne(ctx context.Context, w *driftWatch, floor *metadataWatch, i int) (c changed, err error) {
	e, name, asked := d.edit(i), d.fleet.name(i), time.Now()
	answered, written, err := d.write(ctx, e, name, true)
	if err != nil {
		return c, err
	}
	seen, err := floor.of(ctx, version(e.GroupVersionResource, name, written))
	if err != nil {
		return c, err
	}
	reported, err := w.of(ctx, differs(d.fleet.id(i), e.kind+" "+name))
	return changed{max(0, reported.Sub(answered)), max(0, seen.Sub(answered)), reported.Sub(asked), seen.Sub(asked)}, err
}

// edit returns the change that is made to an application.
func (d *driftBench) edit(i int) edit { return edits()[i%len(edits())] }

// write makes a change, or takes it back, and returns when it was answered and the
// version that was written.
func (d *driftBench) write(ctx context.Context, e edit, name string, changed bool) (answered time.Time, version string, err error) {
	patch := fmt.Appendf(nil, `[{"op":"replace","path":%q,"value":%q}]`, e.path, e.value(name, changed))
	o, err := d.meta.Resource(e.GroupVersionResource).Namespace(d.fleet.namespace).
		Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: "kubectl-edit"})
	if err != nil {
		return answered, "", fmt.Errorf("change %s %s: %w", e.kind, name, err)
	}
	return time.Now(), o.ResourceVersion, nil
}

func (d *driftBench) printChanges(name string, all []changed) {
	var reports, floors, askedToReports, askedToFloors []time.Duration
	for _, c := range all {
		reports, floors = append(reports, c.report), append(floors, c.floor)
		askedToReports, askedToFloors = append(askedToReports, c.askedToReport), append(askedToFloors, c.askedToFloor)
	}
	d.info(name+".floor.p50", milliseconds(median(floors)), "ms")
	d.info(name+".floor.p99", milliseconds(quantile(floors, 0.99)), "ms")
	d.atMost(name+".to_report.p50", milliseconds(median(reports)), "ms", 300)
	d.atMost(name+".to_report.p99", milliseconds(quantile(reports, 0.99)), "ms", 2000)
	d.info(name+".to_report.worst", milliseconds(worst(reports)), "ms")
	d.info(name+".asked_to_report.ratio_to_floor", ratioOf(askedToReports, askedToFloors), "x")
}

// takeBack takes the changes back, in bursts.
func (d *driftBench) takeBack(ctx context.Context, w *driftWatch, first, n int) error {
	took := make([]time.Duration, n)
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(driftBurst)
	for i := range n {
		group.Go(func() error {
			e, name := d.edit(first+i), d.fleet.name(first+i)
			answered, _, err := d.write(gctx, e, name, false)
			if err != nil {
				return err
			}
			reported, err := w.of(gctx, agrees(d.fleet.id(first+i), e.kind+" "+name))
			took[i] = max(0, reported.Sub(answered))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d.info(d.name+".taken_back_to_report.p50", milliseconds(median(took)), "ms")
	d.info(d.name+".taken_back_to_report.p99", milliseconds(quantile(took, 0.99)), "ms")
	n, err := d.unsynced(ctx)
	d.exactly(d.name+".taken_back.not_synced", n, 0)
	return err
}

// heal changes a ConfigMap of each application that heals itself, one after the
// other, and measures until it is as in Git again.
func (d *driftBench) heal(ctx context.Context) error {
	floor, err := watchMetadata(ctx, d.meta, d.fleet.namespace)
	if err != nil {
		return err
	}
	defer floor.close()
	client, err := clientOf(d.cluster.Kubeconfig())
	if err != nil {
		return err
	}
	e, wrong := edits()[0], 0
	var took []time.Duration
	for i := d.fleet.count - d.fleet.healed; i < d.fleet.count; i++ {
		name := d.fleet.name(i)
		answered, written, err := d.write(ctx, e, name, true)
		if err != nil {
			return err
		}
		healed, err := floor.of(ctx, next(e.GroupVersionResource, name, written))
		if err != nil {
			return err
		}
		live, err := client.CoreV1().ConfigMaps(d.fleet.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if live.Data["greeting"] != e.value(name, false) {
			wrong++
		}
		took = append(took, healed.Sub(answered))
	}
	d.info("drift.change_to_healed.median", milliseconds(median(took)), "ms")
	d.info("drift.change_to_healed.worst", milliseconds(worst(took)), "ms")
	d.exactly("drift.healed.not_as_in_git", wrong, 0)
	if _, err := d.awaitSynced(ctx, d.fleet.count); err != nil {
		return err
	}
	return nil
}
