package install

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Installer installs an agent in a cluster, and removes it.
type Installer struct {
	Cluster   *cluster.Cluster
	Namespace string // of the agent
	// Namespaces are those of the applications as far as the caller knows them: objects are
	// searched there where searching the whole cluster is not permitted.
	Namespaces []string
	// ReplaceConfig also replaces a configuration that was edited since the last installation.
	ReplaceConfig bool
	// ChangeStore permits a variant whose store is not the one that the agent has.
	ChangeStore bool
	// Say receives what is done, in lines. It must not be nil.
	Say func(format string, args ...any)
}

// Applied is what Apply has done.
type Applied struct {
	// PublicKey is the public half of the deploy key that the agent uses, "" without one.
	PublicKey string
	// Left are objects of the variant before this one that contain data. Remove them by hand.
	Left []deploy.ObjectRef
}

// Apply applies the namespace and the secrets, then the other files in their order, and deletes
// what only the variant before had, but for secrets and volumes. A secret that exists keeps its
// values, but for those that the user has given. Apply refuses objects that others made, and a
// configuration or a store that cannot become that of the variant, before it changes anything.
//
// All says that files and secrets are the whole installation: without it, nothing is deleted.
func (i *Installer) Apply(ctx context.Context, files []File, secrets []Secret, all bool) (a Applied, err error) {
	wanted, err := objects(files)
	if err != nil {
		return a, err
	}
	var before, after []*unstructured.Unstructured
	for n, f := range files {
		found, err := objects(files[n : n+1])
		if err != nil {
			return a, err
		}
		for _, o := range found {
			if f.Part == Secrets {
				before = append(before, o.Unstructured)
			} else {
				after = append(after, o.Unstructured)
			}
		}
	}
	for _, o := range after {
		if !isConfig(o) {
			continue
		}
		if err := i.checkFirst(ctx, o); err != nil {
			return a, err
		}
	}
	for _, o := range before {
		if err := i.applyNamespace(ctx, o); err != nil {
			return a, err
		}
	}
	for _, s := range secrets {
		if err := i.applySecret(ctx, s, &a); err != nil {
			return a, err
		}
	}
	for _, o := range after {
		if err := i.applyObject(ctx, o); err != nil {
			return a, err
		}
	}
	if all {
		a.Left, err = i.prune(ctx, wanted, secrets)
	}
	return a, err
}

// checkFirst refuses, before anything is changed, a configuration that applyObject would refuse.
func (i *Installer) checkFirst(ctx context.Context, o *unstructured.Unstructured) error {
	live, err := i.get(ctx, o)
	if err != nil || live == nil {
		return err
	}
	if err := i.refuse(live); err != nil {
		return err
	}
	return i.checkConfig(live, o)
}

// applyNamespace applies the namespace, unless a person made it.
func (i *Installer) applyNamespace(ctx context.Context, o *unstructured.Unstructured) error {
	live, err := i.get(ctx, o)
	switch {
	case apierrors.IsForbidden(err): // what is done in it tells whether it exists
		return nil
	case err != nil:
		return err
	case live != nil && !i.owns(live):
		i.Say("Namespace %s exists, and stays as it is", o.GetName())
		return nil
	}
	return i.write(ctx, o, live == nil)
}

// applyObject applies an object that does not exist or is of this installation.
func (i *Installer) applyObject(ctx context.Context, o *unstructured.Unstructured) error {
	live, err := i.get(ctx, o)
	if err == nil && live != nil {
		err = i.refuse(live)
	}
	if err != nil {
		return err
	}
	if isConfig(o) {
		if err := i.checkConfig(live, o); err != nil {
			return err
		}
		if edited(live, o) && !i.ReplaceConfig {
			i.Say("%s was edited, has what this installation needs, and stays as it is: --replace-config replaces it", manifest.Ref(o))
			return nil
		}
		o = o.DeepCopy()
		record(o, live)
	}
	return i.write(ctx, o, live == nil)
}

// refuse returns an error for an object that is not of this installation.
func (i *Installer) refuse(live *unstructured.Unstructured) error {
	if i.owns(live) {
		return nil
	}
	ref := manifest.Ref(live)
	if by := live.GetLabels()[labelManagedBy]; by != "" && by != FieldManager {
		return deploy.Errorf(deploy.Invalid, "%s exists, and is managed by %s: change it there, or remove it there first", ref, by)
	}
	namespace := ""
	if ref.Namespace != "" {
		namespace = " -n " + ref.Namespace
	}
	return deploy.Errorf(deploy.Invalid, "%s exists, and was not made by this installation: remove it, or hand it over with: kubectl label %s %s%s %s=%s %s=%s",
		ref, strings.ToLower(ref.Kind), ref.Name, namespace, labelManagedBy, FieldManager, labelInstance, i.Namespace)
}

// owns reports whether an object is of this installation.
func (i *Installer) owns(o metav1.Object) bool {
	return o.GetLabels()[labelManagedBy] == FieldManager && o.GetLabels()[labelInstance] == i.Namespace
}

// applySecret creates a secret. One that exists keeps its values, but for those that the user has
// given; one that a person made is used as it is.
func (i *Installer) applySecret(ctx context.Context, s Secret, a *Applied) error {
	typed := s.object()
	live, err := i.getSecret(ctx, s.Name)
	if err != nil {
		return err
	}
	if live != nil {
		if key := s.differs(live); key != "" && !i.owns(live) {
			return deploy.Errorf(deploy.Invalid, "Secret %s/%s exists, was not made by this installation, and differs in %s: change it by hand, or remove it and let it be made", i.Namespace, s.Name, key)
		}
		typed.Data, typed.Type = s.over(live), live.Type
	}
	if s.Name == GitSecret && s.variant.SSH {
		if a.PublicKey, err = PublicKey(typed.Data[keyDeploy]); err != nil {
			return fmt.Errorf("Secret %s/%s: %w", i.Namespace, s.Name, err)
		}
	}
	if live != nil && !i.owns(live) {
		i.Say("Secret %s/%s exists, and stays as it is", i.Namespace, s.Name)
		return nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return err
	}
	return i.write(ctx, &unstructured.Unstructured{Object: content}, live == nil)
}

// write applies an object on the server's side.
func (i *Installer) write(ctx context.Context, o *unstructured.Unstructured, isNew bool) error {
	ref := manifest.Ref(o)
	client, err := i.client(ctx, o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(o.Object, "metadata", "creationTimestamp")
	data, err := json.Marshal(o)
	if err != nil {
		return err
	}
	force := true
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) error {
		_, err := client.Patch(ctx, o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: FieldManager, Force: &force, FieldValidation: metav1.FieldValidationStrict})
		return err
	})
	if err != nil {
		return fmt.Errorf("apply %s: %w", ref, i.Cluster.Classify(err))
	}
	if isNew {
		i.Say("created %s", ref)
	} else {
		i.Say("applied %s", ref)
	}
	return nil
}

// client returns the client of a kind.
func (i *Installer) client(ctx context.Context, kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	served, err := i.Cluster.Resource(ctx, kind)
	if err != nil {
		return nil, err
	}
	return i.Cluster.ResourceClient(served, namespace), nil
}

// get returns an object in the cluster, nil if it does not exist.
func (i *Installer) get(ctx context.Context, o *unstructured.Unstructured) (live *unstructured.Unstructured, err error) {
	client, err := i.client(ctx, o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return nil, err
	}
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		live, err = client.Get(ctx, o.GetName(), metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", manifest.Ref(o), i.Cluster.Classify(err))
	}
	return live, nil
}

// prune deletes the objects of this installation that are not wanted, and returns those that it
// leaves.
func (i *Installer) prune(ctx context.Context, wanted []manifest.Object, secrets []Secret) (left []deploy.ObjectRef, err error) {
	keep := map[deploy.ObjectRef]bool{}
	for _, o := range wanted {
		keep[manifest.Ref(o.Unstructured)] = true
	}
	for _, s := range secrets {
		keep[deploy.ObjectRef{Version: "v1", Kind: "Secret", Namespace: i.Namespace, Name: s.Name}] = true
	}
	found, err := i.Find(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range found {
		ref := manifest.Ref(o)
		switch {
		case keep[ref] || ref.Kind == "Namespace":
		case ref.Kind == "Secret" || ref.Kind == "PersistentVolumeClaim":
			left = append(left, ref)
		default:
			if err := i.delete(ctx, o); err != nil {
				return left, err
			}
			i.Say("deleted %s, which this variant does not have", ref)
		}
	}
	return left, nil
}

// kinds are those of the installation's objects, in the order of removal: the agent ends before it
// loses what it needs.
var kinds = []schema.GroupVersionKind{
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"},
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "ConfigMap"},
	{Version: "v1", Kind: "PersistentVolumeClaim"},
	{Version: "v1", Kind: "Secret"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "RoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	{Version: "v1", Kind: "ServiceAccount"},
	{Version: "v1", Kind: "Namespace"},
}

// names are the names that the installation gives to its objects: others with its labels are copies
// of somebody.
func (i *Installer) names() []string {
	in := scoped(i.Namespace)
	return []string{"piped", GitSecret, StoreSecret, TLSSecret, in, in + "-lease", in + "-agent", in + "-applications", in + "-routes", i.Namespace}
}

// Find returns the objects of the installation, in the order of removal.
func (i *Installer) Find(ctx context.Context) (found []*unstructured.Unstructured, err error) {
	for _, kind := range kinds {
		served, err := i.Cluster.Resource(ctx, kind)
		if err != nil {
			return nil, err
		}
		objects, err := i.list(ctx, served)
		if err != nil {
			return nil, err
		}
		for n := range objects {
			if o := &objects[n]; i.owns(o) && slices.Contains(i.names(), o.GetName()) {
				found = append(found, o)
			}
		}
	}
	return found, nil
}

// list returns the objects of a kind with the installation's labels, in the whole cluster or where
// that is permitted.
func (i *Installer) list(ctx context.Context, kind cluster.ServedKind) ([]unstructured.Unstructured, error) {
	everywhere, err := i.listIn(ctx, kind, "")
	if !apierrors.IsForbidden(err) {
		return everywhere, i.Cluster.Classify(err)
	}
	var found []unstructured.Unstructured
	if !kind.Namespaced {
		return nil, nil // a user who may not list these has not created one
	}
	namespaces := append([]string{i.Namespace, metav1.NamespaceDefault}, i.Namespaces...)
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(namespaces))) {
		objects, err := i.listIn(ctx, kind, namespace)
		if err != nil {
			return nil, fmt.Errorf("find what is installed in namespace %s: %w", namespace, i.Cluster.Classify(err))
		}
		found = append(found, objects...)
	}
	return found, nil
}

func (i *Installer) listIn(ctx context.Context, kind cluster.ServedKind, namespace string) ([]unstructured.Unstructured, error) {
	var list *unstructured.UnstructuredList
	selector := labelManagedBy + "=" + FieldManager + "," + labelInstance + "=" + i.Namespace
	err := i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		list, err = i.Cluster.ResourceClient(kind, namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		return err
	})
	if err != nil {
		return nil, err
	}
	// An aggregated ClusterRole is before its parts: its controller writes it when one of them changes.
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list.Items, nil
}

// delete deletes an object as it was found, and waits until it is gone with what it owns.
func (i *Installer) delete(ctx context.Context, o *unstructured.Unstructured) error {
	client, err := i.client(ctx, o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return err
	}
	uid, foreground := o.GetUID(), metav1.DeletePropagationForeground
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) error {
		return client.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: &foreground, Preconditions: &metav1.Preconditions{UID: &uid}})
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", manifest.Ref(o), i.Cluster.Classify(err))
	}
	for {
		live, err := i.get(ctx, o)
		if err != nil || live == nil || live.GetUID() != uid {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is being deleted, held by %q: %w", manifest.Ref(o), live.GetFinalizers(), context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

// pollInterval is the time between two reads of something that is to change.
const pollInterval = 250 * time.Millisecond
