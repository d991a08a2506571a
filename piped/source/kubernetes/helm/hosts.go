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

// hosts is the set of hosts in the agent's configuration, as name or name:port in lower case.
// Only these hosts may have private addresses; hosts that only a chart refers to may not.
type hosts map[string]bool

// namedHosts returns the hosts of chart repositories and registries, the allowed hosts, and
// the HTTP proxies of the environment, through which all other hosts may be reached.
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

// has reports whether a host:port is in the set, with or without its port.
func (h hosts) has(address string) bool {
	address = strings.ToLower(address)
	host, _, err := net.SplitHostPort(address)
	return h[address] || err == nil && h[host]
}

// dial connects to a host. It checks the resolved address by outbound.NotMetadata for hosts in
// the set, and by the stricter outbound.NotPrivate for others.
func (h hosts) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: 10 * time.Second, Control: outbound.NotPrivate}
	if h.has(address) {
		d.Control = outbound.NotMetadata
	}
	return d.DialContext(ctx, network, address)
}
