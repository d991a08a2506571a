package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
)

// hopeless is how long a reason that waiting does not remove, such as an image that cannot be
// pulled, may last before AwaitReady ends.
const hopeless = 20 * time.Second

// AwaitReady waits until every replica of the agent answers. When ctx ends, or a pod fails for a
// reason that waiting does not remove, the error says why it does not.
func (i *Installer) AwaitReady(ctx context.Context) error {
	var said string
	var since time.Time
	for {
		state, err := i.readiness(ctx)
		switch {
		case ctx.Err() != nil:
			return deploy.Errorf(deploy.Unavailable, "the agent does not answer yet: %s", said)
		case err != nil:
			return err
		case state.ready:
			return nil
		}
		if state.text != said {
			i.Say("%s", state.text)
			said = state.text
		}
		if !state.hard {
			since = time.Time{}
		} else if since.IsZero() {
			since = time.Now()
		} else if time.Since(since) > hopeless {
			return deploy.Errorf(deploy.Invalid, "the agent does not answer: %s", state.text)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pollInterval):
		}
	}
}

// readiness is how far the agent's start is.
type readiness struct {
	installed, ready bool
	hard             bool // waiting does not help
	text             string
}

// readiness reads the Deployment, and its pods if they do not answer.
func (i *Installer) readiness(ctx context.Context) (r readiness, err error) {
	var d *appsv1.Deployment
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		d, err = i.Cluster.Typed().AppsV1().Deployments(i.Namespace).Get(ctx, "piped", metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return readiness{text: fmt.Sprintf("there is no Deployment %s/piped", i.Namespace)}, nil
	}
	if err != nil {
		return r, i.Cluster.Classify(err)
	}
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	s := d.Status
	r = readiness{installed: true, text: fmt.Sprintf("%d of %d replicas answer", min(s.AvailableReplicas, s.UpdatedReplicas), wanted)}
	if s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == wanted && s.AvailableReplicas == wanted && s.Replicas == wanted {
		r.ready = wanted > 0
		return r, nil
	}
	troubles, err := i.troubles(ctx, d)
	var texts []string
	for _, t := range troubles[:min(2, len(troubles))] {
		texts = append(texts, t.String())
		r.hard = r.hard || t.Hard
	}
	if len(texts) > 0 {
		r.text += ": " + strings.Join(texts, "; ")
	}
	return r, err
}

// troubles returns why pods of the Deployment do not answer.
func (i *Installer) troubles(ctx context.Context, d *appsv1.Deployment) ([]rollout.Trouble, error) {
	core := i.Cluster.Typed().CoreV1()
	selector := metav1.FormatLabelSelector(d.Spec.Selector)
	var pods *corev1.PodList
	var events *corev1.EventList
	err := i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		if pods, err = core.Pods(i.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector}); err != nil {
			return err
		}
		events, err = core.Events(i.Namespace).List(ctx, metav1.ListOptions{Limit: maxEvents})
		return err
	})
	if err != nil {
		return nil, i.Cluster.Classify(err)
	}
	// A ReplicaSet's event is as old as the failed attempt; one of an earlier variant is no reason.
	events.Items = slices.DeleteFunc(events.Items, func(e corev1.Event) bool {
		return e.InvolvedObject.Kind != "Pod" && (len(pods.Items) > 0 || !strings.HasPrefix(e.InvolvedObject.Name, d.Name+"-"))
	})
	return rollout.Explain(pods.Items, events.Items, time.Now()), nil
}

// maxEvents bounds the events that are read for an explanation.
const maxEvents = 500
