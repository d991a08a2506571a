// Package deploy defines the agent's domain model: applications, deployments and their
// stages, commands, events and rollouts, the phases they go through and the table of
// legal transitions.
//
// A deployment has three phases. Each phase has one owner. The owners share no memory:
// each reads the deployments of its phase from the store and writes the next status.
//
//	Phase      Status                          Owner
//	Pending    PENDING, PLANNED                planner, then scheduler
//	Running    RUNNING, ROLLING_BACK           scheduler
//	Completed  SUCCESS, FAILURE, CANCELLED     none: terminal
//
// Every state change is a pure function (Deployment.Plan, .Start, .FinishStage, ...). Package
// store applies it in one database transaction and enforces CheckTransition.
//
// The package imports no other package of this module, performs no I/O, starts no
// goroutine and never reads the clock: times are arguments.
package deploy
