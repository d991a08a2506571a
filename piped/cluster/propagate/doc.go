// Package propagate decides how a changed ConfigMap or Secret reaches running pods: by a
// nudge, which changes an annotation of the pod, or by a restart. It also selects the pods
// and computes the time of the next nudge.
//
// The kubelet updates mounted volumes when it syncs the pod: about once a minute, and
// whenever the pod object changes. So changing an annotation of the pod is enough. The
// kubelet's cache of the ConfigMap or Secret may be older than the annotation, so a second
// nudge follows a second later and a last one some seconds after that. Each nudge sets a
// different value, because an equal value does not change the pod.
//
// Environment variables, subPath mounts and init containers are read before the container
// starts, and the kubelet does not watch immutable objects. In these cases only new pods
// get the new content.
//
// All functions are pure. Package kubernetes accesses the cluster and stores the state.
package propagate
