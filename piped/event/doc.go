// Package event is the event watcher: it writes the value of a registered event, such as
// a new image tag, into Git, at the places that rules of applications (spec.eventWatcher)
// and files of kind EventWatcher below .pipe/ define.
//
// Of the events with the same name and labels only the newest is applied, and only within an
// hour. Each repository with a matching rule gets one commit on its tracked branch, and one on
// a separate branch for the rules that request a pull request. Rules are read from the commit
// on which the change is based. If another push comes first, the rules are read and applied
// again on the new head. The watcher never force-pushes.
//
// The process can be killed at any point. A commit contains its event's ID in a trailer, so
// that it is found and not created twice, and a branch is named after its event.
//
// It changes only existing files below the directory of an enabled application of this agent
// (for rule files below .pipe/: anywhere in the repository), never through a symbolic link. It
// does not deploy: the trigger handles the commit like any other.
package event
