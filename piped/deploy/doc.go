// Package deploy is the agent's domain in plain Go: applications, deployments
// and their stages, commands, events and rollouts, together with the phases
// they go through and the one table of legal transitions.
//
// A deployment lives in three phases. Each phase has one owner, and the owners
// meet only in the store: each reads deployments in the phase it owns and
// writes the next.
//
//	Phase      Status                          Owner
//	Pending    PENDING, PLANNED                planner, then scheduler
//	Running    RUNNING, ROLLING_BACK           scheduler
//	Completed  SUCCESS, FAILURE, CANCELLED     nobody: terminal
//
// Every change of state is a pure function here (Deployment.Plan, .Start,
// .FinishStage, ...); package store applies it in one database transaction and
// refuses whatever CheckTransition refuses.
//
// The package imports nothing else of this module, does no input or output,
// starts no goroutine and never reads the clock: times are arguments.
package deploy
