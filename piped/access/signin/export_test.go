package signin

import (
	"context"
	"net"
)

// Pass reads the groups that are due once.
func (r *Rereader) Pass(ctx context.Context) error { return r.pass(ctx) }

// Dial connects as requests to issuers do that are sent without a transport of the caller.
func Dial(ctx context.Context, address string) (net.Conn, error) {
	return newTransport().DialContext(ctx, "tcp", address)
}
