// Package observe runs next to the deployments of one cluster and keeps the store up to
// date with what happens there without a stage:
//
//   - ExternalRollouts records rollouts that no deployment began, such as kubectl set image;
//   - Scalings records changes of the number of pods that are no rollout;
//   - LateCompletions notes on a failed deployment that its rollout completed later;
//   - HealthEvents publishes that an application is degraded, or healthy again;
//   - Nudger annotates running pods so that the kubelet refreshes their mounted
//     ConfigMaps and Secrets at once, as the propagations in the store demand.
//
// Each is a component with a Run method, resumes from the store after a restart, and
// tolerates a store and a cluster that do not answer. Texts are redacted before they are
// stored. The package decides nothing about stages: when a rollout has ended is decided
// by piped/cluster/rollout, and what an application's health is by piped/cluster/health.
package observe
