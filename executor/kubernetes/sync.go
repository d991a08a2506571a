package kubernetes

// Sync runs K8S_SYNC: it makes the cluster hold what the commit declares and
// ends when every workload has ended its rollout.
func (e *Executor) Sync() Stage {
	return e.stage(admit, openCluster, render, onlyLive, permitSet, limitPrune, keep, apply, await, prune)
}
