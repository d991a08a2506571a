// Package git keeps one bare mirror per repository and answers from it: the
// head of the tracked branch, a commit's metadata, the paths two commits differ
// in, and a commit as an fs.FS read from the object database. There is no
// worktree, no checkout and no copy of sources.
//
// Merge tells what the tracked branch would hold after another one was merged into
// it. What that takes is kept beside the mirror, for as long as it is read.
//
// Push makes a commit of changed files and pushes it. The commit is made in memory:
// the mirror gets it from the remote, like every other.
//
// Remotes reads single commits of repositories that nobody watches, but that
// kustomizations and charts refer to, from mirrors without history.
//
// The package owns the directory that holds the mirrors; one Repo per mirror,
// one process per directory. It asks the remote only in RemoteHead, Sync, Merge, Push and
// Remotes.At; everything else is answered from the mirror. It never runs a git binary,
// never trusts an SSH host key that known_hosts does not hold, never starts a
// goroutine that outlives the call, and never puts a credential into an error,
// a log line or the mirror.
//
// Package gittest holds real repositories and servers (HTTP and SSH) to test
// against.
package git
