package install

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/manifest"
)

// mayInstall checks that the user may apply each object of a variant, and that the namespaces of
// the applications exist.
func (i *Installer) mayInstall(ctx context.Context, v Variant) (out []Finding, err error) {
	files, err := v.Files()
	if err != nil {
		return nil, err
	}
	all, err := objects(files)
	if err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for _, name := range v.Namespaces {
		exists, err := i.namespaceExists(ctx, name)
		if err != nil {
			return nil, err
		}
		if !exists && name != v.Namespace {
			missing[name] = true
			out = append(out, Finding{"rights", Problem, "there is no namespace " + name + ", in which the agent is to deploy", "kubectl create namespace " + name})
		}
	}
	made, err := i.namespaceExists(ctx, v.Namespace)
	if err != nil {
		return nil, err
	}
	missing[v.Namespace] = !made // it is made first, and nothing can be tried in it before
	refused, asked := []string{}, map[authorizationv1.ResourceAttributes]bool{}
	ask := func(a authorizationv1.ResourceAttributes) error {
		if asked[a] {
			return nil
		}
		asked[a] = true
		allowed, err := i.mayI(ctx, a)
		if err == nil && !allowed {
			refused = append(refused, attributes(a))
		}
		return err
	}
	for _, o := range all {
		if o.GetKind() == "Namespace" && made {
			continue // it stays as it is
		}
		served, err := i.Cluster.Resource(ctx, o.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		for _, verb := range []string{"get", "create", "patch"} {
			if err := ask(authorizationv1.ResourceAttributes{Group: served.Group, Resource: served.Resource, Namespace: o.GetNamespace(), Verb: verb}); err != nil {
				return nil, err
			}
		}
	}
	for _, verb := range []string{"get", "create", "patch"} {
		if err := ask(authorizationv1.ResourceAttributes{Resource: "secrets", Namespace: v.Namespace, Verb: verb}); err != nil {
			return nil, err
		}
	}
	if len(refused) > 0 {
		return append(out, Finding{"rights", Problem, "you may not " + listed(refused), "ask an administrator of the cluster for these rights, or to install the agent"}), nil
	}
	for _, o := range all {
		if group := o.GroupVersionKind().Group; group != rbacv1.GroupName || missing[o.GetNamespace()] || strings.HasSuffix(o.GetKind(), "Binding") {
			continue
		}
		if err := i.tryRole(ctx, o); err != nil {
			out = append(out, Finding{"rights", Problem, err.Error(), "Kubernetes lets users grant only permissions that they have: let an administrator of the cluster install the agent"})
			return out, nil
		}
	}
	return append(out, Finding{"rights", OK, fmt.Sprintf("you may make the %d objects of the installation", len(all)), ""}), nil
}

// attributes names a right: "patch roles.rbac.authorization.k8s.io in namespace demo".
func attributes(a authorizationv1.ResourceAttributes) string {
	text := a.Verb + " " + a.Resource
	if a.Subresource != "" {
		text += "/" + a.Subresource
	}
	if a.Group != "" {
		text += "." + a.Group
	}
	if a.Namespace != "" {
		text += " in namespace " + a.Namespace
	}
	return text
}

// tryRole lets the API server check that the user may grant what a role permits.
func (i *Installer) tryRole(ctx context.Context, o manifest.Object) error {
	client, err := i.client(ctx, o.GroupVersionKind(), o.GetNamespace())
	if err != nil {
		return err
	}
	data, err := json.Marshal(o.Unstructured)
	if err != nil {
		return err
	}
	force := true
	err = i.Cluster.Retry(ctx, nil, func(ctx context.Context) error {
		_, err := client.Patch(ctx, o.GetName(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: FieldManager, Force: &force, DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return i.Cluster.Classify(err)
}

// namespaceExists reports whether a namespace exists, also if the user may not read it: then what is
// done in it tells.
func (i *Installer) namespaceExists(ctx context.Context, name string) (bool, error) {
	err := i.Cluster.Retry(ctx, nil, func(ctx context.Context) error {
		_, err := i.Cluster.Typed().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if apierrors.IsForbidden(err) {
		return true, nil
	}
	return err == nil, i.Cluster.Classify(err)
}

// mayI asks the API server whether the user has a right.
func (i *Installer) mayI(ctx context.Context, a authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &a}}
	err := i.review(ctx, "selfsubjectaccessreviews", review)
	return review.Status.Allowed, err
}

// review lets the API server answer a review.
func (i *Installer) review(ctx context.Context, resource string, review runtime.Object) error {
	client, err := i.Cluster.GroupClient(authorizationv1.SchemeGroupVersion)
	if err != nil {
		return err
	}
	return i.Cluster.Retry(ctx, nil, func(ctx context.Context) error {
		return client.Post().Resource(resource).Body(review).Do(ctx).Into(review)
	})
}

// checkAccount checks that the agent's account has the rights that its scope means.
func (i *Installer) checkAccount(ctx context.Context) ([]Finding, error) {
	name := i.Namespace + "/piped"
	var account *corev1.ServiceAccount
	err := i.Cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		account, err = i.Cluster.Typed().CoreV1().ServiceAccounts(i.Namespace).Get(ctx, "piped", metav1.GetOptions{})
		return err
	})
	if apierrors.IsNotFound(err) {
		return []Finding{{"rights", Problem, "there is no ServiceAccount " + name, "piped install --apply makes it"}}, nil
	}
	if err != nil {
		return nil, i.Cluster.Classify(err)
	}
	scope := account.Annotations[annotationScope]
	if scope == "" {
		return []Finding{{"rights", Warning, fmt.Sprintf("ServiceAccount %s does not say where the agent deploys: its rights are not checked", name), "install with piped install, or annotate it with " + annotationScope + ": a list of namespaces, or *"}}, nil
	}
	v := Variant{Options: Options{Namespace: i.Namespace}}
	if scope != wholeCluster {
		v.Namespaces = strings.Split(scope, ",")
	}
	needs, err := v.needs()
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, a := range needs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &a, User: "system:serviceaccount:" + i.Namespace + ":piped",
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + i.Namespace, "system:authenticated"}}}
		err := i.review(ctx, "subjectaccessreviews", review)
		if apierrors.IsForbidden(err) {
			return []Finding{{"rights", Warning, "you may not ask for the rights of other accounts: those of ServiceAccount " + name + " are not checked", "let an administrator of the cluster check"}}, nil
		}
		if err != nil {
			return nil, i.Cluster.Classify(err)
		}
		if !review.Status.Allowed {
			lacks = append(lacks, attributes(a))
		}
	}
	if len(lacks) > 0 {
		return []Finding{{"rights", Problem, fmt.Sprintf("ServiceAccount %s may not %s", name, listed(lacks)), "piped install --only permissions --apply gives these rights"}}, nil
	}
	where := "in the whole cluster"
	if len(v.Namespaces) > 0 {
		where = "in " + strings.Join(v.Namespaces, ", ")
	}
	return []Finding{{"rights", OK, fmt.Sprintf("ServiceAccount %s has the %d rights that it needs %s", name, len(needs), where), ""}}, nil
}

// needs returns what the roles of a variant permit.
func (v Variant) needs() (out []authorizationv1.ResourceAttributes, err error) {
	files, err := v.Files()
	if err != nil {
		return nil, err
	}
	all, err := objects(slices.DeleteFunc(files, func(f File) bool { return f.Part != Permissions }))
	if err != nil {
		return nil, err
	}
	for _, o := range all {
		var role rbacv1.Role // a ClusterRole has the same rules
		if strings.HasSuffix(o.GetKind(), "Binding") {
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, err
		}
		for _, rule := range role.Rules {
			out = append(out, rights(rule, o.GetNamespace())...)
		}
	}
	return out, nil
}

// rights returns each single right of a rule.
func rights(rule rbacv1.PolicyRule, namespace string) (out []authorizationv1.ResourceAttributes) {
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			resource, subresource, _ := strings.Cut(resource, "/")
			for _, verb := range rule.Verbs {
				for _, name := range names {
					out = append(out, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Subresource: subresource, Verb: verb, Namespace: namespace, Name: name})
				}
			}
		}
	}
	return out
}
