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

// LeaseNamespace holds the Leases of agents: a namespace that every cluster has, so that
// agents from anywhere meet there.
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
	leaseFirst      = 10 * time.Second // how long the first answer is waited for
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

// StoreLease keeps two stores from managing one cluster under one piped ID: the agent of the
// store that holds the cluster's coordination.k8s.io Lease for the ID manages it, others
// wait until it has expired. An agent of the same store continues at once. From its creation
// on the cluster's clients send nothing that writes unless this store holds the Lease, by
// the monotonic clock for no longer than half of its duration after the last renewal was
// sent: what is sent then is answered or given up (requestTimeout) before another store may
// hold it. It is a component: call Run once.
type StoreLease struct {
	StoreLeaseConfig

	answered chan struct{} // closed after the first attempt

	mu      sync.Mutex
	problem error // another store holds it; nil otherwise
	warned  string
	sent    time.Time // when the last renewal was sent; zero: this store does not hold it
	failure error     // why it could not be renewed since
	refused bool      // the agent has no right to write Leases

	// What Run has seen of another holder: its last renewal, and when that was seen to follow an
	// earlier one.
	renewal metav1.MicroTime
	renewed time.Time
}

// NewStoreLease returns a StoreLease that is not asked for yet.
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

// LeaseName returns the name of the Lease of a piped ID: the ID where it can be a part of
// a name, a digest of it otherwise.
func LeaseName(pipedID string) string {
	if name := "piped-" + strings.ToLower(pipedID); name == "piped-"+pipedID && len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(pipedID))
	return "piped-" + hex.EncodeToString(sum[:16])
}

// ErrReplaced is the cause to end Run with where the agent goes on to use the cluster.
var ErrReplaced = errors.New("the connection to the cluster was replaced or removed")

// Run acquires and renews the Lease until ctx ends, and then gives it up, so that another
// store need not wait for its end. It is left to expire if ctx ends with ErrReplaced. An
// agent that is killed gives up nothing.
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
// waits briefly for the first answer of the cluster. A cluster that does not answer, or
// permits no Leases, is no problem.
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

// Known is Problem as far as it is known now. Nil without a Lease.
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

// age returns how long ago the last renewal was sent. The monotonic clock does not count
// the time for which the machine was suspended, the other one may.
func (l *StoreLease) age() time.Duration {
	now := l.Now()
	return max(now.Sub(l.sent), now.Round(0).Sub(l.sent.Round(0)))
}

// attempt acquires or renews the Lease once, and returns when to do so next.
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

// note stores who holds the Lease: another store if there is a problem, or else this one by
// a renewal that was sent at a time, or it is not known because the agent was refused.
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

// failed logs why the Lease cannot be renewed; an outage of the whole cluster only if
// nothing else has logged that.
func (l *StoreLease) failed(err error) {
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
	if lasts, first := l.Cluster.Outage(); !lasts || first {
		l.warnOnce(fmt.Sprintf("cannot renew Lease %s/%s; trying again: %v", LeaseNamespace, LeaseName(l.PipedID), err))
	}
}

// warnOnce logs a warning when it is another than the last one.
func (l *StoreLease) warnOnce(text string) {
	l.mu.Lock()
	repeated := l.warned == text
	l.warned = text
	l.mu.Unlock()
	if !repeated {
		l.Logger.Warn(text)
	}
}

// acquire makes this store the holder of the Lease, or says which other one is.
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
	alive := !l.renewed.IsZero() && now.Sub(l.renewed) < lasts // whatever the clocks say
	if !alive && !l.clusterTime().Before(s.RenewTime.Add(lasts)) {
		return nil
	}
	return deploy.Errorf(deploy.Unavailable, "cluster %q is managed by another agent with piped ID %q, on host %s with store %s, while this agent's store is %s: "+
		"stop one of the two, or give them different piped IDs; this agent takes over when Lease %s/%s has not been renewed for %s",
		l.Cluster.Name(), l.PipedID, lease.Annotations[annotationLeaseHost], *s.HolderIdentity, l.StoreID, LeaseNamespace, lease.Name, l.Duration)
}

// clusterTime returns what the API server's clock shows, as far as it is known. Renewals are
// written and compared by it, because the clocks of two agents may differ by more than the
// Lease lasts.
func (l *StoreLease) clusterTime() time.Time { return l.Now().Add(l.Cluster.Skew()) }

// fill writes into the Lease that this store holds it from now on.
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

// release gives the Lease up if this store holds it. What fails is left to its expiry.
func (l *StoreLease) release(ctx context.Context) {
	l.mu.Lock()
	held := !l.sent.IsZero()
	l.sent = time.Time{} // nothing is written from here on
	l.mu.Unlock()
	if !held {
		return
	}
	ctx, done := context.WithTimeout(withoutFence(ctx), 2*time.Second)
	defer done()
	leases := l.Cluster.Typed().CoordinationV1().Leases(LeaseNamespace)
	lease, err := leases.Get(ctx, LeaseName(l.PipedID), metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != l.StoreID || lease.Annotations[annotationLeaseHost] != l.Host {
		return // or another agent of the store has it
	}
	none := ""
	lease.Spec.HolderIdentity = &none
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
		l.Logger.Debug("the Lease was not given up; it expires by itself", "error", err)
	}
}
