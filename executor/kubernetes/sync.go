package kubernetes

// Sync runs K8S_SYNC: it makes the cluster hold what the commit declares and
// ends when every workload has ended its rollout. Hooks run before and after.
func (e *Executor) Sync() Stage {
	return e.stage(admit, openCluster, render, onlyLive, permitSet, limitPrune, keep, preHooks, apply, await, postHooks, prune)
}
