// Package outbound restricts the network addresses that configurations in Git can make
// the agent connect to. It opens no connections.
package outbound

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/c785c783/piped/piped/deploy"
)

// NotMetadata is a net.Dialer's Control. It rejects link-local addresses and those of
// cloud metadata services, with an error of kind deploy.Invalid. Otherwise a commit
// could make the agent query them and learn credentials from the result.
func NotMetadata(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	addr := at.Addr().Unmap().WithZone("")
	elsewhere := []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}
	if addr.IsLinkLocalUnicast() || slices.Contains(elsewhere, addr) {
		return deploy.Errorf(deploy.Invalid, "%s is a cloud metadata or link-local address, which configurations in Git must not access", addr)
	}
	return nil
}

// NotPrivate is NotMetadata that also rejects loopback, private and shared addresses: a
// commit must not reach the agent's own network. It checks the resolved address when
// the connection is made.
func NotPrivate(network, address string, c syscall.RawConn) error {
	if err := NotMetadata(network, address, c); err != nil {
		return err
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	addr := at.Addr().Unmap().WithZone("")
	shared := netip.MustParsePrefix("100.64.0.0/10")
	if addr.IsPrivate() || addr.IsLoopback() || addr.IsUnspecified() || shared.Contains(addr) {
		return deploy.Errorf(deploy.Invalid, "%s is a private address, which is only permitted for hosts named in the agent's configuration", addr)
	}
	return nil
}
