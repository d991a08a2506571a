package kubernetes

// Sync runs K8S_SYNC: it applies the objects of the commit and ends when all rollouts have
// ended. Hooks run before and after. A quick sync then removes the variants that an earlier
// deployment left behind. Of a preview, it also waits until the gateways have accepted the routes.
func (e *Executor) Sync() Stage {
	return e.stage(
		admit, openCluster, render, onlyLive, permitSet, limitPrune, storeSet,
		applyShares, preHooks, applySet, await, acceptRoutes, postHooks, prune, removeLeftovers,
	)
}
