// Package preview builds plan previews: the deployments that would result if a branch, usually
// of a pull request, were merged into the watched branch.
//
//	preview.go      the component with its workers
//	build.go        handles a command
//	application.go  the preview of one application
//	size.go         limits the size of results
//
// A preview merges the branch next to the repository's mirror and finds the applications that
// the merge affects. It renders each of them after the merge and at its last success, plans
// the deployment with the planner, and compares both. The result is stored in the transaction
// that completes the command, so that an interrupted preview is built again.
//
// The package sends no request to a cluster, executes nothing of the branch, and stores only
// results. The branch is not trusted: secrets are replaced by placeholders, so that no
// template can reveal one, and the limits of rendering apply.
package preview
