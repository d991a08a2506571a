package signin

import "context"

// Pass reads the groups that are due once.
func (r *Rereader) Pass(ctx context.Context) error { return r.pass(ctx) }
