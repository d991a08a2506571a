// Package trace tells a collector of OpenTelemetry traces how deployments went: one
// trace for each, with a span for the deployment, for each status it went through, for
// each stage that ran and for each rollout of a stage.
//
// Traces are made of what the store keeps (the deployment, its transition log, its
// rollouts) once the deployment has ended, and sent as a whole. Nothing else of the agent
// knows of them. IDs are derived from the deployment's ID: the trace ID is the
// deployment's, if that is a UUID, so that one is found by the other, and what is sent
// twice is the same. A file remembers what was sent: after a restart, or once a collector
// that was away is back, what has ended meanwhile follows, up to a day of it.
//
// It never delays a deployment, and never sends more than people are shown: names,
// statuses and reasons.
//
// To test with it, serve TraceService on a gRPC server of the test.
package trace
