package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
)

// options are the options of "up". They hold for one run: the next up on the
// same folder may choose others.
type options struct {
	nodes      int
	nodeCPU    string
	nodeMemory string
	nodePods   int

	podReadyDelay time.Duration

	routeStatus      string
	routeStatusDelay time.Duration
	routeStatusStale bool

	readyTimeout time.Duration
}

func (o *options) addFlags(f *pflag.FlagSet) {
	f.IntVar(&o.nodes, "nodes", 3, "number of simulated nodes")
	f.StringVar(&o.nodeCPU, "node-cpu", "32", "CPU of each node; a pod that requests more is unschedulable")
	f.StringVar(&o.nodeMemory, "node-memory", "256Gi", "memory of each node")
	f.IntVar(&o.nodePods, "node-pods", 1000, "pods each node takes")
	f.DurationVar(&o.podReadyDelay, "pod-ready-delay", 0,
		"time from running to Ready of a pod without "+readyDelayKey)
	f.StringVar(&o.routeStatus, "route-status", "off",
		"status written on HTTPRoutes and GRPCRoutes without "+routeStatusKey+": off, accept, reject, unresolved or stale")
	f.DurationVar(&o.routeStatusDelay, "route-status-delay", 0,
		"time from a change of a route to its status, without "+routeStatusDelayKey)
	f.BoolVar(&o.routeStatusStale, "route-status-stale", false,
		"write the observedGeneration before the current one, as a gateway that has not caught up")
	f.DurationVar(&o.readyTimeout, "ready-timeout", 2*time.Minute, "how long to wait for the cluster to be ready before giving up")
}

func (o *options) validate() error {
	if o.nodes < 1 {
		return fmt.Errorf("--nodes %d: a cluster needs at least one node to run pods; give 1 or more", o.nodes)
	}
	if o.nodePods < 1 {
		return fmt.Errorf("--node-pods %d: give 1 or more", o.nodePods)
	}
	for flag, value := range map[string]string{"--node-cpu": o.nodeCPU, "--node-memory": o.nodeMemory} {
		if _, err := resource.ParseQuantity(value); err != nil {
			return fmt.Errorf("%s %q is no Kubernetes quantity; give one like 32 or 256Gi: %w", flag, value, err)
		}
	}
	if o.podReadyDelay < 0 || o.routeStatusDelay < 0 {
		return fmt.Errorf("a delay is negative; give 0s or more")
	}
	if _, ok := routeModes[o.routeStatus]; !ok && o.routeStatus != "off" {
		return fmt.Errorf("--route-status %q is unknown; give off, accept, reject, unresolved or stale", o.routeStatus)
	}
	return nil
}
