package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// rolloutWatch decides by itself, from the Deployments and ReplicaSets of a
// namespace, when the API server shows the rollout to an image as complete.
type rolloutWatch struct {
	image string
	want  int

	mu          sync.Mutex
	deployments map[string]*appsv1.Deployment
	sets        map[string]map[string]*appsv1.ReplicaSet // by Deployment, then by their names
	complete    map[string]time.Time                     // by Deployment
	ends        map[string]chan struct{}                 // closed when a Deployment's is complete

	all     chan struct{} // closed when want are complete
	stop    context.CancelFunc
	running sync.WaitGroup
}

// watchRollouts begins to watch for want rollouts to the image with a tag.
func watchRollouts(ctx context.Context, client kubernetes.Interface, namespace, tag string, want int) (*rolloutWatch, error) {
	ctx, stop := context.WithCancel(ctx)
	w := &rolloutWatch{
		image: "registry.example/web:" + tag, want: want, all: make(chan struct{}), stop: stop,
		deployments: map[string]*appsv1.Deployment{}, sets: map[string]map[string]*appsv1.ReplicaSet{}, complete: map[string]time.Time{},
		ends: map[string]chan struct{}{},
	}
	deployments, err := client.AppsV1().Deployments(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, err
	}
	sets, err := client.AppsV1().ReplicaSets(namespace).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		stop()
		return nil, err
	}
	for _, events := range []watch.Interface{deployments, sets} {
		w.running.Go(func() {
			for event := range events.ResultChan() {
				w.see(event)
			}
		})
	}
	return w, nil
}

func (w *rolloutWatch) see(event watch.Event) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	name := ""
	switch o := event.Object.(type) {
	case *appsv1.Deployment:
		name = o.Name
		w.deployments[name] = o
	case *appsv1.ReplicaSet:
		owner := metav1.GetControllerOf(o)
		if owner == nil {
			return
		}
		name = owner.Name
		if w.sets[name] == nil {
			w.sets[name] = map[string]*appsv1.ReplicaSet{}
		}
		w.sets[name][o.Name] = o
		if event.Type == watch.Deleted {
			delete(w.sets[name], o.Name)
		}
	}
	if _, known := w.complete[name]; known || !w.isComplete(name) {
		return
	}
	w.complete[name] = now
	close(w.end(name))
	if len(w.complete) == w.want {
		close(w.all)
	}
}

// isComplete reports whether the new ReplicaSet has all pods and no other has any.
func (w *rolloutWatch) isComplete(name string) bool {
	d := w.deployments[name]
	if d == nil || d.Spec.Template.Spec.Containers[0].Image != w.image || !isComplete(d) {
		return false
	}
	found := false
	for _, set := range w.sets[name] {
		if set.Spec.Template.Spec.Containers[0].Image != w.image {
			if set.Status.Replicas > 0 {
				return false
			}
			continue
		}
		found = set.Status.ObservedGeneration >= set.Generation && set.Status.AvailableReplicas == *d.Spec.Replicas
	}
	return found
}

// end returns the channel that is closed when a Deployment's rollout is complete.
// w.mu is held.
func (w *rolloutWatch) end(name string) chan struct{} {
	if w.ends[name] == nil {
		w.ends[name] = make(chan struct{})
	}
	return w.ends[name]
}

// waitFor returns when the rollout of one Deployment is complete.
func (w *rolloutWatch) waitFor(ctx context.Context, name string) error {
	w.mu.Lock()
	end := w.end(name)
	w.mu.Unlock()
	select {
	case <-end:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		return fmt.Errorf("the rollout of %s to %s was not complete after %s", name, w.image, patience)
	}
}

// wait returns when all are complete.
func (w *rolloutWatch) wait(ctx context.Context) error {
	select {
	case <-w.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(patience):
		w.mu.Lock()
		defer w.mu.Unlock()
		return fmt.Errorf("%d of %d rollouts to %s were complete after %s", len(w.complete), w.want, w.image, patience)
	}
}

// close ends the watch and returns when each rollout was complete.
func (w *rolloutWatch) close() map[string]time.Time {
	w.stop()
	w.running.Wait()
	return w.complete
}
