// Package kubernetes runs the stages that change a Kubernetes cluster: K8S_SYNC, the
// stages that roll out, route traffic to and remove variants (K8S_CANARY_ROLLOUT and the
// like), and ROLLBACK. A stage applies a complete set of objects and ends when all
// workloads of the set have ended their rollouts.
//
// A stage is a list of steps (executor.go), which share one work and run until one fails:
//
//	executor.go  the executors of the stages, and opening the cluster of a stage
//	set.go       the set of objects a stage applies, rendered from Git
//	appliedset.go storing a set, and restoring the set of the last success
//	expected.go  the state that a cluster should have after a success
//	metrics.go   metrics of the stages
//	metadata.go  stage metadata: the records for later runs and stages
//	tenancy.go   enforcing the tenancy rules of the agent's configuration
//	hooks.go     objects that run before and after the set is applied
//	apply.go     applying objects, with a rollout record for each workload
//	claim.go     claiming objects for the application
//	journal.go   the records before and after each write of an apply
//	rewritten.go templates that a mutating webhook rewrites on each apply
//	await.go     waiting for rollouts and health, and deciding the result of the stage
//	conclude.go  ending the rollout records of a failed or stopped stage
//	crashlog.go  the last log lines of crashed containers
//	unstick.go   deleting pods that block the rollback of StatefulSets
//	confighash.go which workloads restart for changed configuration
//	propagate.go which pods are nudged for changed configuration: a nudge annotates a pod, so
//	             that the kubelet updates its mounted ConfigMaps and Secrets sooner
//	prune.go     deleting objects that are no longer in Git
//	takeover.go  which objects of a set are taken over from other owners
//	variant.go   the sets of variants
//	sync.go      K8S_SYNC
//	primary.go   K8S_PRIMARY_ROLLOUT
//	canary.go    K8S_CANARY_ROLLOUT
//	baseline.go  K8S_BASELINE_ROLLOUT
//	clean.go     K8S_CANARY_CLEAN and K8S_BASELINE_CLEAN
//	traffic.go   K8S_TRAFFIC_ROUTING, step by step
//	traffic_state.go  the recorded traffic shares of a deployment
//	traffic_ready.go  when a variant is ready for traffic
//	traffic_verify.go when routes are in force
//	traffic_leftover.go traffic that an earlier deployment left with variants
//	rollback.go  ROLLBACK
//	removal.go   deleting the objects of a deleted application: no stage, but a component
//	             that answers commands
//	removal_cluster.go  the same in one cluster, level by level
//
// A stage may be interrupted anywhere and run again. Applying is idempotent, and the
// rollout records are written before and after each workload is applied. The second run reads
// from them what the first one did.
package kubernetes
