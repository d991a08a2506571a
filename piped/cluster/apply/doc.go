// Package apply changes the objects of an application in a cluster to the state that Git
// declares. It applies them by server-side apply, compares them with the live objects
// (Client.Compare), prunes and deletes them, and waits for the health of those that are not
// workloads. Workloads are Deployments, StatefulSets and DaemonSets.
//
// Compare evaluates the ownership of fields first, then their values, and if these differ
// from the last apply, a dry run of the apply. It reads from managedFields which fields the
// agent owns, and needs no schema.
//
// The package makes no decision about deployments: it has no stages, stores nothing and never
// waits for a rollout. State that must survive a crash is passed to the caller (Journal) at
// the moment it must be stored.
package apply
