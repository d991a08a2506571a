// Package kubernetes speaks to Kubernetes clusters: it resolves rendered
// objects against a cluster's kinds, applies them by server-side apply, deletes
// what an application no longer wants, and runs the generic controller on which
// rollout detection stands.
//
// A Cluster is one platform provider. Clusters share nothing: one that cannot
// be reached fails its own calls with a clear reason and disturbs no other.
//
// The package decides nothing about deployments: it does not know stages,
// stores nothing itself and never waits for a rollout. What must survive a
// crash is handed to the caller (ApplyRequest.BeforeApply and Applied) at the
// moment it must be written.
//
// Tests run against a real API server: package clustertest.
package kubernetes
