// Package kubernetes runs the stages that change a Kubernetes cluster: K8S_SYNC,
// those that roll out and remove variants (K8S_CANARY_ROLLOUT and the like), and
// ROLLBACK. Each that applies something applies a complete set of objects, and ends
// when every workload of the set has ended its rollout.
//
//	set.go       the set of objects a stage applies, and how it is kept
//	hooks.go     objects that run before and after the set is applied
//	apply.go     applying a set, with a rollout record for each workload
//	journal.go   what an apply records before and after each write
//	await.go     waiting for the records, and what their ends mean for a stage
//	crashlog.go  what containers wrote that crashed meanwhile
//	unstick.go   pods that keep StatefulSets from rolling back
//	tenancy.go   what the agent's configuration permits the application
//	confighash.go which workloads restart for a changed configuration
//	propagate.go which pods are told of a changed configuration
//	prune.go     deleting what Git does not have any more
//	takeover.go  what of a set is taken over from others
//	variant.go   the sets of variants
//	sync.go      K8S_SYNC
//	primary.go   K8S_PRIMARY_ROLLOUT
//	canary.go    K8S_CANARY_ROLLOUT
//	baseline.go  K8S_BASELINE_ROLLOUT
//	clean.go     K8S_CANARY_CLEAN and K8S_BASELINE_CLEAN
//	traffic.go   K8S_TRAFFIC_ROUTING, step by step
//	traffic_ready.go  when a variant can take traffic
//	traffic_verify.go when routes are in force
//	overlay.go   the shares of the traffic that other stages keep
//	rollback.go  ROLLBACK
//	removal.go   deleting what was applied for a deleted application: no stage, but
//	             a component that answers commands
//	removal_cluster.go  the same in one cluster, level by level
//
// A stage may be interrupted anywhere and run again: applying is idempotent, and
// the rollout records, written before and after each workload is applied, tell
// the second run what the first one did.
package kubernetes
