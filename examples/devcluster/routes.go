package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// routeResources are the kinds of route that are answered.
func routeResources() []schema.GroupVersionResource {
	gateway := schema.GroupVersion{Group: "gateway.networking.k8s.io", Version: "v1"}
	return []schema.GroupVersionResource{gateway.WithResource("httproutes"), gateway.WithResource("grpcroutes")}
}

// routeController is under what name the gateway's answers stand.
const routeController = "devcluster.piped.dev/gateway"

// routeMode is one way for a gateway to answer.
type routeMode struct {
	accepted, resolved             bool
	acceptedReason, resolvedReason string
	generationsBehind              int64
}

var routeModes = map[string]routeMode{
	"accept":     {true, true, "Accepted", "ResolvedRefs", 0},
	"reject":     {false, true, "NotAllowedByListeners", "ResolvedRefs", 0},
	"unresolved": {true, false, "Accepted", "BackendNotFound", 0},
	"stale":      {true, true, "Accepted", "ResolvedRefs", 1},
}

// routeWriter answers routes of one kind as a gateway does, for as long as the
// cluster has that kind. It knows it by its fields only.
type routeWriter struct {
	client   dynamic.Interface
	resource schema.GroupVersionResource
	mode     string
	delay    time.Duration
}

// run watches for the kind, and writes while there is one, until ctx ends.
func (w *routeWriter) run(ctx context.Context) {
	var writing sync.WaitGroup
	var stop context.CancelFunc
	var mu sync.Mutex // the informer's calls come one by one, the last stop concurrently with them
	halt := func() {
		mu.Lock()
		defer mu.Unlock()
		if stop != nil {
			stop()
			stop = nil
		}
		writing.Wait()
	}
	observe := func(obj any) {
		crd, ok := obj.(*unstructured.Unstructured)
		mu.Lock()
		defer mu.Unlock()
		if ok && stop == nil && established(crd) && ctx.Err() == nil {
			routesCtx, cancel := context.WithCancel(ctx)
			stop = cancel
			writing.Go(func() { w.write(routesCtx) })
		}
	}
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", w.resource.GroupResource().String()).String()
	}
	crds := dynamicinformer.NewFilteredDynamicInformer(w.client, crdResource, "", 0, cache.Indexers{}, only).Informer()
	crds.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    observe,
		UpdateFunc: func(_, after any) { observe(after) },
		DeleteFunc: func(any) { halt() },
	})
	crds.RunWithContext(ctx)
	halt()
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}

// write answers routes until ctx ends.
func (w *routeWriter) write(ctx context.Context) {
	routes := dynamicinformer.NewFilteredDynamicInformer(w.client, w.resource, "", 0, cache.Indexers{}, nil).Informer()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	add := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			queue.Add(key)
		}
	}
	routes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, after any) { add(after) }, DeleteFunc: add,
	})
	var informing sync.WaitGroup
	informing.Go(func() { routes.RunWithContext(ctx) })
	defer informing.Wait()
	informing.Go(func() { <-ctx.Done(); queue.ShutDown() })
	w.answer(ctx, routes.GetStore(), queue)
}

// due is when a route's present wish is to be answered.
type due struct {
	wish string
	at   time.Time
}

// answer takes one route after the other from the queue.
func (w *routeWriter) answer(ctx context.Context, store cache.Store, queue keyQueue) {
	wishes := map[string]due{}
	for {
		key, shutdown := queue.Get()
		if shutdown {
			return
		}
		wait, err := w.answerOne(ctx, store, key, wishes)
		switch {
		case err != nil && ctx.Err() == nil:
			klog.ErrorS(err, "Answering a route", "route", key)
			queue.AddRateLimited(key)
		case wait > 0:
			queue.AddAfter(key, wait)
		default:
			queue.Forget(key)
		}
		queue.Done(key)
	}
}

// answerOne writes the status of one route when it is due, or says in how
// long that will be.
func (w *routeWriter) answerOne(ctx context.Context, store cache.Store, key string, wishes map[string]due) (time.Duration, error) {
	obj, exists, err := store.GetByKey(key)
	if err != nil || !exists {
		delete(wishes, key)
		return 0, err
	}
	route := obj.(*unstructured.Unstructured).DeepCopy()
	name, delay, err := w.settings(route)
	mode, ok := routeModes[name]
	if err != nil || !ok {
		return 0, err
	}
	wish := fmt.Sprint(route.GetUID(), route.GetGeneration(), name)
	if wishes[key].wish != wish {
		wishes[key] = due{wish, time.Now().Add(delay)}
	}
	if wait := time.Until(wishes[key].at); wait > 0 {
		return wait, nil
	}
	changed, err := setParents(route, mode, time.Now())
	if err != nil || !changed {
		return 0, err
	}
	_, err = w.client.Resource(w.resource).Namespace(route.GetNamespace()).UpdateStatus(ctx, route, metav1.UpdateOptions{FieldManager: "devcluster-gateway"})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return 0, nil // the informer brings the newer one
	}
	return 0, err
}

// settings are the route's own, else the cluster's.
func (w *routeWriter) settings(route *unstructured.Unstructured) (mode string, delay time.Duration, err error) {
	mode, delay = w.mode, w.delay
	notes := route.GetAnnotations()
	if m, ok := notes[routeStatusKey]; ok {
		mode = m
		if _, known := routeModes[m]; !known && m != "off" {
			return "", 0, fmt.Errorf("annotation %s is %q; give off, accept, reject, unresolved or stale", routeStatusKey, m)
		}
	}
	if d, ok := notes[routeStatusDelayKey]; ok {
		if delay, err = time.ParseDuration(d); err != nil {
			return "", 0, fmt.Errorf("reading annotation %s: %w; give one like 2s", routeStatusDelayKey, err)
		}
	}
	return mode, delay, nil
}

// setParents sets our answer for each parentRef and reports whether that
// changed the route. What other controllers answered stays.
func setParents(route *unstructured.Unstructured, mode routeMode, now time.Time) (bool, error) {
	refs, _, err := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	if err != nil {
		return false, fmt.Errorf("reading the route's parentRefs: %w", err)
	}
	before, _, err := unstructured.NestedSlice(route.Object, "status", "parents")
	if err != nil {
		return false, fmt.Errorf("reading the route's status: %w", err)
	}
	old := map[string]any{}
	parents := []any{}
	for _, p := range before {
		parent, _ := p.(map[string]any)
		if parent["controllerName"] != routeController {
			parents = append(parents, p)
			continue
		}
		old[fmt.Sprint(parent["parentRef"])] = parent["conditions"]
	}
	for _, ref := range refs {
		parents = append(parents, map[string]any{
			"parentRef": ref, "controllerName": routeController,
			"conditions": routeConditions(mode, route.GetGeneration(), old[fmt.Sprint(ref)], now),
		})
	}
	if fmt.Sprint(parents) == fmt.Sprint(before) {
		return false, nil
	}
	return true, unstructured.SetNestedSlice(route.Object, parents, "status", "parents")
}

// routeConditions keeps the transition time of a condition whose status does
// not change.
func routeConditions(mode routeMode, generation int64, old any, now time.Time) []any {
	since := func(kind, status string) string {
		list, _ := old.([]any)
		for _, c := range list {
			if m, ok := c.(map[string]any); ok && m["type"] == kind && m["status"] == status {
				return fmt.Sprint(m["lastTransitionTime"])
			}
		}
		return now.UTC().Format(time.RFC3339)
	}
	condition := func(kind string, holds bool, reason string) any {
		status := "False"
		if holds {
			status = "True"
		}
		return map[string]any{
			"type": kind, "status": status, "reason": reason,
			"message":            fmt.Sprintf("the simulated gateway says %s", reason),
			"observedGeneration": max(0, generation-mode.generationsBehind),
			"lastTransitionTime": since(kind, status),
		}
	}
	return []any{
		condition("Accepted", mode.accepted, mode.acceptedReason),
		condition("ResolvedRefs", mode.resolved, mode.resolvedReason),
	}
}
