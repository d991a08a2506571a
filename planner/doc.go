// Package planner owns the first half of the Pending phase: it decides the
// stages of a PENDING deployment and moves it to PLANNED.
//
//	planner.go   the component: what wakes it, and its workers
//	turn.go      which deployment of an application goes, and what the others wait for
//	overtake.go  what becomes of a held one when a later one has gone before it
//	plan.go      from a deployment to its plan, or to its end without one
//	tenancy.go   what the agent's configuration permits the application
//
// A deployment is planned when its application has none that is planned,
// running or rolling back, the oldest first; one that is held by its deployment
// chain or by a sync window of its commit stays PENDING, says in its status
// reason what it waits for, and holds up no other. When another commit has
// succeeded meanwhile, it is cancelled: it would bring back what was before. What
// cannot be planned because of the commit itself (its configuration or manifests)
// ends in FAILURE with the reason; what cannot be planned now is tried again.
//
// How an application of one platform is deployed is the business of a Decider,
// one per application kind (see planner/kubernetes). The planner writes nothing
// to any cluster.
package planner
