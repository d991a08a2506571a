package git

import "time"

// Operation is something that is asked of a remote.
type Operation string

// The operations.
const (
	ListRefs Operation = "ls_remote" // where its branches are
	Fetch    Operation = "fetch"     // objects of a commit
	Push     Operation = "push"
)

// Operations lists every operation.
func Operations() []Operation { return []Operation{ListRefs, Fetch, Push} }

// Observer is told of what was asked of remotes. Its method must be quick and safe for
// concurrent use.
type Observer interface {
	// Asked tells how an operation went, connecting included. What was given up
	// because its caller went away is not told.
	Asked(op Operation, took time.Duration, err error)
}

// silent is an Observer that nobody asked for.
type silent struct{}

func (silent) Asked(Operation, time.Duration, error) {}

// observed starts to measure an operation, whose end is told by the function that it
// returns. Durations are of the machine's clock, whatever Config.Now says.
func observed(o Observer, op Operation) func(w *watchdog, err error) {
	began := time.Now()
	return func(w *watchdog, err error) {
		if err != nil && w.abandoned() {
			return
		}
		o.Asked(op, time.Since(began), err)
	}
}
