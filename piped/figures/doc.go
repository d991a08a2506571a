// Package figures computes delivery figures from the deployments that have ended:
// deployment frequency, lead time for changes, change failure rate and time to
// restore, the four of DORA (https://dora.dev/guides/dora-metrics-four-keys/).
//
//	reader.go   what is asked for, read from the store
//	compute.go  the figures of a list of deployments
//
// A change is the commit that a deployment is made for, because it is new in Git;
// commits before it that were never deployed by themselves are not measured. A
// deployment that was rolled back has failed. A failure is over with the next success
// of the same application, whichever commit that brought. What was cancelled, and what
// a newer deployment took the place of, is counted and enters no other figure. What
// was not measured has no value, not zero.
//
// The package stores nothing and estimates nothing: each figure is of deployments that
// ended in the range asked for. Compute is a pure function, to be tested with values.
package figures
