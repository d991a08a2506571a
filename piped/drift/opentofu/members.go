package opentofu

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Members answers the drift detector for the applications of one platform provider. It implements
// drift.Members and drift.Comparer. Two values for the same provider are equal.
type Members struct {
	w        *Watcher
	provider string
}

// Members returns the resources of a platform provider.
func (w *Watcher) Members(provider string) Members { return Members{w, provider} }

// Follow implements drift.Members.
func (Members) Follow([]deploy.ObjectRef) {}

// errNotYet is the error of resources before the first comparison since the start.
var errNotYet = errors.New("the resources have not been compared with the state since the agent started")

// Ready implements drift.Members.
func (m Members) Ready(ref deploy.ObjectRef) (time.Time, error) {
	_, o, enabled := m.w.find(m.provider, ref)
	switch {
	case !enabled:
		return time.Time{}, nil
	case o.err != nil:
		return o.since, o.err
	case o.at.IsZero():
		return m.w.started, errNotYet
	}
	return time.Time{}, nil
}

// Get implements drift.Members. Without comparisons, resources are as they were applied.
func (m Members) Get(ref deploy.ObjectRef) (live.Member, bool) {
	id, o, _ := m.w.find(m.provider, ref)
	if id == "" {
		return live.Member{}, false
	}
	member := live.Member{Object: ref, UID: ref.Key(), OwnedHash: m.w.Mark, Mark: m.w.Mark, ResourceVersion: m.w.Mark, Application: id, Piped: m.w.PipedID}
	d, differs := o.diffs[ref.Key()]
	if differs && d.Missing {
		return live.Member{}, false
	}
	if differs {
		member.Mark, member.ResourceVersion = d.mark(), d.mark()
	}
	return member, true
}

// Of implements drift.Members. A resource that is in no state is unknown.
func (Members) Of(string) []live.Member { return nil }

// Compare implements drift.Comparer with the last result.
func (m Members) Compare(_ context.Context, req apply.CompareRequest) (out []apply.Compared, err error) {
	for _, o := range req.Objects {
		ref := manifest.Ref(o.Unstructured)
		if !slices.Contains(req.Only, ref) {
			continue
		}
		member, there := m.Get(ref)
		c := apply.Compared{Object: ref, UID: ref.Key(), OwnedHash: m.w.Mark, Mark: member.Mark, ResourceVersion: member.ResourceVersion, Missing: !there}
		_, last, _ := m.w.find(m.provider, ref)
		d, differs := last.diffs[ref.Key()]
		switch {
		case !there:
			c.Drift = &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftMissing}
		case differs:
			c.Drift = &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftChanged, Fields: d.Fields}
		default:
			c.Unchanged = true
		}
		out = append(out, c)
	}
	return out, nil
}

// DescribeExtra implements drift.Comparer: the agent knows only what the state has.
func (Members) DescribeExtra(_ context.Context, req apply.CompareRequest) (out []apply.Compared, err error) {
	for _, ref := range req.Only {
		out = append(out, apply.Compared{Object: ref, UID: ref.Key(), Missing: true})
	}
	return out, nil
}
