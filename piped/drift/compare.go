package drift

import (
	"context"
	"maps"
	"slices"
	"time"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/kubernetes"
)

// compare has the objects compared that the watches leave in doubt.
func (j *judgement) compare(ctx context.Context) error {
	if len(j.suspects) == 0 && len(j.unmarked) == 0 {
		return nil
	}
	if j.expected.problem != "" {
		return nil // which conclude says
	}
	for cluster := range j.suspects {
		leave, err := j.enter(cluster)
		if err != nil {
			return err
		}
		defer leave()
	}
	if err := j.read(ctx); err != nil {
		return err
	}
	j.learnMarks()
	for _, cluster := range slices.Sorted(maps.Keys(j.suspects)) {
		if err := j.compareIn(ctx, cluster, j.suspects[cluster]); err != nil {
			return err
		}
	}
	return nil
}

// enter takes a lane of a cluster, or returns errNoLane. Who asks for a report does not
// have to wait.
func (j *judgement) enter(cluster string) (leave func(), err error) {
	if j.asked {
		return func() {}, nil
	}
	if !j.lanes.enter(cluster, j.id) {
		return nil, errNoLane
	}
	return func() { j.lanes.leave(cluster) }, nil
}

// compareIn compares objects of one cluster. If it does not answer, they are blind.
func (j *judgement) compareIn(ctx context.Context, cluster string, all []suspect) error {
	held, release, err := j.Clusters.Hold(cluster, j.app)
	if err != nil {
		j.unanswered(cluster, all, err)
		return nil
	}
	defer release()
	for _, confirm := range []bool{false, true} {
		byKey := map[string]suspect{}
		req := j.compareRequest(cluster)
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
			j.unanswered(cluster, slices.Collect(maps.Values(byKey)), err)
			continue
		}
		for _, c := range results {
			if s, ok := byKey[c.Object.Key()]; ok {
				j.take(s, c)
			}
		}
	}
	return nil
}

// compareTimeout bounds one comparison: a cluster that keeps silent holds up others for
// no longer.
const compareTimeout = time.Minute

type comparison func(context.Context, kubernetes.CompareRequest) ([]kubernetes.Compared, error)

// bounded is a comparison that ends in time.
func bounded(ctx context.Context, req kubernetes.CompareRequest, compare comparison) ([]kubernetes.Compared, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	return compare(ctx, req)
}

func (j *judgement) compareRequest(cluster string) kubernetes.CompareRequest {
	w := j.material.want
	return kubernetes.CompareRequest{
		ApplicationID: j.id, PipedID: j.PipedID, Commit: w.Commit, VariantKey: w.VariantKey, VariantValue: w.VariantValue,
		Objects: w.Objects, Inventory: j.material.inCluster(cluster), Ignore: w.Ignore, Conceal: w.Conceal, Diff: j.diff,
	}
}

// unanswered notes that objects could not be compared.
func (j *judgement) unanswered(cluster string, all []suspect, err error) {
	b := blindness{cluster: cluster, since: j.blindSince(), why: err.Error()}
	for _, s := range all {
		b.keys = append(b.keys, s.key)
		if s.wanted {
			j.looked--
		}
	}
	j.blind = append(j.blind, b)
}

// blindSince is since when something of the application cannot be judged.
func (j *judgement) blindSince() time.Time {
	if j.blindFrom.IsZero() {
		return j.Now()
	}
	return j.blindFrom
}

// take notes how an object compares. In the version that the watch showed it is not
// compared again.
func (j *judgement) take(s suspect, c kubernetes.Compared) {
	j.observe(s, c)
	switch {
	case c.Problem != "":
		j.looked--
		j.blind = append(j.blind, blindness{cluster: s.cluster, keys: []string{s.key}, since: j.blindSince(), why: c.Problem})
		return
	case c.Ignored:
		j.accepted[s.key] = true
	case c.Drift != nil:
		j.found[s.key] = j.dated(s, *c.Drift)
	case c.Settled:
		j.learn(s, c)
	}
	known := judged{uid: s.uid, resourceVersion: s.resourceVersion}
	if drift, ok := j.found[s.key]; ok {
		drift.Diff = ""
		known.drift = &drift
	}
	j.judged[s.key] = known
}

// dated says since when an object has differed: since the period began in which it
// differs already, else since now.
func (j *judgement) dated(s suspect, o deploy.ObjectDrift) deploy.ObjectDrift {
	o.Cluster, o.BeganAt = s.cluster, j.Now().UTC().Truncate(time.Millisecond)
	if j.open == nil {
		return o
	}
	for _, before := range j.open.Objects {
		if key(before.Cluster, before.Object) == s.key && !before.BeganAt.IsZero() {
			o.BeganAt = before.BeganAt
		}
	}
	return o
}

// compareExtras finds live objects that say they are of the application, of its
// primary, and that it does not have. Each is read once in each version.
func (j *judgement) compareExtras(ctx context.Context) error {
	wanted := map[string]bool{}
	for _, t := range j.expected.objects {
		wanted[t.uid] = wanted[t.uid] || t.wanted && t.uid != ""
	}
	for _, cluster := range j.expected.clusters() {
		members, _, err := j.Clusters.Members(cluster)
		if err != nil {
			continue // look has said so if anything is expected there
		}
		j.expected.follow(cluster, members)
		var extra []suspect
		for _, m := range members.Of(j.id) {
			if wanted[m.UID] {
				continue // a provider of the same cluster
			}
			k := key(cluster, m.Object)
			known, wasJudged := j.judged[k]
			switch same := wasJudged && known.uid == m.UID && known.resourceVersion == m.ResourceVersion; {
			case !j.isExtra(k, m):
			case same && (known.drift == nil || !j.asked):
				if known.drift != nil {
					j.found[k] = *known.drift
				}
			default:
				extra = append(extra, suspect{&tracked{ref: m.Object, cluster: cluster}, k, m.UID, m.ResourceVersion, false})
			}
		}
		if err := j.describeExtras(ctx, cluster, extra); err != nil {
			return err
		}
	}
	return nil
}

// isExtra reports whether a live object is one too many, as far as the watch tells.
func (j *judgement) isExtra(k string, m kubernetes.Member) bool {
	t := j.expected.objects[k]
	switch {
	case t != nil && (t.wanted || t.variant):
		return false
	case m.Application != j.id, m.Piped != j.PipedID, m.Owned, m.Hook, m.Deleting, m.Ignored:
		return false
	case m.Variant == string(config.Canary), m.Variant == string(config.Baseline):
		return false
	}
	return j.expected.problem == ""
}

// describeExtras reads what is one too many.
func (j *judgement) describeExtras(ctx context.Context, cluster string, extra []suspect) error {
	if len(extra) == 0 {
		return nil
	}
	leave, err := j.enter(cluster)
	if err != nil {
		return err
	}
	defer leave()
	held, release, err := j.Clusters.Hold(cluster, j.app)
	if err != nil {
		j.unanswered(cluster, extra, err)
		return nil
	}
	defer release()
	req := kubernetes.CompareRequest{ApplicationID: j.id, PipedID: j.PipedID, Conceal: j.expected.conceal, Diff: j.diff}
	for _, s := range extra {
		req.Only = append(req.Only, s.ref)
	}
	results, err := bounded(ctx, req, held.DescribeExtra)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		j.unanswered(cluster, extra, err)
		return nil
	}
	for i, c := range results {
		j.take(extra[i], c)
	}
	return nil
}
