// Package planner owns the first half of the Pending phase: it decides the
// stages of a PENDING deployment and moves it to PLANNED.
//
// A deployment is planned when its application has none that is planned,
// running or rolling back, oldest first. What cannot be planned because of the
// commit itself (its configuration or manifests) ends in FAILURE with the
// reason; what cannot be planned now is tried again.
//
// How an application of one platform is deployed is the business of a Decider,
// one per application kind (see planner/kubernetes). The planner writes nothing
// to any cluster.
package planner
