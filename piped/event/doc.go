// Package event is the event watcher: what was registered from outside, such as a
// new image, is written into Git, where rules of applications (spec.eventWatcher)
// and the files of kind EventWatcher below .pipe/ say.
//
// It owns what becomes of a registered event. Of the events of a name and equal
// labels only the newest counts, and for an hour. For each repository in which a
// rule names it, there is one commit on the tracked branch, and one in a branch of
// its own for the rules that want a pull request. A rule is the one of the head
// that is changed: when another push comes first, everything is decided anew on
// the new head. Nothing is ever forced.
//
// It survives being killed at any point: a commit carries its event's ID, so it is
// found again and not made twice, and a branch is named after its event.
//
// It writes nothing but files that are there already, below the directory of an
// application that is this agent's and enabled (in PipeCD's older form: in the
// repository), never through a symbolic link, and has no worktree. It deploys
// nothing: the trigger sees the commit like every other.
package event
