package apply

import (
	"github.com/c785c783/piped/piped/cluster"
)

// Client applies objects to one cluster, compares them with the live objects, and deletes
// them. It is safe for concurrent use.
type Client struct {
	*cluster.Cluster
	dryRuns *dryRuns
}

// New returns a Client of a cluster. Call it once per cluster: each result has its own rate
// limit and cache for the dry runs of comparisons.
func New(c *cluster.Cluster) *Client { return &Client{c, newDryRuns()} }

// As returns a Client that impersonates a user (cluster.Cluster.As). It shares the rate limit
// and cache for dry runs with c.
func (c *Client) As(user string) (*Client, error) {
	as, err := c.Cluster.As(user)
	if err != nil {
		return nil, err
	}
	return &Client{as, c.dryRuns}, nil
}
