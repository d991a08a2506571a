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
	"github.com/c785c783/piped/piped/cluster/health"
	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Limits of what LiveState reads.
const (
	liveTimeout = 5 * time.Second // for one request: one API group that hangs leaves time for the others
	livePage    = 500             // objects of one request
	livePages   = 20              // requests of one list

	liveRequests  = 16 // at the same time
	listThreshold = 4  // objects of one kind and namespace from which a LIST is cheaper than GETs
)

// place is where objects are read together: one kind in one namespace. Only kinds whose
// health depends on their content are read whole, so that Secrets never leave the cluster.
type place struct {
	resource  cluster.ServedKind
	namespace string
	whole     bool
}

// Request says what LiveState reads.
type Request struct {
	ApplicationID string
	Items         []deploy.InventoryItem // what the application applied on this cluster
	Checks        []config.HealthCheck
	Children      bool // also tell what the objects created
}

// Read reads the objects that an application applied, and returns them by
// kind, namespace and name, the missing ones too; and what could not be read, for a
// person. The error is Unavailable when the cluster answers nothing.
//
// Nothing is cached and nothing tried again. What is asked grows with the kinds and
// namespaces of the objects, not with their number: lists of a kind in a namespace.
// Of kinds whose health does not need it, Secrets among them, no content is read.
// What workloads created is also read where they are not healthy, to say why.
func Read(ctx context.Context, c *cluster.Cluster, req Request) (objects []deploy.LiveObject, problems []string, err error) {
	r := &reader{cluster: c, req: req, now: c.Now()}
	spots := r.places(ctx)
	g := &errgroup.Group{}
	g.SetLimit(liveRequests)
	for p, nodes := range spots {
		g.Go(func() error {
			r.readPlace(ctx, p, nodes)
			return nil
		})
	}
	_ = g.Wait() // they note what fails
	if !r.answered && r.unavailable != nil {
		return nil, nil, r.unavailable
	}
	r.readChildren(ctx)
	slices.SortFunc(r.nodes, byName)
	for _, n := range r.nodes {
		objects = append(objects, n.object(req.Children))
	}
	slices.Sort(r.problems)
	return objects, slices.Compact(r.problems), nil
}

// reader is one LiveState as it goes on.
type reader struct {
	cluster *cluster.Cluster
	req     Request
	now     time.Time
	nodes   []*node // the application's objects

	mu          sync.Mutex
	answered    bool  // the cluster gave an answer to anything
	unavailable error // why it gave none
	problems    []string
	created     map[string][]*node // what objects created, by the UID of what created it
}

// node is an object on its way to be told.
type node struct {
	deploy.LiveObject
	live     *unstructured.Unstructured // nil of children and of what is not there
	children []*node
	adopted  bool // it is somebody's child

	ended    bool  // a Pod that has ended, which another replaces where one is wanted
	idle     bool  // a ReplicaSet without pods
	revision int64 // of a ReplicaSet
}

func byName(a, b *node) int {
	return cmp.Or(cmp.Compare(a.Object.Kind, b.Object.Kind), cmp.Compare(a.Object.Namespace, b.Object.Namespace),
		cmp.Compare(a.Object.Name, b.Object.Name), cmp.Compare(a.Object.Group, b.Object.Group))
}

// places returns the objects by where they are read.
func (r *reader) places(ctx context.Context) map[place][]*node {
	kinds := map[schema.GroupVersionKind][]*node{}
	for _, item := range r.req.Items {
		n := &node{LiveObject: deploy.LiveObject{Cluster: r.cluster.Name(), Object: item.Object, Variant: item.Variant}}
		r.nodes = append(r.nodes, n)
		kinds[manifest.GVK(item.Object)] = append(kinds[manifest.GVK(item.Object)], n)
	}
	spots := map[place][]*node{}
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
				spots[p] = append(spots[p], n)
			}
		}
	}
	return spots
}

// noteProblem keeps what could not be read and returns it for the objects that it concerns.
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

func (r *reader) gotAnswer() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = true
}

// readPlace reads the objects of one livePlace, first by the application's label. It is not
// on those that somebody took it from: they are read by their names, a few one by
// one.
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

// list reads a place.
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

// one reads objects of a place one by one.
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

// bare is an object of which only the metadata that tell its health are known.
func bare(m *metav1.PartialObjectMetadata) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetUID(m.UID)
	u.SetCreationTimestamp(m.CreationTimestamp)
	u.SetDeletionTimestamp(m.DeletionTimestamp)
	u.SetFinalizers(m.Finalizers)
	return u
}

// assign gives the nodes what was found and returns those that were not.
func (r *reader) assign(nodes []*node, found map[string]*unstructured.Unstructured) (missing []*node) {
	for _, n := range nodes {
		u := found[n.Object.Name]
		if u == nil {
			missing = append(missing, n)
			continue
		}
		u.SetGroupVersionKind(manifest.GVK(n.Object))
		n.live, n.UID, n.CreatedAt = u, string(u.GetUID()), u.GetCreationTimestamp().Time
		n.Health, n.Reason = health.Live(u, r.req.Checks, r.now)
		for _, c := range manifest.Containers(u) {
			n.Images = append(n.Images, c.Image)
		}
		n.Replicas, n.Available = replicasOf(u)
	}
	return missing
}

// replicasOf returns how many pods a workload wants and how many are available.
func replicasOf(u *unstructured.Unstructured) (desired, available int32) {
	number := func(path ...string) int32 {
		n, _, _ := unstructured.NestedInt64(u.Object, path...)
		return int32(n)
	}
	if cluster.IsWorkload(u.GroupVersionKind().GroupKind()) && u.GetKind() == "DaemonSet" {
		return number("status", "desiredNumberScheduled"), number("status", "numberAvailable")
	}
	return number("spec", "replicas"), number("status", "availableReplicas")
}

// object returns the node as a caller gets it.
func (n *node) object(children bool) deploy.LiveObject {
	o := n.LiveObject
	if !children {
		return o
	}
	told := mostTelling(n.children)
	o.LeftOut = len(n.children) - len(told)
	for _, child := range told {
		o.Children = append(o.Children, child.object(true))
	}
	return o
}

// eachPage gives each the pages of a list. It ends with an error that says so when
// there are more than livePages.
func eachPage[L metav1.ListInterface](ctx context.Context, options metav1.ListOptions, list func(context.Context, metav1.ListOptions) (L, error), each func(L)) error {
	options.Limit = livePage
	for range livePages {
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
	return fmt.Errorf("there are more than %d, which is as many as are read", livePage*livePages)
}

func withTimeout(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, liveTimeout)
	defer cancel()
	return request(ctx)
}
