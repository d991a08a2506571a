package main

import "k8s.io/client-go/util/workqueue"

// The annotations read by the writers. Those of pods are read by the stages,
// and are listed in README.md with these.
const (
	behaviorKey         = "devcluster.piped.dev/behavior"
	readyDelayKey       = "devcluster.piped.dev/ready-delay"
	scaleToKey          = "devcluster.piped.dev/scale-to"
	scaleFlapKey        = "devcluster.piped.dev/scale-flap"
	routeStatusKey      = "devcluster.piped.dev/route-status"
	routeStatusDelayKey = "devcluster.piped.dev/route-status-delay"
)

// neverReady is the behavior, and the image tag, of a pod that fails its
// readiness probe.
const neverReady = "never-ready"

// fieldManager is under what name the writers write, as the controllers they
// stand in for do.
const fieldManager = "kube-controller-manager"

// keyQueue holds namespace/name keys of objects to process.
type keyQueue = workqueue.TypedRateLimitingInterface[string]
