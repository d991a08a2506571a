// Package rollout decides whether the rollout of a workload has ended, and with which
// result.
//
// Evaluate is a pure function of the durable record, a snapshot of the workload and its
// ReplicaSets, and the time. It holds no state, does not depend on the kind or order of
// events, and never compares an old object with a new one. Resyncs, missed or duplicate
// events, restarts and concurrent evaluators therefore do not change the result. An end
// found in cached data is provisional. It becomes final only on a snapshot read from the API
// server (Snapshot.Confirmed).
//
// The rollout of a Deployment is complete when the ReplicaSet with the applied template
// carries the highest revision and has enough available pods, and no other ReplicaSet of the
// Deployment has pods or wants any. The status of each of these ReplicaSets must be up to
// date with its spec. The ReplicaSet is found by the digest of its template, never by name
// or by a CREATE event. Scaling changes neither the template nor the ReplicaSet, so an
// autoscaler can neither start, delay nor fail a rollout.
//
// Wait evaluates the records of a stage until all are terminal. External finds rollouts that
// no deployment of the agent started, and Scale detects scalings. Explain describes why pods
// do not become ready, and Crashes finds the containers whose logs show the cause.
//
// The package accesses a cluster only through Observer and stores records only through
// Request.Save. It starts no goroutine and imports only package deploy of this module. The
// tests evaluate one file per case in testdata.
package rollout
