// Package observe records changes in one cluster that happen outside of deployment stages:
//
//   - ExternalRollouts records rollouts that no deployment began, such as kubectl set image;
//   - Scalings records changes of the number of pods without a rollout;
//   - LateCompletions adds a note to a failed deployment whose rollout completed later;
//   - HealthEvents publishes when an application becomes degraded or healthy again;
//   - Nudger annotates running pods so that the kubelet refreshes their mounted
//     ConfigMaps and Secrets at once, according to the propagations in the store.
//
// Each is a component with a Run method. It resumes from the store after a restart and
// tolerates outages of the store and the cluster. Texts are redacted before they are stored.
// Package piped/cluster/rollout decides when a rollout has ended, and piped/cluster/health
// evaluates the health of an application.
package observe
