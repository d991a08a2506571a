// Package apply makes objects of applications so in a cluster as Git declares them: it
// applies them by server-side apply, compares them with what is live (Client.Compare),
// prunes and deletes them, and waits for the health of those that are no workloads.
//
// Compare decides by the ownership of fields first, then by their values, and in doubt by
// a dry run of the apply. It reads from managedFields which fields the agent owns, and
// needs no schema.
//
// The package decides nothing about deployments: it knows no stages, stores nothing and
// never waits for a rollout. What must survive a crash is passed to the caller (Journal)
// at the moment it must be written.
package apply
