package app

import (
	"context"
	"os"
	"time"

	"github.com/c785c783/piped/executor/kubernetes"
	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// leaseSpec identifies an agent among those with its piped ID.
type leaseSpec struct {
	pipedID, storeID string
	every            time.Duration // negative: no Leases
}

// newLease returns the Lease of a cluster, nil if there are no Leases.
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
		Changed: func() { c.changed("") }, Logger: c.logger.With("cluster", access.Name()), Now: c.now,
	})
}

// Managed returns an error if another agent manages the cluster of a provider. It waits briefly
// for the first answer of the cluster.
func (c *clusters) Managed(ctx context.Context, provider string) error {
	c.mu.Lock()
	conn := c.configured[provider]
	c.mu.Unlock()
	if conn == nil || conn.lease == nil {
		return nil
	}
	return conn.lease.Problem(ctx)
}

// refused is Managed without waiting.
func (c *connection) refused() error { return c.lease.Known() }

// stageClusters are the clusters for stages, including those that another agent manages: they
// can be read, while writes of a stage wait.
type stageClusters struct{ *clusters }

// Hold implements the executors' Clusters.
func (c stageClusters) Hold(provider string) (kubernetes.Cluster, func(), error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hold(provider)
}

// managed is Managed without waiting.
func (c *clusters) managed(provider string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn := c.known(provider); conn != nil {
		return conn.refused()
	}
	return nil
}

// refuseWrites is the permission of an agent that only observes.
func refuseWrites(context.Context) error {
	return deploy.Errorf(deploy.Denied, "this agent only observes, and writes to no cluster: run one that deploys with piped run")
}
