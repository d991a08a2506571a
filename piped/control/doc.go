// Package control serves the agent's gRPC API: APIService, which an unmodified pipectl
// uses, and ControlService, our own. It authenticates callers by API key, authorizes them
// by role, enforces rate and size limits, validates requests, converts between domain and
// wire, and audits changes.
//
// It makes no decision on a deployment: a request becomes a command in the store, which
// the phase that owns the deployment handles. Methods that are not implemented return
// Unimplemented.
//
// Tests pass the address 127.0.0.1:0, a store and Insecure to New, and get the bound
// address from Addr.
package control
