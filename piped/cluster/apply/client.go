package apply

import (
	"github.com/c785c783/piped/piped/cluster"
)

// Client applies objects to one cluster, compares them with what is live, and prunes and
// deletes them. It is safe for concurrent use.
type Client struct {
	*cluster.Cluster
	dryRuns *dryRuns
}

// New returns a Client of a cluster. There must be one for each cluster, with which it
// shares what limits its dry runs.
func New(c *cluster.Cluster) *Client { return &Client{c, newDryRuns()} }

// As returns a Client that impersonates a user; see cluster.As.
func (c *Client) As(user string) (*Client, error) {
	as, err := c.Cluster.As(user)
	if err != nil {
		return nil, err
	}
	return &Client{as, c.dryRuns}, nil
}
