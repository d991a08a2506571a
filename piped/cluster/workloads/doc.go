// Package workloads reads and watches the Deployments, StatefulSets and DaemonSets of
// one cluster for package rollout. Observer answers from caches (Cached), which wake
// waits when a workload or one of its ReplicaSets changes, confirms by a quorum read
// what would end a rollout (Confirm), and reads the pods and events that explain one.
// It also reads the Lease of kube-controller-manager, by which a rollout knows that its
// controllers are alive.
//
// It decides nothing about a rollout, writes nothing to the cluster and knows no store.
package workloads
