// Package workloads reads and watches the Deployments, StatefulSets and DaemonSets of one
// cluster for package rollout. Observer returns cached snapshots (Cached), and wakes its
// subscribers when a workload or one of its ReplicaSets changes. Before a rollout ends, it
// confirms the snapshot by a quorum read (Confirm). It also reads the pods and events that
// explain a rollout, and the Lease of kube-controller-manager, which shows whether the
// controllers run.
//
// The package decides nothing about a rollout, writes nothing to the cluster and does not
// use the store.
package workloads
