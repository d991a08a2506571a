package kubernetes

// Sync runs K8S_SYNC: it applies the objects of the commit and ends when all rollouts have
// ended. Hooks run before and after. A quick sync then removes the variants that an earlier
// deployment left behind.
func (e *Executor) Sync() Stage {
	return e.stage(
		admit, openCluster, render, onlyLive, permitSet, limitPrune, storeSet,
		applyShares, preHooks, applySet, await, postHooks, prune, removeLeftovers,
	)
}
