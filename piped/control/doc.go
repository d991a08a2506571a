// Package control serves the agent's gRPC API: APIService, which an unmodified
// pipectl speaks, and ControlService, our own. It owns authentication by API
// key, authorisation by role, the validation of requests, the conversion
// between the domain and the wire, the limits of how much anybody may call, and
// the record of who changed what.
//
// It never decides anything about a deployment: a request becomes a command in
// the store, and the phase that owns the deployment answers it. Methods that
// are not served yet answer Unimplemented and say so.
//
// To test with it, give New the address 127.0.0.1:0, a store and Insecure, and
// ask Addr where it listens.
package control
