// Package scheduler owns the Running phase: it takes PLANNED deployments, runs
// their stages one by one and brings each deployment to its end.
//
//	PLANNED -> RUNNING -> SUCCESS
//	                   -> ROLLING_BACK -> FAILURE | CANCELLED
//
// Every step is one write to the store before the next one begins, so the
// process may die anywhere: after the next start the same stage is run again,
// marked as resumed, with its deadline unmoved. A terminal status is entered
// once, because the store compares and swaps.
//
// What a stage does is the business of an Executor; the scheduler never talks
// to a cluster, and asks Git one question only (Changes). It starts at most
// Limits.Deployments deployments at once and at most Limits.PerCluster on one
// platform provider, the applications taking turns.
//
//	scheduler.go  what is open, and who drives it
//	slots.go      which waiting deployment starts next
//	run.go        one deployment from its start to its end, step by step
//	stage.go      one run of one stage, and what is made of its result
//	settle.go     what follows the end of a stage; when and what to roll back
//	command.go    the commands CANCEL_DEPLOYMENT and SKIP_STAGE, each answered once
//	cancel.go     what a cancel does to a deployment
//	skip.go       what a person's skip does to a stage
//	skipon.go     whether a stage skips itself (skipOn)
//	clock.go      deadlines by the monotonic clock; jumps of the other one
//	logs.go       stage logs, stored in batches
package scheduler
