// Package cluster is the client of one Kubernetes cluster. It connects, discovers the
// kinds that the cluster serves and resolves rendered objects against them; applies
// objects by server-side apply, prunes and deletes them; and compares them with what is
// live (Cluster.Compare).
//
// A Cluster is one platform provider. Clusters share nothing: an unreachable cluster
// fails its own calls with a clear reason and affects no other. Requests that write pass a
// fence: none is sent while an agent with another store may manage the cluster
// (StoreLease). The rooms below that send requests, such as watch and live, import this
// package, and it imports none of them.
//
// Compare decides by the ownership of fields first, then by their values, and in doubt by
// a dry run of the apply. It reads from managedFields which fields the agent owns, and
// needs no schema.
//
// The package decides nothing about deployments: it knows no stages, stores nothing and
// never waits for a rollout. What must survive a crash is passed to the caller (Journal)
// at the moment it must be written.
//
// Tests run against a real API server: package clustertest.
package cluster
