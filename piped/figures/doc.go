// Package figures computes delivery metrics from deployments that have ended: deployment
// frequency, lead time for changes, change failure rate and time to restore, the four
// DORA metrics (https://dora.dev/guides/dora-metrics-four-keys/).
//
//	reader.go   validates the query and reads the deployments from the store
//	compute.go  computes the figures of a list of deployments
//	buckets.go  divides a range into calendar days or weeks
//	ended.go    counts deployments and stages that end, for Prometheus
//	stored.go   reads gauges from the store during a scrape
//
// A change is the commit that triggered a deployment; earlier commits that were never
// deployed on their own are not measured. A deployment that was rolled back counts as
// failed. A failure is restored by the next successful deployment of the same
// application, whatever its commit. Cancelled and superseded deployments are counted but
// enter no other figure. A figure without measurements has no value, which is not zero.
//
// The package stores and estimates nothing: each figure is computed from the deployments
// that ended in the requested range. Compute is a pure function. With buckets, a failure belongs to the bucket in
// which it ended, even if it was restored in a later one.
package figures
