package install

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/manifest"
)

// Removal is what removing the installation means.
type Removal struct {
	// Deletes are the objects to delete, in this order.
	Deletes []*unstructured.Unstructured
	// Kept are the objects of the installation that stay, with the reason.
	Kept []Kept
}

// Kept is an object that stays.
type Kept struct{ Object, Reason string }

// PlanRemoval returns what there is to remove. The volume with the agent's data and the secrets that
// nothing can make again go only with data, and the namespace only if nothing else is in it. Objects
// that the agent deployed stay. Parse reads a configuration of an agent.
func (i *Installer) PlanRemoval(ctx context.Context, data bool, parse func(string) (*config.Piped, error)) (r Removal, err error) {
	found, err := i.Find(ctx)
	if err != nil {
		return r, err
	}
	lease, err := i.lease(ctx, parse)
	if err != nil {
		return r, err
	}
	if lease != nil {
		defer func() { r.Deletes = slices.Insert(r.Deletes, min(1, len(r.Deletes)), lease) }() // the agent ends first
	}
	for _, o := range found {
		ref := manifest.Ref(o)
		reason := irreplaceable(o)
		switch {
		case reason != "" && !data:
			r.Kept = append(r.Kept, Kept{ref.String(), reason + "; --data removes it"})
		case ref.Kind == "Namespace":
			others, err := i.others(ctx, found, data)
			if err != nil {
				return r, err
			}
			if len(others) > 0 {
				r.Kept = append(r.Kept, Kept{ref.String(), "it contains " + listed(others)})
				continue
			}
			r.Deletes = append(r.Deletes, o)
		default:
			r.Deletes = append(r.Deletes, o)
		}
	}
	return r, nil
}

// irreplaceable says what is lost for good with an object, "" if another installation makes the same.
func irreplaceable(o *unstructured.Unstructured) string {
	switch o.GetKind() + "/" + o.GetName() {
	case "Secret/" + StoreSecret:
		return "it has the key of the store, without which the database and its backups cannot be read"
	case "Secret/" + GitSecret:
		if _, is, _ := unstructured.NestedString(o.Object, "data", keyDeploy); is { // base64
			return "it has the deploy key that the repository knows"
		}
		return "it has the password for the repository"
	}
	if o.GetKind() == "PersistentVolumeClaim" {
		return "it has the agent's data: history, API keys and the SQLite store"
	}
	return ""
}

// Remove deletes what PlanRemoval returned.
func (i *Installer) Remove(ctx context.Context, r Removal) error {
	for _, o := range r.Deletes {
		if o.GetKind() == "Lease" {
			held, err := i.held(ctx, o)
			if err != nil {
				return err
			}
			if held {
				i.Say("%s stays: an agent holds it", manifest.Ref(o))
				continue
			}
		}
		if err := i.delete(ctx, o); err != nil {
			return err
		}
		i.Say("deleted %s", manifest.Ref(o))
	}
	return nil
}

// lease returns the Lease that the agent made for its piped ID, nil if there is none.
func (i *Installer) lease(ctx context.Context, parse func(string) (*config.Piped, error)) (*unstructured.Unstructured, error) {
	cfg, problem, err := i.configuration(ctx, parse)
	if err != nil || problem != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("coordination.k8s.io/v1")
	o.SetKind("Lease")
	o.SetNamespace(cluster.LeaseNamespace)
	o.SetName(cluster.LeaseName(cfg.PipedID))
	return i.get(ctx, o)
}

// held reports whether an agent holds a Lease: one that ends gives it up, and one that was killed
// does not renew it.
func (i *Installer) held(ctx context.Context, o *unstructured.Unstructured) (bool, error) {
	lease, err := i.Cluster.Typed().CoordinationV1().Leases(o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, i.Cluster.Classify(err)
	}
	s := lease.Spec
	if s.HolderIdentity == nil || *s.HolderIdentity == "" || s.RenewTime == nil || s.LeaseDurationSeconds == nil {
		return false, nil
	}
	expires := s.RenewTime.Add(time.Duration(*s.LeaseDurationSeconds) * time.Second)
	return time.Now().Add(i.Cluster.Skew()).Before(expires), nil
}

// listed returns the first of some names.
func listed(names []string) string {
	const shown = 3
	text := strings.Join(names[:min(shown, len(names))], ", ")
	if more := len(names) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// others returns the objects of the namespace that will not be removed: objects of every kind that
// no other object owns and that Kubernetes does not make itself.
func (i *Installer) others(ctx context.Context, found []*unstructured.Unstructured, data bool) (names []string, err error) {
	removed := map[string]bool{}
	for _, o := range found {
		if data || irreplaceable(o) == "" {
			removed[o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName()] = true
		}
	}
	config := i.Cluster.RESTConfig()
	kinds, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	served, err := discovery.ServerPreferredNamespacedResources(kinds)
	if err != nil {
		return nil, fmt.Errorf("find what else is in namespace %s: %w", i.Namespace, err)
	}
	for _, list := range served {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // no request can address these kinds
		}
		for _, kind := range list.APIResources {
			if !slices.Contains(kind.Verbs, "list") || passing[kind.Kind] {
				continue
			}
			objects, err := i.Cluster.Metadata().Resource(version.WithResource(kind.Name)).Namespace(i.Namespace).List(ctx, metav1.ListOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("find what else is in namespace %s: %w", i.Namespace, i.Cluster.Classify(err))
			}
			for _, o := range objects.Items {
				if len(o.OwnerReferences) == 0 && !removed[kind.Kind+"/"+o.Namespace+"/"+o.Name] && !automatic[kind.Kind+"/"+o.Name] {
					names = append(names, kind.Kind+" "+o.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// passing are kinds whose objects come and go with others, or are only shown.
var passing = map[string]bool{"Event": true, "Endpoints": true, "PodMetrics": true}

// automatic are objects that each namespace has.
var automatic = map[string]bool{"ConfigMap/kube-root-ca.crt": true, "ServiceAccount/default": true, "ConfigMap/openshift-service-ca.crt": true, "ConfigMap/istio-ca-root-cert": true}

// Objects names the objects to delete.
func (r Removal) Objects() (names []string) {
	for _, o := range r.Deletes {
		names = append(names, manifest.Ref(o).String())
	}
	return names
}
