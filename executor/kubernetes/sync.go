package kubernetes

// Sync runs K8S_SYNC: it makes the cluster hold what the commit declares and
// ends when every workload has ended its rollout. Hooks run before and after. A
// quick sync then removes the variants that an earlier deployment has left.
func (e *Executor) Sync() Stage {
	return e.stage(admit, openCluster, render, onlyLive, permitSet, limitPrune, keep, keepTraffic, preHooks, apply, await, postHooks, prune, removeLeftovers)
}
