package app

import (
	"context"
	"os"
	"time"

	cluster "github.com/c785c783/piped/piped/kubernetes"
)

// leaseSpec is who an agent is to the others of its piped ID.
type leaseSpec struct {
	pipedID, storeID string
	every            time.Duration // negative: no Leases
}

// newLease returns the Lease of a cluster, nil if clusters are used without.
func (c *clusters) newLease(access *cluster.Cluster) *cluster.StoreLease {
	if c.lease.storeID == "" || c.lease.every < 0 {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return cluster.NewStoreLease(cluster.StoreLeaseConfig{
		Cluster: access, PipedID: c.lease.pipedID, StoreID: c.lease.storeID, Host: host, RenewEvery: c.lease.every,
		Changed: func() { c.wake("") }, Logger: c.logger.With("cluster", access.Name()), Now: c.now,
	})
}

// Managed returns why this agent does not manage the cluster of a provider: another one
// does. It waits briefly for the first answer of the cluster.
func (c *clusters) Managed(ctx context.Context, provider string) error {
	c.mu.Lock()
	conn := c.configured[provider]
	c.mu.Unlock()
	if conn == nil || conn.lease == nil {
		return nil
	}
	return conn.lease.Problem(ctx)
}

// refused is Managed as far as it is known now.
func (c *connection) refused() error {
	if c.lease == nil {
		return nil
	}
	return c.lease.Known()
}
