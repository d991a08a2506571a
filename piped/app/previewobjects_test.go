package app

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// everyKind are the kinds of which a previewedApp, a routedApp or their controllers have objects.
var everyKind = []schema.GroupVersionResource{
	{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "replicasets"}, {Version: "v1", Resource: "pods"},
	{Version: "v1", Resource: "services"}, {Version: "v1", Resource: "configmaps"}, {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"}, {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, httpRouteResource,
	istioResource("virtualservices"), istioResource("destinationrules"),
}

// objectsOf returns the objects of the applications' namespace that are of previews, or those that are
// not, by kind and name.
func (e *previewEnv) objectsOf(previews bool) map[string]string {
	e.t.Helper()
	out := map[string]string{}
	for _, kind := range everyKind {
		list, err := e.dynamic.Resource(kind).Namespace(e.namespace).List(context.Background(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) { // the cluster does not have the kind
			continue
		}
		if err != nil {
			e.t.Error(err)
			continue
		}
		for _, o := range list.Items {
			if strings.Contains(o.GetName(), "-pr-") == previews {
				out[kind.Resource+" "+o.GetName()] = e.written(o)
			}
		}
	}
	return out
}

// written returns an object without its status, which controllers write.
func (e *previewEnv) written(o unstructured.Unstructured) string {
	e.t.Helper()
	delete(o.Object, "status")
	o.SetResourceVersion("")
	o.SetManagedFields(slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource == "status" }))
	text, err := json.Marshal(o.Object)
	if err != nil {
		e.t.Error(err)
	}
	return string(text)
}

// mustBeShared fails the test unless every object of the branch is as it was, and there are no others.
func (e *previewEnv) mustBeShared(before map[string]string) {
	e.t.Helper()
	after := e.objectsOf(false)
	for name, was := range before {
		if after[name] != was {
			e.t.Errorf("%s was\n%s\nand is\n%s", name, was, after[name])
		}
	}
	for name := range after {
		if before[name] == "" {
			e.t.Errorf("%s is new", name)
		}
	}
}
