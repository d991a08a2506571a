package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/health"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Limits of Read.
const (
	requestTimeout = 5 * time.Second // of each request, because one API group may hang
	pageSize       = 500             // objects per page of a list
	maxPages       = 20              // of one list
	concurrency    = 16              // concurrent requests

	listThreshold = 4 // number of objects from which a LIST is cheaper than GETs
)

// place identifies objects that are read together: one kind in one namespace. Full objects
// are read only if whole is set, for kinds whose health depends on their content. Of others,
// such as Secrets, only metadata leaves the cluster.
type place struct {
	resource  cluster.ServedKind
	namespace string
	whole     bool
}

// Request describes what Read reads.
type Request struct {
	ApplicationID string
	Items         []deploy.InventoryItem // what the application applied on this cluster
	Checks        []config.HealthCheck
	Children      bool // also return the objects that these created
	All           bool // return all children, also idle ones, not only the most relevant ones
}

// Read reads the objects that an application applied. It returns all of them, including
// missing ones, sorted by kind, namespace and name, and the reasons why some could not be
// read as problems. It returns an error of kind Unavailable if the cluster does not answer
// and no list succeeds.
//
// Nothing is cached or retried. The number of requests depends on the number of kinds and
// namespaces, not of objects, because each kind is listed per namespace. For kinds whose
// health does not depend on their content, such as Secrets, only metadata is read. The
// children of workloads that are not healthy are always read, to explain the reason.
func Read(ctx context.Context, c *cluster.Cluster, req Request) (objects []deploy.LiveObject, problems []string, err error) {
	r := &reader{cluster: c, req: req, now: c.Now()}
	byPlace := r.places(ctx)
	g := &errgroup.Group{}
	g.SetLimit(concurrency)
	for p, nodes := range byPlace {
		g.Go(func() error {
			r.readPlace(ctx, p, nodes)
			return nil
		})
	}
	_ = g.Wait() // errors are recorded as problems
	if !r.answered && r.unavailable != nil {
		return nil, nil, r.unavailable
	}
	r.readChildren(ctx)
	slices.SortFunc(r.nodes, byName)
	for _, n := range r.nodes {
		objects = append(objects, n.object(req))
	}
	slices.Sort(r.problems)
	return objects, slices.Compact(r.problems), nil
}

// reader is the state of one call of Read.
type reader struct {
	cluster *cluster.Cluster
	req     Request
	now     time.Time
	nodes   []*node // the application's objects

	mu          sync.Mutex
	answered    bool  // a list request has succeeded
	unavailable error // the first error of kind Unavailable
	problems    []string
	created     map[string][]*node // children by the UID of their owner
}

// node is an object being read.
type node struct {
	deploy.LiveObject
	live     *unstructured.Unstructured // nil for children and missing objects
	children []*node
	adopted  bool // it was attached to its owner

	ended    bool  // a failed Pod, which its controller replaces
	noPods   bool  // a ReplicaSet without pods
	revision int64 // of a ReplicaSet
}

// byName is a comparison function that orders nodes by kind, namespace, name and group.
func byName(a, b *node) int {
	return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace),
		cmp.Compare(a.Object.Name, b.Object.Name), cmp.Compare(a.Object.Group, b.Object.Group))
}

// places creates the nodes of the application's objects, and returns them by place. Nodes
// whose kind is not served or cannot be resolved are in no place.
func (r *reader) places(ctx context.Context) map[place][]*node {
	kinds := map[schema.GroupVersionKind][]*node{}
	for _, item := range r.req.Items {
		n := &node{LiveObject: deploy.LiveObject{Cluster: r.cluster.Name(), Object: item.Object, Variant: item.Variant}}
		r.nodes = append(r.nodes, n)
		kinds[manifest.GVK(item.Object)] = append(kinds[manifest.GVK(item.Object)], n)
	}
	byPlace := map[place][]*node{}
	for kind, nodes := range kinds {
		var served cluster.ServedKind
		err := withTimeout(ctx, func(ctx context.Context) (err error) {
			served, err = r.cluster.FindKind(ctx, kind)
			return err
		})
		known, reason := deploy.Health(""), ""
		switch {
		case errors.Is(err, cluster.ErrUnknownKind):
			known, reason = deploy.HealthMissing, "the cluster does not know its kind"
		case err != nil:
			reason = r.noteProblem("find how "+kind.Kind+" is served", err)
		}
		whole := health.ReadWhole(kind, r.req.Checks)
		for _, n := range nodes {
			if n.Health, n.Reason = known, reason; err == nil {
				p := place{served, n.Object.Namespace, whole}
				byPlace[p] = append(byPlace[p], n)
			}
		}
	}
	return byPlace
}

// noteProblem records a failed read as a problem, and returns the reason for the nodes that
// it concerns.
func (r *reader) noteProblem(what string, err error) string {
	err = r.cluster.Classify(err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if deploy.IsKind(err, deploy.Unavailable) && r.unavailable == nil {
		r.unavailable = err
	}
	problem := fmt.Sprintf("%s: %v", what, err)
	r.problems = append(r.problems, problem)
	return "it cannot be read: " + problem
}

// gotAnswer records that a list request has succeeded.
func (r *reader) gotAnswer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
}

// readPlace reads the objects of one place by the application label. It then reads objects
// without that label by name, or in one list of the whole place if they are many.
func (r *reader) readPlace(ctx context.Context, p place, nodes []*node) {
	found, err := r.list(ctx, p, metav1.ListOptions{LabelSelector: manifest.LabelApplication + "=" + r.req.ApplicationID})
	missing := r.assign(nodes, found)
	switch {
	case err != nil || len(missing) == 0:
	case len(missing) < listThreshold:
		found, err = r.one(ctx, p, missing)
	default:
		found, err = r.list(ctx, p, metav1.ListOptions{})
	}
	missing = r.assign(missing, found)
	reason := "it is not in the cluster"
	if err != nil {
		what := "list " + p.resource.Resource
		if p.namespace != "" {
			what += " in namespace " + p.namespace
		}
		reason = r.noteProblem(what, err)
	}
	for _, n := range missing {
		n.Reason = reason
		if err == nil {
			n.Health = deploy.HealthMissing
		}
	}
}

// list lists the objects of a place, and returns them by name.
func (r *reader) list(ctx context.Context, p place, options metav1.ListOptions) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	var err error
	if p.whole {
		err = eachPage(ctx, options, r.cluster.ResourceClient(p.resource, p.namespace).List, func(list *unstructured.UnstructuredList) {
			for i := range list.Items {
				found[list.Items[i].GetName()] = &list.Items[i]
			}
		})
	} else {
		err = eachPage(ctx, options, r.cluster.MetadataClient(p.resource, p.namespace).List, func(list *metav1.PartialObjectMetadataList) {
			for i := range list.Items {
				found[list.Items[i].Name] = bare(&list.Items[i])
			}
		})
	}
	if err == nil {
		r.gotAnswer()
	}
	return found, err
}

// one reads objects of a place by individual requests, and returns those that exist by name.
func (r *reader) one(ctx context.Context, p place, nodes []*node) (map[string]*unstructured.Unstructured, error) {
	found := map[string]*unstructured.Unstructured{}
	for _, n := range nodes {
		name := n.Object.Name
		err := withTimeout(ctx, func(ctx context.Context) (err error) {
			if p.whole {
				found[name], err = r.cluster.ResourceClient(p.resource, p.namespace).Get(ctx, name, metav1.GetOptions{})
				return err
			}
			live, err := r.cluster.MetadataClient(p.resource, p.namespace).Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				found[name] = bare(live)
			}
			return err
		})
		if err != nil {
			delete(found, name)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return found, err
		}
	}
	return found, nil
}

// bare returns an object with only the metadata that health depends on.
func bare(m *metav1.PartialObjectMetadata) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetUID(m.UID)
	u.SetCreationTimestamp(m.CreationTimestamp)
	u.SetDeletionTimestamp(m.DeletionTimestamp)
	u.SetFinalizers(m.Finalizers)
	return u
}

// assign fills the nodes whose objects were found, and returns the other nodes.
func (r *reader) assign(nodes []*node, found map[string]*unstructured.Unstructured) (missing []*node) {
	for _, n := range nodes {
		u := found[n.Object.Name]
		if u == nil {
			missing = append(missing, n)
			continue
		}
		u.SetGroupVersionKind(manifest.GVK(n.Object))
		n.live, n.UID, n.CreatedAt, n.Deleting = u, string(u.GetUID()), u.GetCreationTimestamp().Time, u.GetDeletionTimestamp() != nil
		n.Health, n.Reason = health.Live(u, r.req.Checks, r.now)
		for _, c := range manifest.Containers(u) {
			n.Images = append(n.Images, c.Image)
		}
		n.Replicas, n.Available = replicasOf(u)
	}
	return missing
}

// replicasOf returns the desired and the available replicas of a workload.
func replicasOf(u *unstructured.Unstructured) (desired, available int32) {
	number := func(path ...string) int32 {
		n, _, _ := unstructured.NestedInt64(u.Object, path...)
		return int32(n)
	}
	if apply.IsWorkload(u.GroupVersionKind().GroupKind()) && u.GetKind() == "DaemonSet" {
		return number("status", "desiredNumberScheduled"), number("status", "numberAvailable")
	}
	return number("spec", "replicas"), number("status", "availableReplicas")
}

// object returns the LiveObject of a node with the children that the request asks for.
func (n *node) object(req Request) deploy.LiveObject {
	o := n.LiveObject
	if !req.Children {
		return o
	}
	shown := n.children
	if !req.All {
		shown = mostRelevant(n.children)
	}
	o.LeftOut = len(n.children) - len(shown)
	for _, child := range shown {
		o.Children = append(o.Children, child.object(req))
	}
	return o
}

// eachPage lists in pages and calls each with every page. It returns an error if there are
// more than maxPages.
func eachPage[L metav1.ListInterface](ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), each func(L)) error {
	options.Limit = pageSize
	for range maxPages {
		err := withTimeout(ctx, func(ctx context.Context) error {
			page, err := list(ctx, options)
			if err == nil {
				each(page)
				options.Continue = page.GetContinue()
			}
			return err
		})
		if err != nil || options.Continue == "" {
			return err
		}
	}
	return fmt.Errorf("there are more than %d, which is as many as are read", pageSize*maxPages)
}

// withTimeout calls request with a context that ends after requestTimeout.
func withTimeout(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return request(ctx)
}
