// Package propagate decides how a changed ConfigMap or Secret reaches the pods that
// run: which are told to look (nudged), which are restarted, and which pods are told
// next, as pure functions of what is known.
//
// What pods mount as a volume the kubelet writes anew, but only when it looks at the
// pod, which it does about once in a minute and whenever the pod is changed. So an
// annotation on the pod is enough. The kubelet's cache of the object may be older than
// the annotation, hence a second nudge a second later and a last one some seconds after
// it. Each has another value: an equal one is no change of the pod.
//
// What comes through the environment, a subPath or an init container was read before
// the container began, and the kubelet does not follow immutable objects: there only
// other pods have the new content.
//
// The package talks to no cluster and stores nothing; package kubernetes does.
package propagate
