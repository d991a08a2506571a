// Package outbound says which addresses the agent may be sent to by what a commit
// names. It makes no connections itself.
package outbound

import (
	"net/netip"
	"slices"
	"syscall"

	"github.com/c785c783/piped/piped/deploy"
)

// NotMetadata is a net.Dialer's Control: it refuses, with an error of kind
// deploy.Invalid, link-local addresses and those at which a cloud tells its machines
// their secrets. A commit may name any address, and learn from what comes of it what
// is there.
func NotMetadata(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil
	}
	addr := at.Addr().Unmap().WithZone("")
	elsewhere := []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}
	if addr.IsLinkLocalUnicast() || slices.Contains(elsewhere, addr) {
		return deploy.Errorf(deploy.Invalid, "%s is an address of a cloud's metadata, or link-local, which nothing in Git may have asked", addr)
	}
	return nil
}

// NotPrivate is NotMetadata that also refuses loopback, private and shared address
// space: what a commit names must not reach the agent's own network. It is asked for
// the address that a name resolved to, when the connection is made.
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
		return deploy.Errorf(deploy.Invalid, "%s is a private address, which only hosts that the agent's configuration names may have", addr)
	}
	return nil
}
