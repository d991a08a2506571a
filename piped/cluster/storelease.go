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
	"k8s.io/client-go/util/retry"

	"github.com/c785c783/piped/piped/deploy"
)

// LeaseNamespace is the namespace of the agents' Leases. It exists in every cluster.
const LeaseNamespace = "default"

// Annotations of a Lease.
const (
	annotationLeaseHost  = "pipecd.dev/host"
	annotationLeasePiped = "pipecd.dev/piped"
)

const (
	leaseRenewEvery = 15 * time.Second
	leaseDuration   = 60 * time.Second
	leaseRetryEvery = 5 * time.Second  // after an attempt that neither acquired nor renewed it
	leaseFirst      = 10 * time.Second // how long Problem waits for the first attempt
	leaseTimeout    = 10 * time.Second // of one attempt to acquire or renew, and of the release
)

// StoreLeaseConfig configures a StoreLease. All fields are required unless they have a
// default or may be nil.
type StoreLeaseConfig struct {
	Cluster *Cluster
	PipedID string
	StoreID string
	Host    string // the host that the agent runs on
	Changed func() // called when Known starts or stops returning an error; may be nil
	Logger  *slog.Logger
	Now     func() time.Time

	RenewEvery, RetryEvery, Duration time.Duration // defaults 15 s, 5 s and 60 s
}

// StoreLease prevents two stores from managing one cluster under one piped ID. The cluster
// has a coordination.k8s.io Lease for each piped ID, whose holder is a store. The agent of
// that store manages the cluster; agents with other stores wait until the Lease has expired.
// Another agent with the same store continues at once.
//
// Once a StoreLease exists, the cluster's clients send writes only while this store holds the
// Lease, and for at most half of the Lease's duration after the last renewal was sent. Such a
// write is answered or times out (requestTimeout) before another store can hold the Lease. If
// the agent may not write Leases, nothing is held. StoreLease is a component: call Run once.
type StoreLease struct {
	StoreLeaseConfig

	answered chan struct{} // closed after the first attempt

	mu      sync.Mutex
	problem error // names the other store that holds the Lease; nil if none does
	warned  string
	sent    time.Time // when the last renewal was sent; zero while this store is not the holder
	failure error     // the last error since the last attempt that succeeded
	refused bool      // the agent has no permission to write Leases

	// The last renewal by another holder, and when the agent saw it replace an earlier one.
	// Only Run uses these.
	renewal metav1.MicroTime
	renewed time.Time
}

// NewStoreLease returns a StoreLease that is not acquired yet. From now on the clients of
// c.Cluster hold their writes until Run has acquired it.
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

// LeaseName returns the name of the Lease of a piped ID: "piped-" and the ID if that is a
// valid name, otherwise a digest of the ID.
func LeaseName(pipedID string) string {
	if name := "piped-" + strings.ToLower(pipedID); name == "piped-"+pipedID && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(pipedID))
	return "piped-" + hex.EncodeToString(sum[:16])
}

// ErrReplaced is the cause of Run's ctx when another connection of this agent continues to
// use the cluster, so that Run must not release the Lease.
var ErrReplaced = errors.New("the connection to the cluster was replaced or removed")

// Run acquires and renews the Lease until ctx ends. It then releases the Lease, so that
// another store need not wait for its expiry, unless the cause of ctx's end is ErrReplaced.
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

// Problem returns an error of kind Unavailable while another store holds the Lease. It first
// waits for the first attempt of Run, at most leaseFirst. It returns nil if the cluster does
// not answer or forbids to write the Lease.
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

// permit returns an error of kind Unavailable unless the agent may write to the cluster. It
// returns nil for a nil StoreLease, and without the permission to write Leases.
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

// age returns how long ago the last renewal was sent: the longer of the times by the monotonic
// and the wall clock, because the monotonic clock stops while the machine is suspended.
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

// note records the result of an attempt: another store is the holder (problem), this store
// has renewed (sent is not zero), or the agent may not write the Lease (refused).
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

// failed records and logs why the Lease cannot be renewed. During an outage of the cluster
// it logs only if no other component has logged the outage (Cluster.Outage).
func (l *StoreLease) failed(err error) {
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
	if lasts, first := l.Cluster.Outage(); !lasts || first {
		l.warnOnce(fmt.Sprintf("cannot renew Lease %s/%s; trying again: %v", LeaseNamespace, LeaseName(l.PipedID), err))
	}
}

// warnOnce logs a warning unless it is equal to the last one.
func (l *StoreLease) warnOnce(text string) {
	l.mu.Lock()
	repeated := l.warned == text
	l.warned = text
	l.mu.Unlock()
	if !repeated {
		l.Logger.Warn(text)
	}
}

// acquire makes this store the holder of the Lease, or renews it. Other names the store that
// holds the Lease instead; err is the unclassified error of a request.
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

// heldByAnother returns an error that names the other store while its Lease has not expired:
// by the time of the API server, or because the agent saw a renewal within the duration.
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
	alive := !l.renewed.IsZero() && now.Sub(l.renewed) < lasts // does not depend on clock skew
	if !alive && !l.clusterTime().Before(s.RenewTime.Add(lasts)) {
		return nil
	}
	return deploy.Errorf(deploy.Unavailable, "cluster %q is managed by another agent with piped ID %q, on host %s with store %s, while this agent's store is %s: "+
		"stop one of the two, or give them different piped IDs; this agent takes over when Lease %s/%s has not been renewed for %s",
		l.Cluster.Name(), l.PipedID, lease.Annotations[annotationLeaseHost], *s.HolderIdentity, l.StoreID, LeaseNamespace, lease.Name, lasts)
}

// clusterTime returns the estimated time of the API server. Agents write and compare renew
// times by it, because their own clocks may differ by more than the duration of the Lease.
func (l *StoreLease) clusterTime() time.Time { return l.Now().Add(l.Cluster.Skew()) }

// fill sets the holder, the times and the annotations of the Lease for this store.
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

// release clears the holder of the Lease if this agent holds it. If the request fails, the
// Lease expires by itself.
func (l *StoreLease) release(ctx context.Context) {
	l.mu.Lock()
	held := !l.sent.IsZero()
	l.sent = time.Time{} // from now on the fence holds all writes
	l.mu.Unlock()
	if !held {
		return
	}
	ctx, done := context.WithTimeout(withoutFence(ctx), leaseTimeout)
	defer done()
	leases := l.Cluster.Typed().CoordinationV1().Leases(LeaseNamespace)
	// A renewal that was cancelled may still reach the cluster: then the Lease is read again.
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		lease, err := leases.Get(ctx, LeaseName(l.PipedID), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.StoreID || lease.Annotations[annotationLeaseHost] != l.Host {
			return nil // another agent of the store holds it
		}
		none := ""
		lease.Spec.HolderIdentity = &none
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		l.Logger.Debug("the Lease was not given up; it expires by itself", "error", err)
	}
}
