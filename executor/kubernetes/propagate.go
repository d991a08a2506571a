package kubernetes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/store"
)

// propagation returns spec.configPropagation, or its default.
func (s setSpec) propagation() kubernetes.ConfigPropagation {
	if s.Propagation != nil {
		return *s.Propagation
	}
	return kubernetes.DefaultConfigPropagation()
}

// named returns the ConfigMaps and Secrets outside of the set whose changes are propagated,
// too.
func (s setSpec) named() (out []manifest.Reference) {
	for _, r := range s.propagation().Named {
		out = append(out, manifest.Reference(r))
	}
	return out
}

// propagations returns the application's propagation records in the stage's cluster, by key
// of the workload. A record contains the configuration that the pods of the workload have
// seen.
func (w *work) propagations(ctx context.Context) (map[string]deploy.Propagation, error) {
	rows, err := w.Store.Propagations(ctx, store.PropagationQuery{ApplicationID: w.run.Application.ID, Cluster: w.cluster.Name()})
	out := make(map[string]deploy.Propagation, len(rows))
	for _, p := range rows {
		out[p.Workload.Key()] = p
	}
	return out, err
}

// knownPropagations returns the keys of the workloads that have a propagation record.
func (w *work) knownPropagations(ctx context.Context) (map[string]bool, error) {
	rows, err := w.propagations(ctx)
	out := map[string]bool{}
	for key := range rows {
		out[key] = true
	}
	return out, err
}

// savePodConfig stores, before the first write, the configuration that pods of workloads
// without a record see now. After a crash only this record shows which pods still have to
// be nudged.
func (w *work) savePodConfig(ctx context.Context, before []apply.Reach) error {
	for _, r := range before {
		p, err := w.propagationOf(ctx, deploy.Propagation{}, r)
		if err == nil {
			_, err = w.Store.SavePropagation(ctx, p)
		}
		if err != nil {
			return fmt.Errorf("record the configuration that the pods of %s see: %w", r.Workload, err)
		}
	}
	return nil
}

// propagationOf returns p with the current selector, settings and objects of the workload.
// Objects that are new in p get their present content; the others keep the content that the
// pods have seen.
func (w *work) propagationOf(ctx context.Context, p deploy.Propagation, r apply.Reach) (deploy.Propagation, error) {
	account, err := w.tenant().Account()
	if err != nil {
		return p, err
	}
	nudge := w.set.Spec.propagation().Nudge
	p.ApplicationID, p.Cluster, p.Workload = w.run.Application.ID, w.cluster.Name(), r.Workload
	p.User, p.Selector, p.Off = account.User(), r.Selector, r.Off
	p.Settings = deploy.NudgeSettings{Delay: nudge.Delay, RepeatAfter: nudge.RepeatAfter, MaxPods: nudge.MaxPods, RatePerSecond: nudge.RatePerSecond}
	configs, versions := map[string]string{}, map[string]string{}
	for key, hash := range r.Configs {
		configs[key] = hash
		if before, known := p.Configs[key]; known {
			configs[key] = before
		}
	}
	for _, ref := range r.Named {
		key := ref.Key()
		if version, known := p.Named[key]; known {
			configs[key], versions[key] = p.Configs[key], version
			continue
		}
		content, err := apply.ReadConfig(ctx, w.cluster.Cluster, ref)
		if err != nil {
			return p, err
		}
		configs[key], versions[key] = content.Hash, content.Version
	}
	p.Configs, p.Named = configs, versions
	if len(versions) == 0 {
		p.Named = nil
	}
	if p.Off {
		p.Phase, p.NextAt = deploy.PropagationDone, time.Time{}
	}
	return p, nil
}

// planNudges records which pods have to be nudged after an apply: those of the set, and
// those of the application's other variants that use the same objects. After a failed apply
// it records the new content without nudging; the rollback nudges the pods for the content
// that it restores.
func (w *work) planNudges(ctx context.Context, result apply.Result, failed bool) error {
	rows, err := w.propagations(ctx)
	if err != nil {
		return err
	}
	next, restored := maps.Clone(rows), map[string]bool{}
	for key, content := range result.Contents {
		if content.Restored && !w.restored[key] {
			restored[key] = true
		}
	}
	for _, r := range result.Reach {
		key := r.Workload.Key()
		if next[key], err = w.propagationOf(ctx, rows[key], r); err != nil {
			return fmt.Errorf("plan how changed configuration reaches the pods of %s: %w", r.Workload, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(next)) {
		p, changed := propagate.Note(next[key], withContents(next[key].Configs, result.Contents), restored)
		switch {
		case changed && failed:
			p.Phase, p.NextAt = deploy.PropagationDone, time.Time{}
		case changed:
			p = propagate.Begin(p, w.changedAt(p, result.Contents), w.Now())
		}
		if err := w.savePropagation(ctx, rows[key], p); err != nil {
			return err
		}
		if p.Phase == deploy.PropagationNudge && !slices.Contains(w.nudging, key) {
			w.nudging = append(w.nudging, key)
		}
	}
	for key := range restored {
		w.restored[key] = true
	}
	return nil
}

// noteFailedApply is planNudges after an apply that failed, even if the stage was stopped.
func (w *work) noteFailedApply(ctx context.Context, result apply.Result) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), concludeLimit)
	defer cancel()
	result.Reach = nil
	return w.planNudges(ctx, result, true)
}

// savePropagation stores p if it differs from before, the stored record. On a conflict it
// overwrites the record of the nudger, which is about the earlier configuration.
func (w *work) savePropagation(ctx context.Context, before, p deploy.Propagation) error {
	for !reflect.DeepEqual(before, p) {
		_, err := w.Store.SavePropagation(ctx, p)
		if !deploy.IsKind(err, deploy.Conflict) {
			return err
		}
		rows, err := w.propagations(ctx)
		if err != nil {
			return err
		}
		p.Version = rows[p.Workload.Key()].Version
	}
	return nil
}

// withContents returns configs with the hashes of contents.
func withContents(configs map[string]string, contents map[string]apply.Content) map[string]string {
	out := maps.Clone(configs)
	for key := range out {
		if content, ok := contents[key]; ok {
			out[key] = content.Hash
		}
	}
	return out
}

// changedAt returns when the last of p's changes was written, or the present time if that
// is unknown.
func (w *work) changedAt(p deploy.Propagation, contents map[string]apply.Content) (at time.Time) {
	if p.Phase == deploy.PropagationNudge {
		at = p.ChangedAt
	}
	for _, key := range p.Changed {
		if written := contents[key].At; written.After(at) {
			at = written
		}
	}
	if at.IsZero() {
		return w.Now()
	}
	return at
}

// awaitNudges waits until the pods that planNudges selected have been nudged, and logs
// their names. It waits at most NudgeWait plus the time that the nudge settings permit; the
// agent nudges the remaining pods after the stage.
func (w *work) awaitNudges(ctx context.Context) error {
	if len(w.nudging) == 0 {
		return nil
	}
	changes := w.Store.Watch(deploy.TopicPropagation)
	defer changes.Close()
	rows, err := w.propagations(ctx)
	if err != nil {
		return err
	}
	wait := w.NudgeWait
	for _, key := range w.nudging {
		wait += rows[key].Settings.Longest()
	}
	limit := time.NewTimer(wait)
	defer limit.Stop()
	for {
		if rows, err = w.propagations(ctx); err != nil {
			return err
		}
		w.nudging = slices.DeleteFunc(w.nudging, func(key string) bool {
			p, there := rows[key]
			if there && p.Phase == deploy.PropagationNudge && p.Attempts == 0 {
				return false
			}
			if there {
				w.logNudges(p)
			}
			return true
		})
		if len(w.nudging) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-limit.C:
			for _, key := range w.nudging {
				w.log.Infof("%s: not all pods of %s were nudged within %s; the agent continues after the stage", changedOf(rows[key]), rows[key].Workload, wait)
			}
			return nil
		case <-changes.C():
			changes.Take()
		}
	}
}

// logNudges logs which pods of a workload were nudged.
func (w *work) logNudges(p deploy.Propagation) {
	what, out := changedOf(p), p.Outcome
	switch {
	case out.Problem != "":
		w.log.Errorf("%s: %s of %s were nudged, others could not be: %s; the agent tries again, and the kubelet updates their files within about 90 s",
			what, countPods(int64(out.Pods)), p.Workload, out.Problem)
	case out.Pods == 0:
		w.log.Infof("%s: no pod of %s has run since before the change", what, p.Workload)
	default:
		names, more := out.Names, ""
		if n := out.Pods - len(names); n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		all := "all "
		if out.Over > 0 {
			all = ""
		}
		w.log.Successf("%s: %s%d running pods of %s that mount it were nudged: %s%s", what, all, out.Pods, p.Workload, strings.Join(names, ", "), more)
	}
	if out.Over > 0 {
		w.log.Infof("%s of %s were left out, because configPropagation.nudge.maxPods is %d: the kubelet updates their files within about 90 s",
			countPods(int64(out.Over)), p.Workload, p.Settings.MaxPods)
	}
}

// changedOf returns a clause that names the changed objects.
func changedOf(p deploy.Propagation) string {
	var names []string
	for _, key := range p.Changed {
		names = append(names, propagate.Ref(key).String())
	}
	verb := " has changed"
	if len(names) > 1 {
		verb = " have changed"
	}
	return cmp.Or(strings.Join(names, ", "), "the configuration") + verb
}
