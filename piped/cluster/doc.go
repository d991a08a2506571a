// Package cluster is the client of one Kubernetes cluster. It connects, discovers the
// kinds that the cluster serves, resolves rendered objects against them, retries requests
// that the API server does not answer, and classifies errors.
//
// A Cluster is one platform provider. An unreachable cluster fails its own calls and
// affects no other cluster. Writes pass a fence: none is sent while an agent with another
// store may manage the cluster (StoreLease). The packages below that send requests (apply,
// watch, workloads, live) import this package; it imports none of them. It stores nothing.
//
// Tests run against a real API server: package clustertest.
package cluster
