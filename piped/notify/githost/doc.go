// Package githost reports deployments to Git hosts: as commit statuses, as the host's
// own deployments (GitHub), and as a comment in the pull requests that brought a commit.
//
//	receivers.go    configuration and the receivers of one host
//	status.go       one commit status per application
//	workload.go     statuses of commits that workloads name, without an application
//	environment.go  GitHub deployments
//	comment.go      which comment to write, in which pull request
//	missing.go      applications of a commit that have no deployment of it
//	live.go         comment text of a merged pull request
//	preview.go      comment text of an open pull request
//	text.go         text helpers
//
// Reports describe the state at delivery time, not at event time; an event that a newer event
// supersedes is dropped. The package stores nothing that the host can return, so every report
// is idempotent after a restart: a status is set again to the same value, a deployment is
// found by its ID, and the comment by an invisible marker.
//
// Reasons and previews come from the store, where secrets are already redacted.
package githost
