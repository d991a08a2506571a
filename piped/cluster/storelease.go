package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/deploy"
)

// LeaseNamespace is the namespace of the agents' Leases. Every cluster has it.
const LeaseNamespace = "default"

// Annotations of a Lease.
const (
	annotationLeaseHost  = "pipecd.dev/host"
	annotationLeasePiped = "pipecd.dev/piped"
)

const (
	leaseRenewEvery = 15 * time.Second
	leaseDuration   = 60 * time.Second
	leaseRetryEvery = 5 * time.Second  // while another store holds it, or the cluster does not answer
	leaseFirst      = 10 * time.Second // how long Problem waits for the first attempt
	leaseTimeout    = 10 * time.Second // of one attempt
)

// StoreLeaseConfig is what a StoreLease needs.
type StoreLeaseConfig struct {
	Cluster *Cluster
	PipedID string
	StoreID string
	Host    string // where the agent runs
	Changed func() // called when Problem returns nil after an error, or the reverse; may be nil
	Logger  *slog.Logger
	Now     func() time.Time

	RenewEvery, RetryEvery, Duration time.Duration // defaults 15 s, 5 s and 60 s
}

// StoreLease prevents two stores from managing one cluster under one piped ID. The agent of
// the store that holds the cluster's coordination.k8s.io Lease for the ID manages it;
// others wait until the Lease has expired. An agent of the same store continues at once.
//
// From its creation on, the cluster's clients send writes only while this store holds the
// Lease, and by the monotonic clock for at most half of its duration after the last
// renewal was sent: such a write is answered or times out (requestTimeout) before another
// store can hold the Lease. It is a component: call Run once.
type StoreLease struct {
	StoreLeaseConfig

	answered chan struct{} // closed after the first attempt

	mu      sync.Mutex
	problem error // another store holds it; nil otherwise
	warned  string
	sent    time.Time // when the last renewal was sent; zero: this store does not hold it
	failure error     // the error of the last attempt since
	refused bool      // the agent has no right to write Leases

	// The last renewal of another holder, and when it was observed to follow an earlier
	// one. Of Run only.
	renewal metav1.MicroTime
	renewed time.Time
}

// NewStoreLease returns a StoreLease that is not acquired yet.
func NewStoreLease(c StoreLeaseConfig) *StoreLease {
	if c.RenewEvery == 0 {
		c.RenewEvery = leaseRenewEvery
	}
	if c.RetryEvery == 0 {
		c.RetryEvery = leaseRetryEvery
	}
	if c.Duration == 0 {
		c.Duration = leaseDuration
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	l := &StoreLease{StoreLeaseConfig: c, answered: make(chan struct{})}
	c.Cluster.fence.lease.Store(l)
	return l
}

// LeaseName returns the name of the Lease of a piped ID. It contains the ID if that is
// valid in a name, otherwise a digest of it.
func LeaseName(pipedID string) string {
	if name := "piped-" + strings.ToLower(pipedID); name == "piped-"+pipedID && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(pipedID))
	return "piped-" + hex.EncodeToString(sum[:16])
}

// ErrReplaced is the cause that ends Run where the agent continues to use the cluster.
var ErrReplaced = errors.New("the connection to the cluster was replaced or removed")

// Run acquires and renews the Lease until ctx ends, and then releases it, so that another
// store need not wait for its expiry. It does not release it if ctx ends with ErrReplaced.
func (l *StoreLease) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	first := true
	for {
		select {
		case <-ctx.Done():
			if !errors.Is(context.Cause(ctx), ErrReplaced) {
				l.release(context.WithoutCancel(ctx))
			}
			return
		case <-timer.C:
		}
		timer.Reset(l.attempt(ctx))
		if first && ctx.Err() == nil {
			first = false
			close(l.answered)
		}
	}
}

// Problem returns an error of kind Unavailable while another store holds the Lease. It
// waits for the first attempt, at most leaseFirst. A cluster that does not answer, or
// forbids the Lease, is no problem.
func (l *StoreLease) Problem(ctx context.Context) error {
	wait := time.NewTimer(leaseFirst)
	defer wait.Stop()
	select {
	case <-l.answered:
	case <-wait.C:
	case <-ctx.Done():
	}
	return l.Known()
}

// Known is Problem without the wait. It returns nil for a nil StoreLease.
func (l *StoreLease) Known() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// permit returns an error of kind Unavailable unless the agent may write to the cluster.
func (l *StoreLease) permit() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.problem != nil || l.refused {
		return l.problem
	}
	if !l.sent.IsZero() && l.age() < l.Duration/2 {
		return nil
	}
	since, why := "yet", ""
	if !l.sent.IsZero() {
		since = fmt.Sprintf("for %s", l.age().Round(time.Second))
	}
	if l.failure != nil {
		why = fmt.Sprintf(" (%v)", l.failure)
	}
	return deploy.Errorf(deploy.Unavailable, "Lease %s/%s of cluster %q could not be renewed %s%s, and an agent with another store may take it: "+
		"this agent, on host %s with store %s, waits until it has renewed it", LeaseNamespace, LeaseName(l.PipedID), l.Cluster.Name(), since, why, l.Host, l.StoreID)
}

// age returns how long ago the last renewal was sent, by the monotonic or the wall clock,
// whichever shows more: the monotonic clock does not count the time of a suspended machine.
func (l *StoreLease) age() time.Duration {
	now := l.Now()
	return max(now.Sub(l.sent), now.Round(0).Sub(l.sent.Round(0)))
}

// attempt acquires or renews the Lease once, and returns the time until the next attempt.
func (l *StoreLease) attempt(ctx context.Context) (next time.Duration) {
	limited, done := context.WithTimeout(withoutFence(ctx), leaseTimeout)
	defer done()
	sent := l.Now()
	other, err := l.acquire(limited)
	switch {
	case err == nil && other != nil:
		l.note(other, time.Time{}, false)
	case err == nil:
		l.note(nil, sent, false)
	case ctx.Err() != nil:
		return l.RetryEvery
	case apierrors.IsForbidden(err):
		l.note(nil, time.Time{}, true)
		l.warnOnce(fmt.Sprintf("cannot write Lease %s/%s, which keeps another agent with the same piped ID and another store from this cluster: %v%s",
			LeaseNamespace, LeaseName(l.PipedID), err, grant(err)))
		return l.RenewEvery
	default:
		l.failed(err)
	}
	if err != nil || other != nil {
		return l.RetryEvery
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.warned = ""
	return l.RenewEvery
}

// note records the holder of the Lease: another store (problem), this one by a renewal sent
// at that time, or unknown because the agent was refused.
func (l *StoreLease) note(problem error, sent time.Time, refused bool) {
	l.mu.Lock()
	was := l.problem
	l.problem, l.sent, l.failure, l.refused = problem, sent, nil, refused
	changed := (was == nil) != (problem == nil)
	l.mu.Unlock()
	if !changed {
		return
	}
	if problem != nil {
		l.Logger.Error("another agent manages the cluster; its applications are held", "error", problem)
	} else {
		l.Logger.Info("the Lease of the other agent has expired; this agent manages the cluster now")
	}
	l.Changed()
}

// failed logs why the Lease cannot be renewed. An outage of the whole cluster is logged
// once for all (Cluster.Outage).
func (l *StoreLease) failed(err error) {
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
	if lasts, first := l.Cluster.Outage(); !lasts || first {
		l.warnOnce(fmt.Sprintf("cannot renew Lease %s/%s; trying again: %v", LeaseNamespace, LeaseName(l.PipedID), err))
	}
}

// warnOnce logs a warning unless it repeats the last one.
func (l *StoreLease) warnOnce(text string) {
	l.mu.Lock()
	repeated := l.warned == text
	l.warned = text
	l.mu.Unlock()
	if !repeated {
		l.Logger.Warn(text)
	}
}

// acquire makes this store the holder of the Lease, or returns an error that names the
// other holder.
func (l *StoreLease) acquire(ctx context.Context) (other, err error) {
	leases := l.Cluster.Typed().CoordinationV1().Leases(LeaseNamespace)
	lease, err := leases.Get(ctx, LeaseName(l.PipedID), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: LeaseNamespace, Name: LeaseName(l.PipedID)}}
		l.fill(lease)
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	if other := l.heldByAnother(lease); other != nil {
		return other, nil
	}
	l.fill(lease)
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return nil, err
}

// heldByAnother returns an error that names the other store while its Lease is in force.
func (l *StoreLease) heldByAnother(lease *coordinationv1.Lease) error {
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || *s.HolderIdentity == l.StoreID || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return nil
	}
	now, lasts := l.Now(), time.Duration(*s.LeaseDurationSeconds)*time.Second
	if !l.renewal.IsZero() && !l.renewal.Equal(s.RenewTime) {
		l.renewed = now
	}
	l.renewal = *s.RenewTime
	alive := !l.renewed.IsZero() && now.Sub(l.renewed) < lasts // regardless of clock skew
	if !alive && !l.clusterTime().Before(s.RenewTime.Add(lasts)) {
		return nil
	}
	return deploy.Errorf(deploy.Unavailable, "cluster %q is managed by another agent with piped ID %q, on host %s with store %s, while this agent's store is %s: "+
		"stop one of the two, or give them different piped IDs; this agent takes over when Lease %s/%s has not been renewed for %s",
		l.Cluster.Name(), l.PipedID, lease.Annotations[annotationLeaseHost], *s.HolderIdentity, l.StoreID, LeaseNamespace, lease.Name, lasts)
}

// clusterTime returns the estimated time of the API server. Renewals are written and
// compared by it, because the clocks of two agents may differ by more than the duration of
// the Lease.
func (l *StoreLease) clusterTime() time.Time { return l.Now().Add(l.Cluster.Skew()) }

// fill makes this store the holder in the Lease.
func (l *StoreLease) fill(lease *coordinationv1.Lease) {
	now, seconds := metav1.NewMicroTime(l.clusterTime()), int32(l.Duration/time.Second)
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.StoreID {
		lease.Spec.AcquireTime = &now
		transitions := int32(0)
		if lease.Spec.LeaseTransitions != nil {
			transitions = *lease.Spec.LeaseTransitions + 1
		}
		lease.Spec.LeaseTransitions = &transitions
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[annotationLeaseHost], lease.Annotations[annotationLeasePiped] = l.Host, l.PipedID
	holder := l.StoreID
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = &holder, &now, &seconds
}

// release releases the Lease if this store holds it. If that fails, it expires.
func (l *StoreLease) release(ctx context.Context) {
	l.mu.Lock()
	held := !l.sent.IsZero()
	l.sent = time.Time{} // no write passes the fence from here on
	l.mu.Unlock()
	if !held {
		return
	}
	ctx, done := context.WithTimeout(withoutFence(ctx), 2*time.Second)
	defer done()
	leases := l.Cluster.Typed().CoordinationV1().Leases(LeaseNamespace)
	lease, err := leases.Get(ctx, LeaseName(l.PipedID), metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.StoreID || lease.Annotations[annotationLeaseHost] != l.Host {
		return // another agent of the store holds it
	}
	none := ""
	lease.Spec.HolderIdentity = &none
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		l.Logger.Debug("the Lease was not given up; it expires by itself", "error", err)
	}
}
