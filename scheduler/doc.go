// Package scheduler owns the Running phase: it starts PLANNED deployments, runs their
// stages one after the other and completes each deployment.
//
//	PLANNED -> RUNNING -> SUCCESS
//	                   -> ROLLING_BACK -> FAILURE | CANCELLED
//
// Every transition is written to the store before the next one begins, so the process
// may die at any time: after the next start the interrupted stage is run again, marked
// as resumed, with its deadline unchanged. Compare-and-swap in the store ensures that a
// terminal status is entered once.
//
// An Executor does the work of a stage. The scheduler never accesses a cluster, and Git
// only through Changes. It runs at most Limits.Deployments deployments at once and at
// most Limits.PerCluster per platform provider, with fairness between applications.
//
//	scheduler.go  finds open deployments and starts their runs
//	slots.go      selects the next deployment to start
//	run.go        drives one deployment from its start to its end
//	stage.go      runs one stage once and interprets its result
//	managed.go    holds stages while another agent manages their cluster
//	advance.go    decides what follows the end of a stage, and what to roll back
//	command.go    the commands CANCEL_DEPLOYMENT and SKIP_STAGE, each answered once
//	cancel.go     the effect of a cancel request on a deployment
//	skip.go       the effect of a skip request on a stage
//	skipon.go     evaluates a stage's skipOn
//	clock.go      deadlines by the monotonic clock; jumps of the wall clock
//	logs.go       stage logs, stored in batches
package scheduler
