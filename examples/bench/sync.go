package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/app/agenttest"
)

// rounds is how often a commit travels; the first is not counted.
const rounds = 11

// measureSync follows one application (a Deployment of 3, a Service and a
// ConfigMap) from push to SUCCESS, each time right after the floor: the same
// objects applied by client-go and watched until the same rollout is complete.
func measureSync(ctx context.Context, e *environment) error {
	client, err := e.client(ctx, "bench-floor", "bench-sync")
	if err != nil {
		return err
	}
	s, err := e.newScene(ctx, "sync", agenttest.Options{Interval: 50 * time.Millisecond})
	if err != nil {
		return err
	}
	defer s.agent.Close()

	var floors, pushes, known, ends []time.Duration
	for i := range rounds {
		floor, err := applyAndWatch(ctx, client, files("web", "bench-floor", 3, fmt.Sprintf("v%d", i))["web/objects.yaml"], "bench-floor")
		if err != nil {
			return err
		}
		t, err := pushAndWatch(ctx, client, s, i)
		if err != nil {
			return err
		}
		if i == 0 {
			continue // first contact: connections, discovery and informers
		}
		floors, pushes, known, ends = append(floors, floor), append(pushes, t.push), append(known, t.known), append(ends, t.end)
	}
	e.info("sync.floor.median", milliseconds(median(floors)), "ms")
	e.info("sync.floor.worst", milliseconds(worst(floors)), "ms")
	e.info("sync.push_to_success.median", milliseconds(median(pushes)), "ms")
	e.info("sync.push_to_success.worst", milliseconds(worst(pushes)), "ms")
	e.info("sync.head_known_to_success.median", milliseconds(median(known)), "ms")
	e.info("sync.head_known_to_success.ratio_to_floor", float64(median(known))/float64(median(floors)), "x")
	e.atMost("sync.overhead_over_floor.median", milliseconds(median(known)-median(floors)), "ms", 300)
	e.atMost("sync.stage_end_after_completion.p50", milliseconds(median(ends)), "ms", 100)
	e.atMost("sync.stage_end_after_completion.p99", milliseconds(quantile(ends, 0.99)), "ms", 500)
	return nil
}

// client returns a client without limits, and makes the namespaces.
func (e *environment) client(ctx context.Context, namespaces ...string) (kubernetes.Interface, error) {
	client, err := clientOf(e.cluster.Kubeconfig())
	if err != nil {
		return nil, err
	}
	for _, name := range namespaces {
		if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return client, nil
}

// clientOf returns a client without limits of the cluster of a kubeconfig. Its
// objects travel as protobuf, so that what is watched here is not seen later than
// by the agent.
func clientOf(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return kubernetes.NewForConfig(config)
}

// applyAndWatch is the floor: it returns how long it takes to apply the objects
// one after the other and see the rollout complete.
func applyAndWatch(ctx context.Context, client kubernetes.Interface, text, namespace string) (time.Duration, error) {
	began := time.Now()
	force := true
	options := metav1.PatchOptions{FieldManager: "floor", Force: &force}
	var err error
	var generation int64
	for _, document := range strings.Split(text, "---\n") {
		data, convErr := yaml.YAMLToJSON([]byte(document))
		if convErr != nil {
			return 0, convErr
		}
		switch {
		case strings.Contains(document, "kind: ConfigMap"):
			_, err = client.CoreV1().ConfigMaps(namespace).Patch(ctx, "web", types.ApplyPatchType, data, options)
		case strings.Contains(document, "kind: Service"):
			_, err = client.CoreV1().Services(namespace).Patch(ctx, "web", types.ApplyPatchType, data, options)
		default:
			var d *appsv1.Deployment
			if d, err = client.AppsV1().Deployments(namespace).Patch(ctx, "web", types.ApplyPatchType, data, options); err == nil {
				generation = d.Generation
			}
		}
		if err != nil {
			return 0, err
		}
	}
	done, err := completion(ctx, client, namespace, func(d *appsv1.Deployment) bool { return d.Status.ObservedGeneration >= generation })
	return done.Sub(began), err
}

// times are what one commit took.
type times struct {
	push  time.Duration // from the push to SUCCESS
	known time.Duration // from the moment the agent knew the commit to SUCCESS
	end   time.Duration // from the API server showing completion to the stage's end
}

// pushAndWatch pushes a commit and follows it, watching the rollout independently of the agent.
func pushAndWatch(ctx context.Context, client kubernetes.Interface, s *scene, i int) (times, error) {
	tag := fmt.Sprintf("v%d", i)
	type result struct {
		at  time.Time
		err error
	}
	complete := make(chan result, 1)
	go func() {
		at, err := completion(ctx, client, "bench-sync", func(d *appsv1.Deployment) bool {
			return strings.HasSuffix(d.Spec.Template.Spec.Containers[0].Image, ":"+tag)
		})
		complete <- result{at, err}
	}()
	began := time.Now()
	commit, err := s.push("web "+tag, files("web", "bench-sync", 3, tag))
	if err != nil {
		return times{}, err
	}
	d, err := s.succeeded(ctx, appID("web"), commit)
	if err != nil {
		return times{}, err
	}
	seen := <-complete
	ended := time.UnixMilli(d.GetCompletedAtMs())
	return times{
		push:  ended.Sub(began),
		known: ended.Sub(time.UnixMilli(d.GetCreatedAtMs())),
		end:   max(0, time.UnixMilli(d.GetStages()[0].GetCompletedAtMs()).Sub(seen.at)),
	}, seen.err
}

// completion returns when the API server shows a rollout as complete that is the
// one meant.
func completion(ctx context.Context, client kubernetes.Interface, namespace string, meant func(*appsv1.Deployment) bool) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	w, err := client.AppsV1().Deployments(namespace).Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=web"})
	if err != nil {
		return time.Time{}, err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if d, ok := event.Object.(*appsv1.Deployment); ok && meant(d) && isComplete(d) {
			return time.Now(), nil
		}
	}
	return time.Time{}, fmt.Errorf("the watch of deployment %s/web ended before its rollout was complete", namespace)
}

func isComplete(d *appsv1.Deployment) bool {
	want, s := *d.Spec.Replicas, d.Status
	return s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
}
