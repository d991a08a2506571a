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
// to Git or to a cluster. It starts at most Limits.Deployments deployments at
// once and at most Limits.PerCluster on one platform provider.
package scheduler
