package manifest

// Hook says at which point of a deployment an object runs that is no part of what
// the application consists of, such as a Job that migrates a database. The zero
// value is for objects that do belong to it.
type Hook struct {
	Phase HookPhase
	// Weight orders the hooks of a phase, ascending; those of equal weight run
	// together.
	Weight int
	// Install and Upgrade say at which deployments it runs: those of an
	// application without an earlier success, and those with one.
	Install, Upgrade bool
	// DeleteOnSuccess and DeleteOnFailure say when it is deleted after it ran. The
	// one of an earlier deployment or phase is always deleted before it runs again.
	DeleteOnSuccess, DeleteOnFailure bool
}

// HookPhase is when a hook runs. What runs at two of them is two objects, alike
// but for their Hook.
type HookPhase string

// The phases. HookOther stands for points of a release's life that a deployment
// does not have, such as tests, deletion and rollback: it is never run.
const (
	HookNone  HookPhase = ""
	HookPre   HookPhase = "pre"  // before anything of the application is applied
	HookPost  HookPhase = "post" // after all of it is applied and healthy
	HookOther HookPhase = "other"
)
