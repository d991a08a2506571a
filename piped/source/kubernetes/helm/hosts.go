package helm

import (
	"context"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/outbound"
)

// hosts are those that the agent's configuration names, as a name or as name:port. They
// may have private addresses; what only a chart names may not.
type hosts map[string]bool

// namedHosts returns the hosts of chart repositories and registries, those that are
// allowed, and the proxies of the environment, through which all others are reached.
func namedHosts(repositories []config.ChartRepository, registries []config.ChartRegistry, allowed []string) hosts {
	h := hosts{}
	for _, r := range repositories {
		h.add(r.Address)
	}
	for _, r := range registries {
		h.add(r.Address)
	}
	for _, a := range allowed {
		h[strings.ToLower(a)] = true
	}
	for _, variable := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		h.add(os.Getenv(variable))
	}
	return h
}

// add adds the host of an address, with its port if it names one.
func (h hosts) add(address string) {
	if !strings.Contains(address, "://") {
		address = "//" + address
	}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		h[strings.ToLower(u.Host)] = true
	}
}

// has reports whether a host:port is named.
func (h hosts) has(address string) bool {
	address = strings.ToLower(address)
	host, _, err := net.SplitHostPort(address)
	return h[address] || err == nil && h[host]
}

// dial connects to a host. The address that its name resolves to is checked.
func (h hosts) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 10 * time.Second, Control: outbound.NotPrivate}
	if h.has(address) {
		d.Control = outbound.NotMetadata
	}
	return d.DialContext(ctx, network, address)
}
