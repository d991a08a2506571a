// Package cluster is the client of one Kubernetes cluster. It connects, discovers the
// kinds that the cluster serves, resolves rendered objects against them, retries what the
// API server does not answer, and classifies its errors.
//
// A Cluster is one platform provider. Clusters share nothing: an unreachable cluster
// fails its own calls with a clear reason and affects no other. Requests that write pass a
// fence: none is sent while an agent with another store may manage the cluster
// (StoreLease). The rooms below that send requests import this package, and it imports
// none of them: apply, watch, workloads and live. It stores nothing.
//
// Tests run against a real API server: package clustertest.
package cluster
