package live

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/health"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Limits on the children of one object.
const (
	maxChildren   = 100
	explainedPods = 2 // named in the reason of their owner
)

// maxSelected is the maximum number of values of a label in a selector, which is part of a
// URL.
const maxSelected = 40

// readChildren reads the children of the objects and adds them to the nodes. Unless the
// request asks for all children, it reads only those that explain why a workload is not
// healthy.
func (r *reader) readChildren(ctx context.Context) {
	families := map[string]*family{}
	for _, n := range r.nodes {
		if n.live == nil || !r.req.Children && fine(n.Health) {
			continue
		}
		namespace := n.Object.Namespace
		if families[namespace] == nil {
			families[namespace] = &family{reader: r, namespace: namespace, claims: map[string]*node{}}
		}
		families[namespace].add(n)
	}
	r.created = map[string][]*node{}
	g := &errgroup.Group{}
	g.SetLimit(concurrency)
	for _, f := range families {
		g.Go(func() error {
			f.read(ctx)
			return nil
		})
	}
	_ = g.Wait() // errors are recorded as problems
	for _, n := range r.nodes {
		if n.UID != "" {
			r.adopt(n)
		}
	}
}

// fine reports whether a health status needs no explanation.
func fine(h deploy.Health) bool { return h == deploy.Healthy || h == deploy.HealthSuspended }

// family reads the children of the objects of one namespace.
type family struct {
	*reader
	namespace string

	deployments, withPods, withClaims []*metav1.LabelSelector // of the objects with such children
	claims                            map[string]*node        // StatefulSets by name prefix of their claims
	cron                              bool
	jobs                              []string // UIDs of Jobs, including those of CronJobs
}

// add registers an object of the namespace whose children are to be read, if its kind has
// any.
func (f *family) add(n *node) {
	switch kind := manifest.GroupKind(n.Object); {
	case kind.Group == "batch" && kind.Kind == "CronJob":
		f.cron = true
	case cluster.IsJob(kind):
		f.jobs = append(f.jobs, n.UID)
	case apply.IsWorkload(kind), kind.Group == "apps" && kind.Kind == "ReplicaSet":
		selector := selectorOf(n.live)
		f.withPods = append(f.withPods, selector)
		if kind.Kind == rollout.KindDeployment {
			f.deployments = append(f.deployments, selector)
		}
		templates, claims, _ := unstructured.NestedSlice(n.live.Object, "spec", "volumeClaimTemplates")
		if !claims || !f.req.Children {
			return
		}
		f.withClaims = append(f.withClaims, selector)
		for _, t := range templates {
			template, _ := t.(map[string]any)
			name, _, _ := unstructured.NestedString(template, "metadata", "name")
			f.claims[name+"-"+n.Object.Name+"-"] = n
		}
	}
}

// read lists each kind of child once. It lists the Pods of Jobs last, because the Jobs of
// CronJobs must be known before.
func (f *family) read(ctx context.Context) {
	apps, core, batch := f.cluster.Typed().AppsV1(), f.cluster.Typed().CoreV1(), f.cluster.Typed().BatchV1()
	children(ctx, f, "ReplicaSets", f.deployments, apps.ReplicaSets(f.namespace).List, func(l *appsv1.ReplicaSetList) []appsv1.ReplicaSet { return l.Items }, f.replicaSet)
	children(ctx, f, "Pods", f.withPods, core.Pods(f.namespace).List, pods, f.pod)
	children(ctx, f, "PersistentVolumeClaims", f.withClaims, core.PersistentVolumeClaims(f.namespace).List, func(l *corev1.PersistentVolumeClaimList) []corev1.PersistentVolumeClaim { return l.Items }, f.claim)
	if f.cron {
		all := []*metav1.LabelSelector{{}}
		children(ctx, f, "Jobs", all, batch.Jobs(f.namespace).List, func(l *batchv1.JobList) []batchv1.Job { return l.Items }, f.job)
	}
	var ofJobs []*metav1.LabelSelector
	for _, uid := range f.jobs {
		ofJobs = append(ofJobs, &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: uid}})
	}
	children(ctx, f, "Pods", ofJobs, core.Pods(f.namespace).List, pods, f.pod)
}

func pods(l *corev1.PodList) []corev1.Pod { return l.Items }

// children lists one kind of child by the combined selectors of its owners, and calls each
// with every object found. It records an error as a problem.
func children[L metav1.ListInterface, T any](ctx context.Context, f *family, kind string, selectors []*metav1.LabelSelector,
	list func(context.Context, metav1.ListOptions) (L, error), items func(L) []T, each func(*T)) {
	if len(selectors) == 0 {
		return
	}
	options := metav1.ListOptions{LabelSelector: oneSelector(selectors)}
	err := eachPage(ctx, options, list, func(page L) {
		for _, item := range items(page) {
			each(&item)
		}
	})
	if err != nil {
		f.noteProblem(fmt.Sprintf("list the %s in namespace %s", kind, f.namespace), err)
	}
}

// selectorOf returns the matchLabels of a workload's selector.
func selectorOf(u *unstructured.Unstructured) *metav1.LabelSelector {
	labels, _, _ := unstructured.NestedStringMap(u.Object, "spec", "selector", "matchLabels")
	return &metav1.LabelSelector{MatchLabels: labels}
}

// oneSelector returns a selector that matches every object that any of the selectors
// matches, and few others: it requires each label that all of them have, with one of the
// values in them. It requires any value if there are more than maxSelected, and returns ""
// (all objects) if no label is common.
func oneSelector(selectors []*metav1.LabelSelector) string {
	values := map[string][]string{}
	for _, s := range selectors {
		for name, value := range s.MatchLabels {
			values[name] = append(values[name], value)
		}
	}
	all := &metav1.LabelSelector{}
	for name, found := range values {
		if len(found) < len(selectors) {
			continue
		}
		slices.Sort(found)
		want := metav1.LabelSelectorRequirement{Key: name, Operator: metav1.LabelSelectorOpIn, Values: slices.Compact(found)}
		if len(want.Values) > maxSelected {
			want.Operator, want.Values = metav1.LabelSelectorOpExists, nil
		}
		all.MatchExpressions = append(all.MatchExpressions, want)
	}
	if len(all.MatchExpressions) == 0 {
		return ""
	}
	return metav1.FormatLabelSelector(all)
}

// addChild records n as a child of the object with the UID owner.
func (f *family) addChild(owner string, kind deploy.ObjectRef, meta *metav1.ObjectMeta, n *node) {
	kind.Namespace, kind.Name = meta.Namespace, meta.Name
	n.Cluster, n.Object, n.UID, n.CreatedAt = f.cluster.Name(), kind, string(meta.UID), meta.CreationTimestamp.Time
	n.Deleting = meta.DeletionTimestamp != nil
	f.mu.Lock()
	defer f.mu.Unlock()
	f.created[owner] = append(f.created[owner], n)
}

// ownerOf returns the UID of the controller of an object, "" if it has none.
func ownerOf(o metav1.Object) string {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return string(owner.UID)
	}
	return ""
}

// imagesOf returns the images of all containers, init containers first.
func imagesOf(spec *corev1.PodSpec) (images []string) {
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		images = append(images, c.Image)
	}
	return images
}

// replicaSet records a ReplicaSet as a child of its controller.
func (f *family) replicaSet(rs *appsv1.ReplicaSet) {
	n := &node{}
	n.Health, n.Reason = health.ReplicaSet(rs)
	n.Images, n.Replicas, n.Available = imagesOf(&rs.Spec.Template.Spec), 1, rs.Status.AvailableReplicas
	if rs.Spec.Replicas != nil {
		n.Replicas = *rs.Spec.Replicas
	}
	n.noPods = n.Replicas == 0 && rs.Status.Replicas == 0
	n.revision, _ = strconv.ParseInt(rs.Annotations[rollout.RevisionAnnotation], 10, 64)
	f.addChild(ownerOf(rs), deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, &rs.ObjectMeta, n)
}

// pod records a Pod as a child of its controller.
func (f *family) pod(pod *corev1.Pod) {
	n := &node{ended: pod.Status.Phase == corev1.PodFailed}
	n.Health, n.Reason = health.Pod(pod, f.now)
	n.Images = imagesOf(&pod.Spec)
	f.addChild(ownerOf(pod), deploy.ObjectRef{Version: "v1", Kind: "Pod"}, &pod.ObjectMeta, n)
}

// job records a Job as a child of its controller, and registers it for the list of its Pods.
func (f *family) job(job *batchv1.Job) {
	n := &node{}
	n.Health, n.Reason = health.Job(job)
	n.Images = imagesOf(&job.Spec.Template.Spec)
	f.addChild(ownerOf(job), deploy.ObjectRef{Group: "batch", Version: "v1", Kind: "Job"}, &job.ObjectMeta, n)
	f.jobs = append(f.jobs, n.UID)
}

// claim records a PersistentVolumeClaim as a child of its StatefulSet. A claim has no owner
// reference, but its name consists of the names of the template and the StatefulSet and the
// number of the Pod.
func (f *family) claim(claim *corev1.PersistentVolumeClaim) {
	set := f.claims[strings.TrimRight(claim.Name, "0123456789")]
	if set == nil {
		return
	}
	n := &node{}
	n.Health, n.Reason = health.Claim(claim)
	f.addChild(set.UID, deploy.ObjectRef{Version: "v1", Kind: "PersistentVolumeClaim"}, &claim.ObjectMeta, n)
}

// adopt attaches the recorded children to a node and its descendants, and explains the
// health of the nodes by them. It attaches each child once, because owner references may
// form a cycle.
func (r *reader) adopt(n *node) {
	for _, child := range r.created[n.UID] {
		if !child.adopted {
			child.adopted = true
			n.children = append(n.children, child)
		}
	}
	if n.Object.Kind == rollout.KindDeployment {
		markIdle(n.children)
	}
	if !r.req.All {
		n.children = slices.DeleteFunc(n.children, func(child *node) bool { return child.Idle })
	}
	for _, child := range n.children {
		r.adopt(child)
	}
	if !fine(n.Health) {
		n.explain()
	}
}

// markIdle marks the ReplicaSets of earlier revisions that have no pods.
func markIdle(sets []*node) {
	var newest int64
	for _, n := range sets {
		newest = max(newest, n.revision)
	}
	for _, n := range sets {
		n.Idle = n.noPods && n.revision < newest
	}
}

// explain appends the problems of a node's pods to its reason. A workload of group apps is
// then at least as unhealthy as its pods. Its failed pods do not count, because the
// controller replaces them.
func (n *node) explain() {
	kind := manifest.GroupKind(n.Object)
	keepsPods := kind.Group == "apps"
	troubled := slices.DeleteFunc(n.pods(), func(pod *node) bool { return fine(pod.Health) || keepsPods && pod.ended })
	slices.SortStableFunc(troubled, byBadness)
	for i, pod := range troubled {
		if keepsPods && pod.Health.WorseThan(n.Health) {
			n.Health = pod.Health
		}
		if i < explainedPods {
			n.Reason += "; pod " + pod.Object.Name + ": " + pod.Reason
		}
	}
}

// pods returns the pods among the descendants of a node.
func (n *node) pods() (found []*node) {
	for _, child := range n.children {
		if child.Object.Kind == "Pod" {
			found = append(found, child)
		}
		found = append(found, child.pods()...)
	}
	return found
}

// byBadness is a comparison function that orders nodes by health, the worst first, and then
// by name.
func byBadness(a, b *node) int {
	switch {
	case a.Health.WorseThan(b.Health):
		return -1
	case b.Health.WorseThan(a.Health):
		return 1
	}
	return byName(a, b)
}

// mostRelevant returns up to maxChildren nodes, sorted by name. If there are more, it
// returns the least healthy ones.
func mostRelevant(nodes []*node) []*node {
	shown := slices.SortedFunc(slices.Values(nodes), byBadness)
	shown = shown[:min(len(shown), maxChildren)]
	slices.SortFunc(shown, byName)
	return shown
}
