package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

var (
	httpRouteResource      = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}
	virtualServiceResource = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "virtualservices"}
	serviceResource        = schema.GroupVersionResource{Version: "v1", Resource: "services"}
	deploymentResource     = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// record contains the changes of an application's traffic and workloads, as reported by
// watches.
type record struct {
	describe func(route map[string]any) string

	mu     sync.Mutex
	events []recorded
	last   map[string]string // by kind and name
	floor  time.Duration     // the longest time of a single write since begin
}

// recorded is one change. Resource versions are common to all objects of a cluster, so
// they show the order of writes.
type recorded struct {
	version uint64
	at      time.Time // when the watch reported it
	text    string
}

// recordTraffic begins a record. The object "web" of the resource routes the traffic;
// describe returns its routing as text.
func recordTraffic(t *testing.T, p *progressive, resource schema.GroupVersionResource, describe func(map[string]any) string) *record {
	t.Helper()
	r := &record{describe: describe, last: map[string]string{}}
	client := dynamicClient(t, p.cluster)
	ctx, stop := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	t.Cleanup(func() {
		stop()
		watching.Wait()
	})
	for _, w := range []struct {
		resource schema.GroupVersionResource
		note     func(watch.EventType, *unstructured.Unstructured) string
	}{{resource, r.route}, {deploymentResource, workload}} {
		events := watchAll(ctx, t, client.Resource(w.resource).Namespace(p.namespace))
		watching.Go(func() {
			for e := range events.ResultChan() {
				if o, ok := e.Object.(*unstructured.Unstructured); ok {
					r.note(t, o, w.note(e.Type, o))
				}
			}
		})
	}
	routes := client.Resource(resource).Namespace(p.namespace)
	watching.Go(func() { r.measure(ctx, routes) })
	return r
}

// measure repeatedly times a write that changes nothing, which shows how fast the cluster
// is at that time.
func (r *record) measure(ctx context.Context, client dynamic.ResourceInterface) {
	for ctx.Err() == nil {
		began := time.Now()
		_, _ = client.Patch(ctx, "web", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}) // only its duration counts
		r.mu.Lock()
		r.floor = max(r.floor, time.Since(began))
		r.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(250 * time.Millisecond):
		}
	}
}

func watchAll(ctx context.Context, t *testing.T, client dynamic.ResourceInterface) watch.Interface {
	t.Helper()
	events, err := client.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// route describes the object that routes the traffic.
func (r *record) route(_ watch.EventType, o *unstructured.Unstructured) string {
	if o.GetName() != "web" {
		return ""
	}
	return r.describe(o.Object)
}

// workload describes whether a rollout is complete, and whether a workload is being
// deleted.
func workload(event watch.EventType, o *unstructured.Unstructured) string {
	if event == watch.Deleted || o.GetDeletionTimestamp() != nil {
		return o.GetName() + " removed"
	}
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	wanted := number("spec", "replicas")
	for _, count := range []string{"replicas", "updatedReplicas", "availableReplicas"} {
		if number("status", count) != wanted {
			return ""
		}
	}
	if number("status", "observedGeneration") < o.GetGeneration() {
		return ""
	}
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	_, tag, _ := strings.Cut(fmt.Sprint(containers[0].(map[string]any)["image"]), ":")
	return fmt.Sprintf("%s runs %s", o.GetName(), tag)
}

// note records the text if it differs from the last one of the object.
func (r *record) note(t *testing.T, o *unstructured.Unstructured, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := o.GetKind() + " " + o.GetName()
	if text == "" || r.last[key] == text {
		return
	}
	r.last[key] = text
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		t.Errorf("the version of %s: %v", key, err)
	}
	r.events = append(r.events, recorded{version, time.Now(), text})
}

// begin clears the record.
func (r *record) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.floor = nil, 0
}

// await waits until the record contains a text, and returns the time when the watch last
// reported it.
func (r *record) await(t *testing.T, text string) time.Time {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		r.mu.Lock()
		events := slices.Clone(r.events)
		r.mu.Unlock()
		for _, e := range slices.Backward(events) {
			if e.text == text {
				return e.at
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%q did not happen; the record is: %v", text, events)
		}
	}
}

// mustBe fails the test unless exactly these events happened, in this order.
func (r *record) mustBe(t *testing.T, want ...string) {
	t.Helper()
	for _, text := range want { // of two watches, either may be behind
		r.await(t, text)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.SortStableFunc(r.events, func(a, b recorded) int { return int(a.version) - int(b.version) })
	var got []string
	for _, e := range r.events {
		got = append(got, e.text)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// backInTime is the limit from the verdict until the primary must have all traffic again,
// on a cluster that responds at once. A slower cluster gets the time that it needs for
// the writes and reads of a rollback, measured meanwhile.
const (
	backInTime    = 5 * time.Second
	writesUntilIn = 20
)

// mustBeBackInTime fails the test unless the traffic went back soon after a stage of the
// deployment had failed.
func (r *record) mustBeBackInTime(t *testing.T, d *modelv1.Deployment, stage, stable string) {
	t.Helper()
	for _, m := range d.GetTransitions() {
		if m.GetStageId() == stage && m.GetTo() == modelv1.StageStatus_STAGE_FAILURE.String() {
			r.mustBeBackBy(t, time.UnixMilli(m.GetAtMs()), stable)
			return
		}
	}
	t.Errorf("stage %s has not failed: %v", stage, stages(d))
}

// mustBeBackBy is mustBeBackInTime for the given time of the verdict.
func (r *record) mustBeBackBy(t *testing.T, verdict time.Time, stable string) {
	t.Helper()
	took := r.await(t, stable).Sub(verdict)
	r.mu.Lock()
	limit := backInTime + writesUntilIn*r.floor
	r.mu.Unlock()
	t.Logf("the primary had all traffic %s after the verdict", took.Round(time.Millisecond))
	if took < 0 || took > limit {
		t.Errorf("it took %s from the verdict until the primary had all traffic, want at most %s", took, limit)
	}
}

// items returns a list in an object; nil when there is none.
func items(o map[string]any, path ...string) []any {
	list, _, _ := unstructured.NestedSlice(o, path...)
	return list
}

// backends describes an HTTPRoute: the backends of each rule with their weights.
func backends(o map[string]any) string {
	var rules []string
	for _, rule := range items(o, "spec", "rules") {
		var parts []string
		for _, b := range items(rule.(map[string]any), "backendRefs") {
			b := b.(map[string]any)
			parts = append(parts, fmt.Sprintf("%v %v", b["name"], b["weight"]))
		}
		rules = append(rules, strings.Join(parts, ", "))
	}
	return strings.Join(rules, "; ")
}

// subsets describes a VirtualService: the subsets of each route with their weights.
func subsets(o map[string]any) string {
	var routes []string
	for _, route := range items(o, "spec", "http") {
		var parts []string
		for _, d := range items(route.(map[string]any), "route") {
			d := d.(map[string]any)
			to := d["destination"].(map[string]any)
			name := to["host"]
			if to["subset"] != nil {
				name = to["subset"]
			}
			parts = append(parts, fmt.Sprintf("%v %v", name, d["weight"]))
		}
		routes = append(routes, strings.Join(parts, ", "))
	}
	return strings.Join(routes, "; ")
}

// selected describes a Service: the variant whose pods it selects.
func selected(o map[string]any) string {
	variant, _, _ := unstructured.NestedString(o, "spec", "selector", "pipecd.dev/variant")
	return "to " + variant
}
