package cluster

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/c785c783/piped/piped/deploy"
)

// As returns a client of the same cluster that impersonates a user in all reads and writes
// of objects. The agent needs the right to impersonate. Connections and discovery are
// shared with the cluster; the result needs no Close. Watches use the agent's own account.
func (c *Cluster) As(user string) (*Cluster, error) {
	as := *c
	as.user = user
	as.config = rest.CopyConfig(c.config)
	as.config.Impersonate = rest.ImpersonationConfig{UserName: user}
	base := cmp.Or[http.RoundTripper](c.http.Transport, http.DefaultTransport)
	client := &http.Client{Timeout: c.http.Timeout}
	client.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, base)
	if err := as.makeClients(client); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "prepare access to cluster %q as %s: %w", c.name, user, err)
	}
	return &as, nil
}

// Remedy returns advice on a refusal by the API server, as the end of a message: the RBAC
// rule that would permit the request and the impersonated user. It is "" without either.
func (c *Cluster) Remedy(refused error) string {
	if c.user == "" {
		return grant(refused)
	}
	return fmt.Sprintf("; the application acts as %s, as the agent's tenancy rules say: give that account the right, or the agent the right to impersonate it%s", c.user, grant(refused))
}
