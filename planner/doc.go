// Package planner owns the first half of the Pending phase: it decides the stages of a
// PENDING deployment and moves it to PLANNED.
//
//	planner.go    the component: its triggers and workers
//	next.go       selects the next deployment of an application, and holds the others
//	supersede.go  cancels held deployments that a later one has superseded
//	plan.go       plans one deployment, or fails it
//	tenancy.go    checks the tenancy rules of the agent's configuration
//
// The oldest pending deployment of an application is planned when none is planned,
// running or rolling back. A deployment held by its chain or by a sync window of its
// commit stays PENDING. Its status reason names what it waits for, and it does not block
// others. When a later deployment of another commit succeeds meanwhile, the held one is
// cancelled, since it would deploy an outdated state. Errors in the commit itself (its
// configuration or manifests) end the deployment in FAILURE; other errors are retried.
//
// A Decider, one per application kind (see planner/kubernetes), decides how an
// application is deployed. The planner writes to no cluster.
package planner
