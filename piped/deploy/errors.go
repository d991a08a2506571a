package deploy

import (
	"errors"
	"fmt"
)

// Kind classifies an error by the expected reaction of the caller. Package control maps
// it to gRPC codes; callers use it for retry decisions.
type Kind int

// The kinds of error.
const (
	// Internal is a defect of the agent or an unexpected failure of its store.
	Internal Kind = iota
	// Invalid means the user must change an input: a configuration, a
	// manifest, a request.
	Invalid
	// NotFound means that the named object does not exist.
	NotFound
	// Exists means that the named object exists already.
	Exists
	// Conflict means that the object changed since it was read. The caller must read it again
	// and decide again.
	Conflict
	// Illegal means the state machine forbids the transition. Nothing was written.
	Illegal
	// Unavailable means a dependency cannot be reached now. A retry may succeed.
	Unavailable
	// Stopping means the agent is shutting down. The work resumes after the next start.
	Stopping
	// Denied means the sender lacks the credentials for the request.
	Denied
	// Fenced means that another replica has the work now. Nothing was written. The caller drops
	// the work without a message.
	Fenced
)

var kindNames = map[Kind]string{
	Internal: "internal", Invalid: "invalid", NotFound: "not found", Exists: "exists", Conflict: "conflict",
	Illegal: "illegal", Unavailable: "unavailable", Stopping: "stopping", Denied: "denied",
	Fenced: "fenced",
}

// String returns the kind in words.
func (k Kind) String() string { return kindNames[k] }

// Error is an error with its kind. Op names the operation and its object, Err the
// cause. Neither contains a secret.
type Error struct {
	Kind  Kind
	Op    string
	Err   error
	Store bool // what is unavailable is the agent's own store
}

var errNotInTable = errors.New("not a legal transition")

// Error returns "op: cause".
func (e *Error) Error() string {
	switch {
	case e.Err == nil:
		return e.Op
	case e.Op == "":
		return e.Err.Error()
	default:
		return e.Op + ": " + e.Err.Error()
	}
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an error of kind k; the format may contain %w.
func Errorf(k Kind, format string, args ...any) error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// KindOf returns the kind of the outermost *Error in err's chain, or Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// IsKind reports whether err carries kind k.
func IsKind(err error, k Kind) bool {
	var e *Error
	return errors.As(err, &e) && e.Kind == k
}

// StoreUnavailable reports whether err says that the agent's own store cannot be used now.
func StoreUnavailable(err error) bool {
	var e *Error
	for errors.As(err, &e) {
		if e.Store {
			return true
		}
		err = e.Err
	}
	return false
}
