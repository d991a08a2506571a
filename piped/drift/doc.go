// Package drift detects drift: it compares the live objects of each application with
// what the last successful deployment applied, and that with Git. It stores the sync
// state of each application, and a report for each period of drift.
//
//	detector.go  queues applications for evaluation, with retries
//	scan.go      finds new and changed applications
//	appstate.go  the state of an application between two evaluations
//	expected.go  the objects expected in the clusters
//	evaluate.go  one evaluation, step by step
//	watched.go   evaluates objects by their watched metadata
//	compare.go   compares suspect objects with the API server, and finds extra ones
//	slots.go     limits concurrent comparisons per cluster
//	git.go       undeployed commits
//	conclude.go  derives and stores the report and the sync state
//	text.go      formats reasons
//	marks.go     stores the marks of objects found unchanged after a write
//	metrics.go   the metrics interface
//	sweep.go     periodic comparison of every object
//
// An application is not evaluated during a deployment, and its objects not before the
// watches of their kinds are synced. If a cluster or an API group does not answer, only
// the objects in it become unknown.
//
// The package writes to no cluster and not to Git. The trigger decides about
// self-healing from the stored state. It does not retain objects in memory, only marks
// that detect writes.
//
// The tests replace clusters with fakes; package kubernetes tests the comparison of an
// object with a real API server.
package drift
