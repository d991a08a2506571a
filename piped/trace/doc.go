// Package trace exports one OpenTelemetry trace per deployment, with a span for the
// deployment, for each status it went through, for each stage that ran and for each
// rollout of a stage.
//
// A trace is built from stored data (the deployment, its transition log, its rollouts)
// when the deployment has ended, and sent as a whole. IDs are derived from the
// deployment's ID, so that sending is idempotent; if the deployment's ID is a UUID, it is
// the trace ID. A file records which traces were sent: after a restart of the agent or an
// outage of the collector, deployments that ended meanwhile are exported too, up to a day
// later.
//
// Exporting never delays a deployment. Spans contain only what users can see: names,
// statuses and reasons.
//
// Tests serve TraceService on a local gRPC server.
package trace
