// Package rollout decides whether the rollout of a workload has ended, and how.
//
// Evaluate is a pure function of the durable record, what was observed of the
// workload and its ReplicaSets, and the time. It never keeps state of its own,
// never looks at the kind or order of events, and compares no old object with a
// new one: resyncs, missed or doubled events, restarts and two evaluators at
// once change nothing. What ends a rollout on cached data is only a suspicion;
// it becomes final on a snapshot read from the API server (Snapshot.Confirmed).
//
// How the end is decided, for a Deployment: the ReplicaSet whose template equals
// the applied one, found by digest and never by name or by a CREATE event,
// carries the highest revision and has enough available pods, and no other
// ReplicaSet of the Deployment has any pod left, each of them having counted since
// it was told last how many to have. Scaling changes neither the template nor the
// ReplicaSet, so an autoscaler can neither make, delay nor fail a rollout.
//
// Wait feeds Evaluate until every record of a stage is terminal, Explain says in
// words why pods do not become ready, and Crashes which containers have a log that
// tells more.
//
// The package reads no cluster (its Observer does), stores nothing (its Save
// does), starts no goroutine and imports nothing of this module but package
// deploy. Tests: one file per case in testdata, driven through Evaluate.
package rollout
