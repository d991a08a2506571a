// Package githost tells Git hosts what becomes of their commits: as statuses of the
// commits, as deployments where the host has such, and in a comment of the pull
// requests that brought them.
//
//	receivers.go    what one host is told, and by which receivers
//	status.go       one status for each application that a commit deploys
//	environment.go  GitHub's deployments
//	comment.go      which comment is due, of which pull request
//	missing.go      what a commit was to deploy and has no deployment of
//	live.go         its text once a pull request is merged
//	preview.go      its text before
//	text.go         what texts are made of
//
// What is told is what the store knows when it is told, and not what it was when the
// event was written: an event that a newer one has overtaken says nothing. What the
// host can tell itself is not stored here, so that the package begins anew after every
// restart: a status that is set again is the same, a deployment is found by its ID and
// the comment by a marker that nobody sees.
//
// It never tells a secret: reasons and previews come without any from the store.
package githost
