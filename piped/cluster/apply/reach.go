package apply

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

// Reach describes the ConfigMaps and Secrets whose changes the running pods of one object see:
// the pods mount them as files.
type Reach struct {
	Workload deploy.ObjectRef // also a Pod, Job or other object that runs pods
	Selector string           // label selector of its pods; "" if it has none or an invalid one
	// Configs contains the hash of the content of each of them in the set, by
	// deploy.ObjectRef.Key; "" if it does not exist.
	Configs map[string]string
	// Named are those that are not in the set (Request.Named). ReadConfig returns their
	// content.
	Named []deploy.ObjectRef
	Off   bool // in the workload's mode, running pods are not notified of changes
}

// Content describes the content of a ConfigMap or Secret.
type Content struct {
	Hash    string    // of the content; "" if the object does not exist
	Version string    // the resource version; set only by ReadConfig
	At      time.Time // the last write, by the API server's clock, in whole seconds
	// Restored reports that the apply only restored the content after a change in the
	// cluster.
	Restored bool
}

// reach returns the Reach of the targets that run pods and mount configuration, and the
// Content of the ConfigMaps and Secrets among the targets, by deploy.ObjectRef.Key.
func (r *applyRun) reach(targets []*target) (all []Reach, contents map[string]Content) {
	contents = map[string]Content{}
	for _, t := range targets {
		if isConfig(t.ref) {
			at := t.writtenAt
			if at.IsZero() && t.live != nil {
				at = lastWritten(t.live)
			}
			contents[ConfigRef(t.ref.Kind, t.ref.Namespace, t.ref.Name).Key()] = Content{Hash: contentHash(t.desired), At: at, Restored: t.same && t.done == configured}
		}
	}
	hashes := map[string]string{}
	for key, c := range contents {
		hashes[key] = c.Hash
	}
	for _, t := range targets {
		if one, ok := r.reachOf(t, hashes); ok {
			all = append(all, one)
		}
	}
	return all, contents
}

// reachOf returns the Reach of an object, with the content hashes in hashes. Ok is false if
// its running pods see the changes of no ConfigMap or Secret.
func (r *applyRun) reachOf(t *target, hashes map[string]string) (_ Reach, ok bool) {
	out := Reach{
		Workload: t.ref, Selector: podSelector(t.desired), Configs: map[string]string{},
		Off: t.config.mode == kubernetes.PropagateOff || t.config.mode == kubernetes.PropagateRestart && t.isWorkload(),
	}
	for _, d := range t.config.decisions {
		ref := ConfigRef(d.Config.Kind, t.ref.Namespace, d.Config.Name)
		hash, known := hashes[ref.Key()]
		switch {
		case !d.Follows:
		case d.External:
			out.Named = append(out.Named, ref)
		case known:
			out.Configs[ref.Key()] = hash
		}
	}
	return out, len(out.Configs)+len(out.Named) > 0
}

// reachBefore returns the Reach, before the first write, of the existing objects that run
// pods, without those of Request.Reached. It reads the live content of the ConfigMaps and
// Secrets that are about to change.
func (r *applyRun) reachBefore(ctx context.Context) (all []Reach, err error) {
	hashes, sets := map[string]string{}, map[string]*target{}
	for _, t := range r.targets {
		if isConfig(t.ref) {
			key := ConfigRef(t.ref.Kind, t.ref.Namespace, t.ref.Name).Key()
			hashes[key], sets[key] = contentHash(t.desired), t
		}
	}
	read := map[string]bool{}
	for _, t := range r.targets {
		one, ok := r.reachOf(t, hashes)
		if !ok || t.live == nil || r.req.Reached[t.ref.Key()] {
			continue
		}
		for key := range one.Configs {
			if !read[key] && sets[key].changed {
				if hashes[key], err = r.contentBefore(ctx, sets[key]); err != nil {
					return nil, err
				}
			}
			read[key], one.Configs[key] = true, hashes[key]
		}
		all = append(all, one)
	}
	return all, nil
}

// contentBefore returns the hash of the live content of a ConfigMap or Secret of the set, ""
// when it does not exist.
func (r *applyRun) contentBefore(ctx context.Context, t *target) (string, error) {
	if t.live == nil {
		return "", nil
	}
	before, err := readConfig(ctx, r.cluster.Cluster, ConfigRef(t.ref.Kind, t.ref.Namespace, t.ref.Name), r.wait)
	if err != nil {
		return "", r.cluster.explain(t.source, "read the content of", err)
	}
	return before.Hash, nil
}

// logUnreached logs each changed ConfigMap and Secret whose change running pods do not see.
// For those that are not in Git it logs this in advance, with each write of an object that
// runs such pods, because no deployment will detect their changes.
func (r *applyRun) logUnreached() {
	written := map[deploy.ObjectRef]bool{}
	for _, t := range r.targets {
		if isConfig(t.ref) && t.changed && t.done != unchanged {
			written[ConfigRef(t.ref.Kind, t.ref.Namespace, t.ref.Name)] = true
		}
	}
	for _, t := range r.targets {
		changed := t.recorded != nil && stampOf(t.recorded.ConfigHash) != stampOf(t.config.all)
		for _, d := range t.config.decisions {
			ref := ConfigRef(d.Config.Kind, t.ref.Namespace, d.Config.Name)
			switch {
			case d.Action != propagate.None:
			case d.External && t.done != unchanged:
				r.req.Log.Infof("%s is not in Git: when it changes, %s", ref, t.whyUnreached(d))
			case changed && written[ref]:
				r.req.Log.Infof("%s has changed, and %s", ref, t.whyUnreached(d))
			}
		}
	}
}

// whyUnreached explains why the running pods of a target do not see a change, or see it late,
// and when they will see it.
func (t *target) whyUnreached(d propagate.Decision) string {
	end := "restarted"
	if !t.isWorkload() {
		end = "replaced"
	}
	if d.Follows {
		return fmt.Sprintf("the pods of %s that mount it are not nudged, because %s: the kubelet updates their files within about a minute", t.ref, d.Why)
	}
	return fmt.Sprintf("the pods of %s keep what they have of it until they are %s: %s", t.ref, end, d.Why)
}

// ReadConfig reads the content of a ConfigMap or Secret. It returns the zero Content when
// the object does not exist.
func ReadConfig(ctx context.Context, c *cluster.Cluster, ref deploy.ObjectRef) (Content, error) {
	content, err := readConfig(ctx, c, ref, nil)
	if err != nil {
		return Content{}, c.Classify(fmt.Errorf("read the content of %s: %w", ref, err))
	}
	return content, nil
}

// readConfig is ReadConfig with a waiting function for Retry and an unclassified error.
func readConfig(ctx context.Context, c *cluster.Cluster, ref deploy.ObjectRef, waiting func(error)) (content Content, err error) {
	err = c.Retry(ctx, waiting, func(ctx context.Context) error {
		live, err := c.Dynamic().Resource(ConfigResource(ref.Kind)).Namespace(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err == nil {
			content = Content{Hash: contentHash(live), Version: live.GetResourceVersion(), At: lastWritten(live)}
		}
		return err
	})
	if apierrors.IsNotFound(err) {
		return Content{}, nil
	}
	return content, err
}

// ConfigResource returns the resource of a kind, which must be ConfigMap or Secret.
func ConfigResource(kind string) schema.GroupVersionResource {
	resource := "configmaps"
	if kind == "Secret" {
		resource = "secrets"
	}
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// isConfig reports whether an object is a ConfigMap or Secret.
func isConfig(ref deploy.ObjectRef) bool {
	return ref.Group == "" && (ref.Kind == "ConfigMap" || ref.Kind == "Secret")
}

// contentHash returns the hash of the content of a ConfigMap or Secret.
func contentHash(u *unstructured.Unstructured) string { return hashOf(contentOf(u)) }

// podSelector returns the label selector, for a LIST, of the pods of an object that runs pods.
// It returns "" if the object has none or an invalid one: the LIST then returns all pods. For
// a Job it is the label that the API server sets on its pods.
func podSelector(workload *unstructured.Unstructured) string {
	switch workload.GetKind() {
	case "Job":
		return batchv1.JobNameLabel + "=" + workload.GetName()
	case "CronJob":
		return batchv1.JobNameLabel
	}
	content, _, _ := unstructured.NestedMap(workload.Object, "spec", "selector")
	var labels metav1.LabelSelector
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &labels); err != nil {
		return ""
	}
	selector, err := metav1.LabelSelectorAsSelector(&labels)
	if err != nil || selector.Empty() {
		return "" // the API server refuses it with a better message
	}
	return selector.String()
}

// lastWritten returns the latest time in the object's managedFields, zero without any.
func lastWritten(live metav1.Object) (at time.Time) {
	for _, e := range live.GetManagedFields() {
		if e.Time != nil && e.Time.After(at) {
			at = e.Time.Time
		}
	}
	return at
}
