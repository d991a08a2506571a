// Package watch is the generic controller of one cluster: shared informers, index
// functions, and handlers that are called by key.
//
// A Controller runs one informer per Resource, started on first use and shared by all its
// users. Events only enqueue keys; each handler has its own rate-limited work queue and is
// called again with backoff after an error. A Scope watches a resource in the whole
// cluster, or by namespace where the agent has no right to that. A Lifecycle holds objects
// with a finalizer from creation to removal. Watch.State reports whether a cache follows
// the cluster, so that no caller decides by stale data.
//
// The package knows no kind of object and never resyncs. Rollout detection, drift
// detection and config propagation are handlers on it.
package watch
