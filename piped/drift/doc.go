// Package drift compares what the clusters hold of the applications with what their
// last successful deployments applied, and that with Git. What it finds it stores: the
// sync state of each application, and a report for each period in which one differs.
//
//	detector.go  what makes an application be judged, and when
//	scan.go      which applications there are, and what of them has changed
//	subject.go   what is remembered of an application between two judgements
//	expected.go  what is expected of its clusters
//	judge.go     one judgement, step by step
//	look.go      its objects, as far as the watches tell
//	compare.go   those the watches leave in doubt, and those that are too many
//	lanes.go     how many are compared in one cluster at once
//	git.go       commits that are not deployed
//	conclude.go  what follows: the report, its end, and what is stored
//	text.go      the same in words
//	learn.go     what was learned of objects that were written and are right
//	observe.go   what is told to those who want figures
//	sweep.go     the comparison of every object, once in a while
//
// Nothing is judged while a deployment of the application is under way, and nothing
// is said of objects before the watches of their kinds are filled. A cluster, or a
// group of its API, that does not answer makes unknown only what depends on it.
//
// The package changes nothing in a cluster or in Git, and decides nothing about
// healing: the trigger does, by what is stored. It keeps no objects, only what tells
// whether they were written.
//
// Its tests stand in for clusters with values of what a watch would tell; the
// comparison of an object with a real API server is tested in package kubernetes.
package drift
