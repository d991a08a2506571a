// Package git maintains one bare mirror per repository and reads from it: the head of the
// tracked branch, the metadata of a commit, the paths in which two commits differ, and a
// commit as an fs.FS on the object database. There is no worktree and no checkout, and sources
// are not copied.
//
// Merge computes the tree of the tracked branch after a merge of another one. Its
// objects are stored next to the mirror until the result is closed.
//
// Push builds a commit of changed files in memory and pushes it. The mirror later fetches that
// commit from the remote, like every other commit.
//
// Remotes reads single commits of repositories that the agent does not watch but that
// kustomizations and charts refer to. It uses mirrors without history.
//
// The package owns the directory of the mirrors; there is one Repo per mirror and one process
// per directory. It uses the network only in RemoteHead, Sync, Merge, Push, Remotes.At and
// Remotes.File; everything else is read from the mirror. It runs no git binary, trusts only
// SSH host keys of known_hosts, starts no goroutine that outlives a call, and writes no
// credentials into errors, logs or the mirror.
//
// Package gittest contains repositories and servers (HTTP and SSH) for tests.
package git
