package drift

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/live"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// compare compares the suspects with the API server.
func (e *evaluation) compare(ctx context.Context) error {
	if len(e.suspects) == 0 && len(e.unmarked) == 0 {
		return nil
	}
	if e.expected.problem != "" {
		return nil // conclude reports the problem
	}
	for cluster := range e.suspects {
		leave, err := e.acquireSlot(cluster)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := e.read(ctx); err != nil {
		return err
	}
	e.addMissingMarks()
	for _, cluster := range slices.Sorted(maps.Keys(e.suspects)) {
		if err := e.compareIn(ctx, cluster, e.suspects[cluster]); err != nil {
			return err
		}
	}
	return nil
}

// acquireSlot takes a comparison slot of a cluster, or returns errNoSlot. User requests
// need no slot.
func (e *evaluation) acquireSlot(cluster string) (leave func(), err error) {
	if e.interactive {
		return func() {}, nil
	}
	if !e.slots.acquire(cluster, e.id) {
		return nil, errNoSlot
	}
	return func() { e.slots.release(cluster) }, nil
}

// compareIn compares the objects of one cluster. If the cluster does not answer, it records
// an outage instead of returning an error.
func (e *evaluation) compareIn(ctx context.Context, cluster string, all []suspect) error {
	held, release, err := e.Clusters.Hold(cluster, e.app)
	if err != nil {
		e.unanswered(cluster, all, err)
		return nil
	}
	defer release()
	for _, confirm := range []bool{false, true} {
		byKey := map[string]suspect{}
		req := e.compareRequest(cluster)
		req.Confirm = confirm
		for _, s := range all {
			if s.confirm == confirm {
				byKey[s.ref.Key()] = s
				req.Only = append(req.Only, s.ref)
			}
		}
		if len(req.Only) == 0 {
			continue
		}
		results, err := bounded(ctx, req, held.Compare)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			e.unanswered(cluster, slices.Collect(maps.Values(byKey)), err)
			continue
		}
		for _, c := range results {
			if s, ok := byKey[c.Object.Key()]; ok {
				e.record(s, c)
			}
		}
	}
	return nil
}

// compareTimeout bounds one comparison with an unresponsive cluster.
const compareTimeout = time.Minute

type comparison func(context.Context, apply.CompareRequest) ([]apply.Compared, error)

// bounded limits a comparison to compareTimeout.
func bounded(ctx context.Context, req apply.CompareRequest, compare comparison) ([]apply.Compared, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	return compare(ctx, req)
}

func (e *evaluation) compareRequest(provider string) apply.CompareRequest {
	w := e.material.want
	return apply.CompareRequest{
		ApplicationID: e.id, PipedID: e.PipedID, Commit: w.Commit, VariantKey: w.VariantKey, VariantValue: w.VariantValue,
		Objects: w.Objects, Inventory: e.material.inCluster(provider), Ignore: w.Ignore, Conceal: w.Conceal, Diff: e.diff,
	}
}

// unanswered records an outage for objects whose comparison failed.
func (e *evaluation) unanswered(cluster string, all []suspect, err error) {
	b := outage{cluster: cluster, since: e.outageStart(), why: err.Error()}
	for _, s := range all {
		b.keys = append(b.keys, s.key)
		if s.wanted {
			e.checked--
		}
	}
	e.outages = append(e.outages, b)
}

// outageStart returns the time since which an object of the application has been unknown,
// now if none has been.
func (e *evaluation) outageStart() time.Time {
	if e.outageSince.IsZero() {
		return e.Now()
	}
	return e.outageSince
}

// record evaluates the result of a comparison. It retains the result, so that the same
// version of an object is not compared again.
func (e *evaluation) record(s suspect, c apply.Compared) {
	e.countComparison(s, c)
	switch {
	case c.Problem != "":
		e.checked--
		e.outages = append(e.outages, outage{cluster: s.cluster, keys: []string{s.key}, since: e.outageStart(), why: c.Problem})
		return
	case c.Ignored:
		e.accepted[s.key] = true
	case c.Drift != nil:
		e.found[s.key] = e.dated(s, *c.Drift)
	case c.Unchanged:
		e.updateMark(s, c)
	}
	known := result{uid: s.uid, resourceVersion: s.resourceVersion}
	if drift, ok := e.found[s.key]; ok {
		drift.Diff = ""
		known.drift = &drift
	}
	e.results[s.key] = known
}

// dated returns o with its cluster and the begin of its drift: the begin in the open report
// if that contains the object, else now.
func (e *evaluation) dated(s suspect, o deploy.ObjectDrift) deploy.ObjectDrift {
	o.Cluster, o.BeganAt = s.cluster, e.Now().UTC().Truncate(time.Millisecond)
	if e.open == nil {
		return o
	}
	for _, before := range e.open.Objects {
		if key(before.Cluster, before.Object) == s.key && !before.BeganAt.IsZero() {
			o.BeganAt = before.BeganAt
		}
	}
	return o
}

// compareExtras finds live objects of the application's primary variant that are not
// expected. Each version of an object is read once.
func (e *evaluation) compareExtras(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, t := range e.expected.objects {
		wanted[t.uid] = wanted[t.uid] || t.wanted && t.uid != ""
	}
	for _, cluster := range e.expected.clusters() {
		members, _, err := e.Clusters.Members(cluster)
		if err != nil {
			continue // checkWatched recorded the outage
		}
		e.expected.follow(cluster, members)
		var extra []suspect
		for _, m := range members.Of(e.id) {
			if wanted[m.UID] {
				continue // expected by another provider that uses the same cluster
			}
			k := key(cluster, m.Object)
			known, compared := e.results[k]
			switch same := compared && known.uid == m.UID && known.resourceVersion == m.ResourceVersion; {
			case !e.isExtra(k, m):
			case same && (known.drift == nil || !e.interactive):
				if known.drift != nil {
					e.found[k] = *known.drift
				}
			default:
				extra = append(extra, suspect{&tracked{ref: m.Object, cluster: cluster}, k, m.UID, m.ResourceVersion, false})
			}
		}
		if err := e.describeExtras(ctx, cluster, extra); err != nil {
			return err
		}
	}
	return nil
}

// isExtra reports whether the watched metadata of a live object with key k shows that the
// object is extra: it belongs to the application's primary variant but is not expected.
func (e *evaluation) isExtra(k string, m live.Member) bool {
	t := e.expected.objects[k]
	switch {
	case t != nil && (t.wanted || t.variant):
		return false
	case m.Application != e.id, m.Piped != e.PipedID, m.Owned, m.Hook, m.Deleting, m.Ignored:
		return false
	case m.Variant == string(config.Canary), m.Variant == string(config.Baseline):
		return false
	}
	return e.expected.problem == ""
}

// describeExtras reads the extra objects from the API server and records the results.
func (e *evaluation) describeExtras(ctx context.Context, provider string, extra []suspect) error {
	if len(extra) == 0 {
		return nil
	}
	leave, err := e.acquireSlot(provider)
	if err != nil {
		return err
	}
	defer leave()
	held, release, err := e.Clusters.Hold(provider, e.app)
	if err != nil {
		e.unanswered(provider, extra, err)
		return nil
	}
	defer release()
	req := apply.CompareRequest{ApplicationID: e.id, PipedID: e.PipedID, Conceal: e.expected.conceal, Diff: e.diff}
	for _, s := range extra {
		req.Only = append(req.Only, s.ref)
	}
	results, err := bounded(ctx, req, held.DescribeExtra)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		e.unanswered(provider, extra, err)
		return nil
	}
	for i, c := range results {
		e.record(extra[i], c)
	}
	return nil
}
