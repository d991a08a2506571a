package manifest

// Hook says when an object runs that is not a permanent part of the application, such
// as a Job that migrates a database. The zero value marks regular objects.
type Hook struct {
	Phase HookPhase
	// Weight orders the hooks of a phase, ascending; hooks of equal weight run
	// together.
	Weight int
	// Install and Upgrade select the deployments that run it: those of an application
	// without and with an earlier success.
	Install, Upgrade bool
	// DeleteOnSuccess and DeleteOnFailure say when it is deleted after its run. The
	// object of an earlier run is always deleted before the next run.
	DeleteOnSuccess, DeleteOnFailure bool
}

// HookPhase is when a hook runs. A hook of two phases is two objects that differ in
// their Hook only.
type HookPhase string

// The phases. HookOther are points in a release's life cycle that deployments do not
// have, such as tests, deletion and rollback: it never runs.
const (
	HookNone  HookPhase = ""
	HookPre   HookPhase = "pre"  // before the application is applied
	HookPost  HookPhase = "post" // after the application is applied and healthy
	HookOther HookPhase = "other"
)
