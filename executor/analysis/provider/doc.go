// Package provider queries the analysisProviders of the agent's configuration:
// Prometheus and Datadog for metrics, Loki for log lines.
//
// It implements their wire formats and authentication. It reads credentials from their
// files at each query and never exposes them. Package analysis evaluates the results.
package provider
