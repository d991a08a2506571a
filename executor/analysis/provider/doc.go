// Package provider asks the places that an agent's analysisProviders name:
// Prometheus and Datadog for numbers, Loki for lines of logs.
//
// It owns their wire formats and the credentials, which it reads from their files
// at each question and shows to nobody. It judges nothing: what an answer means is
// package analysis' to say.
package provider
