package cluster

import (
	"cmp"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/c785c783/piped/piped/deploy"
)

// As returns the cluster as another user sees it: what is read of objects and
// written through it is done in that user's name (impersonation), for which the
// agent needs the right to impersonate. Connections, and what is known of the
// kinds, are the cluster's own; there is nothing to close. An application whose
// objects are watched is watched by the agent itself.
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

// remedy follows a refusal of the API server: what to do, and who was refused where
// that is not the agent itself.
func (c *Cluster) remedy(refused error) string {
	if c.user == "" {
		return grant(refused)
	}
	return fmt.Sprintf("; the application acts as %s, as the agent's tenancy rules say: give that account the right, or the agent the right to impersonate it%s", c.user, grant(refused))
}
