// Package cluster speaks to Kubernetes clusters: it resolves rendered
// objects against a cluster's kinds, applies them by server-side apply, deletes
// what an application no longer wants, follows what it applied by its metadata
// (Members), says how that differs from what is live (Cluster.Compare), and runs the
// generic controller on which rollout detection stands.
//
// A Cluster is one platform provider. Clusters share nothing: one that cannot
// be reached fails its own calls with a clear reason and disturbs no other.
//
// Compare tells how applied objects differ from live ones: by the ownership of fields
// first, then by their values, and in doubt by what the API server says that an apply
// would change. Which fields are ours it learns from managedFields; no schema is kept.
//
// The package decides nothing about deployments: it does not know stages,
// stores nothing itself and never waits for a rollout. What must survive a
// crash is handed to the caller (Journal) at the moment it must be written.
//
// Tests run against a real API server: package clustertest.
package cluster
