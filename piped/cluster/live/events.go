package live

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
)

// clusterEvents is the namespace with the events of cluster-scoped objects.
const clusterEvents = metav1.NamespaceDefault

// Events returns the Kubernetes events of objects, the last that occurred first, and the
// reasons why some could not be read as problems. Events of an earlier object with the same
// kind and name are included. It lists each namespace once and retries nothing. The error is
// of kind Unavailable if the cluster does not answer and no list succeeds.
func Events(ctx context.Context, c *cluster.Cluster, objects []deploy.ObjectRef) (events []deploy.ObjectEvent, problems []string, err error) {
	wanted := map[string]map[string]bool{} // keys of the objects by namespace of their events
	for _, ref := range objects {
		namespace := cmp.Or(ref.Namespace, clusterEvents)
		if wanted[namespace] == nil {
			wanted[namespace] = map[string]bool{}
		}
		wanted[namespace][ref.Key()] = true
	}
	var mu sync.Mutex
	var failed error
	answered := false
	g := &errgroup.Group{}
	g.SetLimit(concurrency)
	for namespace, keys := range wanted {
		g.Go(func() error {
			found, err := eventsIn(ctx, c, namespace, keys)
			mu.Lock()
			defer mu.Unlock()
			events = append(events, found...)
			if err != nil {
				failed = c.Classify(fmt.Errorf("list the events in namespace %s: %w", namespace, err))
				problems = append(problems, failed.Error())
				return nil
			}
			answered = true
			return nil
		})
	}
	_ = g.Wait() // errors are recorded as problems
	if !answered && deploy.IsKind(failed, deploy.Unavailable) {
		return nil, nil, failed
	}
	slices.SortFunc(events, func(a, b deploy.ObjectEvent) int {
		return cmp.Or(b.LastAt.Compare(a.LastAt), cmp.Compare(a.Object.Key(), b.Object.Key()), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	slices.Sort(problems)
	return events, problems, nil
}

// eventsIn returns the events in a namespace of the objects with these keys. With an error, it
// returns those that were read before.
func eventsIn(ctx context.Context, c *cluster.Cluster, namespace string, keys map[string]bool) (events []deploy.ObjectEvent, err error) {
	var options metav1.ListOptions
	err = eachPage(ctx, options, c.Typed().CoreV1().Events(namespace).List, func(page *corev1.EventList) {
		for i := range page.Items {
			if e := objectEvent(&page.Items[i]); keys[e.Object.Key()] {
				e.Cluster = c.Name()
				events = append(events, e)
			}
		}
	})
	return events, err
}

// objectEvent converts an event, which a component may have recorded by the former or the
// present API of events.
func objectEvent(e *corev1.Event) deploy.ObjectEvent {
	about := e.InvolvedObject
	gv, err := schema.ParseGroupVersion(about.APIVersion)
	if err != nil {
		gv = schema.GroupVersion{}
	}
	out := deploy.ObjectEvent{
		Object: deploy.ObjectRef{Group: gv.Group, Version: gv.Version, Kind: about.Kind, Namespace: about.Namespace, Name: about.Name}, UID: string(about.UID),
		Type: e.Type, Reason: e.Reason, Message: e.Message, Source: cmp.Or(e.Source.Component, e.ReportingController),
		Count: max(e.Count, 1), FirstAt: e.FirstTimestamp.Time, LastAt: e.LastTimestamp.Time,
	}
	if out.FirstAt.IsZero() {
		out.FirstAt = e.EventTime.Time
	}
	if s := e.Series; s != nil {
		out.Count, out.LastAt = max(s.Count, out.Count), s.LastObservedTime.Time
	}
	if out.FirstAt.IsZero() {
		out.FirstAt = e.CreationTimestamp.Time
	}
	if out.LastAt.IsZero() {
		out.LastAt = out.FirstAt
	}
	return out
}
