package manifest

// Hook determines when an object runs that is not a permanent part of the application, such as
// a Job that migrates a database. The zero value marks regular objects.
type Hook struct {
	Phase HookPhase
	// Weight orders the hooks of a phase, ascending; hooks of equal weight run
	// together.
	Weight int
	// Install and Upgrade select the deployments that run it: those of an application
	// without and with an earlier success.
	Install, Upgrade bool
	// DeleteOnSuccess and DeleteOnFailure determine whether it is deleted after a successful
	// or failed run. The object of an earlier run is always deleted before the next run.
	DeleteOnSuccess, DeleteOnFailure bool
}

// HookPhase is when a hook runs. A hook with two phases is represented by two objects that
// differ only in Hook.
type HookPhase string

// The phases. HookOther stands for points in a release's life cycle that deployments do not
// have, such as tests, deletion and rollback: such a hook never runs.
const (
	HookNone  HookPhase = ""
	HookPre   HookPhase = "pre"  // before the application is applied
	HookPost  HookPhase = "post" // after the application is applied and healthy
	HookOther HookPhase = "other"
)
