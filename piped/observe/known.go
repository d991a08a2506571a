package observe

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/cluster/workloads"
	"github.com/c785c783/piped/piped/deploy"
)

// knownWorkload is the state of one workload.
type knownWorkload struct {
	taken     bool // it is being reconciled
	uid       string
	revision  int64           // this revision and all earlier ones are recorded
	images    string          // of that revision, where all workloads are watched
	open      *deploy.Rollout // the record that has not ended, as stored; nil if all have
	failed    *deploy.Rollout // the newest record if it has failed, and may complete after all
	paused    bool            // when it was last seen
	resumed   time.Time       // when it was first seen not to be paused any more
	undecided bool            // it is not known yet whether a new revision is external
	away      time.Duration   // the outages by which the deadlines of open are postponed
}

// workloadKey identifies a workload in the cluster.
type workloadKey struct {
	kind string
	types.NamespacedName
}

// ref returns the workload as an object.
func (k workloadKey) ref() deploy.ObjectRef {
	return deploy.ObjectRef{Group: "apps", Version: "v1", Kind: k.kind, Namespace: k.Namespace, Name: k.Name}
}

func keyOf(ref deploy.ObjectRef) workloadKey {
	return workloadKey{ref.Kind, types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}}
}

// take returns a copy of what is known of a workload, nil if nothing is. The caller changes the copy and
// puts it back; only one caller at a time takes a workload.
func (x *ExternalRollouts) take(key workloadKey) *knownWorkload {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.known[key]
	if known == nil {
		return nil
	}
	known.taken = true
	copied := *known
	copied.taken = false
	x.postpone(&copied)
	return &copied
}

// put replaces what is known of a workload; nil forgets it.
func (x *ExternalRollouts) put(key workloadKey, known *knownWorkload) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if known == nil {
		delete(x.known, key)
		return
	}
	x.known[key] = known
}

// postpone postpones the deadlines of an open record by the outages since it was last postponed. x.mu
// is held.
func (x *ExternalRollouts) postpone(known *knownWorkload) {
	if was := x.away - known.away; was > 0 && known.open != nil {
		open := rollout.Postponed(*known.open, was, x.cfg.Now())
		known.open = &open
	}
	known.away = x.away
}

// settled reports whether a revision is recorded, and its workload has no open record: most of
// the cluster's revisions, of which every one is handled at the start.
func (x *ExternalRollouts) settled(r *workloads.Revision, of workloadKey) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.known[of]
	return known != nil && !known.taken && known.uid == r.OwnerUID() && r.Number() <= known.revision && known.open == nil && known.failed == nil && !known.undecided
}

// opens makes the open record of a taken workload known. If it is the only one, the Lease is read from
// now on; that it was not read meanwhile is no outage.
func (x *ExternalRollouts) opens(known knownWorkload) {
	known.taken = true
	x.mu.Lock()
	first := !x.anyOpen()
	x.known[keyOf(known.open.Workload)] = &known
	x.mu.Unlock()
	if !first {
		return
	}
	x.lease.Lock()
	x.presence = rollout.Presence{}
	x.lease.Unlock()
	select {
	case x.opened <- struct{}{}:
	default:
	}
}

// anyOpen reports whether a record is open. x.mu is held.
func (x *ExternalRollouts) anyOpen() bool {
	for _, known := range x.known {
		if known.open != nil {
			return true
		}
	}
	return false
}

// policy returns the policy for evaluating the open record of a workload, whose deadlines are postponed
// by the time for which the cluster or its controllers were unavailable.
func (x *ExternalRollouts) policy(ctx context.Context, known *knownWorkload) rollout.Policy {
	presence := x.readLease(ctx)
	x.mu.Lock()
	x.postpone(known)
	x.mu.Unlock()
	return presence.Policy(rollout.Policy{NoFailFast: true, FieldManager: x.cfg.FieldManager}, x.started)
}

// readLease returns the presence of the cluster, after it has read the Lease of the cluster's controllers
// if that is due.
func (x *ExternalRollouts) readLease(ctx context.Context) rollout.Presence {
	x.lease.Lock()
	defer x.lease.Unlock()
	now := x.cfg.Now()
	if !x.presence.Due(now) {
		return x.presence
	}
	ctx, cancel := context.WithTimeout(ctx, workloads.FillTimeout)
	defer cancel()
	lease, err := x.cfg.Observer.Controllers(ctx)
	if err != nil {
		x.presence.Lost(now, err)
		return x.presence
	}
	was := x.presence.Seen(now, lease)
	x.mu.Lock()
	x.away += was
	x.mu.Unlock()
	return x.presence
}
