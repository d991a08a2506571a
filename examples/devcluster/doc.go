// Devcluster is a real Kubernetes control plane on one machine, with simulated
// nodes, for demo, tests and benchmarks.
//
// One binary holds etcd, kube-apiserver, kube-controller-manager,
// kube-scheduler and the kwok node simulation. "devcluster up" runs each as a
// child process of itself, supervises them and owns everything below its
// folder; the other commands talk to that parent over a unix socket. Nothing
// is downloaded, nothing listens outside the loopback interface, and no child
// outlives the parent, however it ends.
//
// It never pretends to run containers: pods have statuses, not processes, so
// there is no exec, there are no volumes and no probes, and logs are made up.
package main
