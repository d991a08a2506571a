// Package preview answers plan previews: what would be deployed if a branch, of a
// pull request mostly, were merged into the one that is watched.
//
//	preview.go      the component: what wakes it, and its workers
//	build.go        from a command to its answer
//	application.go  what becomes of one application
//	size.go         how much of it is told
//
// A preview merges the branch beside the repository's mirror, asks which
// applications that concerns, renders each as it would be and as it runs by its last
// success, has the planner decide how it would be deployed, and compares both. It
// is stored with the answer to its command, so that one that was interrupted is
// built again.
//
// It never asks a cluster, runs nothing of what was pushed, and writes nothing but
// answers. The branch may be anybody's: secrets are not rendered but by names that
// stand for them, so that no template can bring one to light, and the limits of
// rendering hold as for what is deployed.
package preview
