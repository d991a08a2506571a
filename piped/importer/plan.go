package importer

import (
	"fmt"
	"strings"
)

// steps returns the steps of a takeover, which only differ in how the other tool is paused and
// removed.
func (u *unit) steps(pause []string, remove ...string) []string {
	out := append([]string{}, pause...)
	names, adopt := "", "Adopt: pipectl application adopt --app-id ID. Pods restart only if a rendered pod template differs from the live one"
	if t := u.spec.Trigger; t != nil && t.OnCommit != nil && t.OnCommit.Disabled {
		adopt += ". Deploy by pipectl application sync --app-id ID, since commits are not deployed"
	}
	for i, a := range u.apps {
		if i > 0 {
			names += ", "
		}
		names += a.spec.Name
	}
	out = append(out,
		"Commit and push the files. Start the agent with adopt: review",
		fmt.Sprintf("Compare: pipectl application adoptions names the live objects of %s, their field managers, and whether an apply changes more than their ownership", names),
		adopt,
		"Check: pipectl application drift --app-id ID --diff shows nothing, the pods have their ages from before, and piped import --from-cluster warns of no object that the other tool still manages",
	)
	return append(out, remove...)
}

// argoPlan returns the takeover of an Application.
func argoPlan(u *unit) []string {
	name, namespace := u.document.name(), u.argoNamespace()
	pause := []string{}
	if owner := u.owner(); strings.HasPrefix(owner, "ApplicationSet ") {
		pause = append(pause, deleteSet(strings.TrimPrefix(owner, "ApplicationSet "), namespace))
	} else if owner != "" {
		pause = append(pause, fmt.Sprintf("Pause what makes the Application first, or it is restored: %s", owner))
	}
	pause = append(pause, fmt.Sprintf(`Pause Argo CD: kubectl -n %s patch application %s --type merge -p '{"spec":{"syncPolicy":{"automated":null}}}' (or argocd app set %s --sync-policy none)`, namespace, name, name))
	return u.steps(pause,
		fmt.Sprintf(`Remove the Application without its objects: kubectl -n %s patch application %s --type merge -p '{"metadata":{"finalizers":null}}', then kubectl -n %s delete application %s (or argocd app delete %s --cascade=false)`, namespace, name, namespace, name, name))
}

func (u *unit) argoNamespace() string {
	if ns := u.document.namespace(); ns != "" {
		return ns
	}
	return "argocd"
}

// owner names what makes an Application, "" if that is not known.
func (u *unit) owner() string {
	metadata, _ := u.document.Object["metadata"].(map[string]any)
	owners, _ := metadata["ownerReferences"].([]any)
	for _, o := range owners {
		if ref, ok := o.(map[string]any); ok {
			return fmt.Sprintf("%v %v", ref["kind"], ref["name"])
		}
	}
	for _, mark := range []string{"argocd.argoproj.io/tracking-id", "kustomize.toolkit.fluxcd.io/name"} {
		for _, where := range []string{"annotations", "labels"} {
			values, _ := metadata[where].(map[string]any)
			if value, ok := values[mark].(string); ok {
				return fmt.Sprintf("%s (%s)", value, mark)
			}
		}
	}
	return ""
}

// argoSetPlan returns the takeover of an Application that an ApplicationSet makes. The set is
// deleted before its first Application: it makes again what is deleted, with every policy.
func argoSetPlan(set Document) func(*unit) []string {
	return func(u *unit) []string {
		return append([]string{deleteSet(set.name(), u.argoNamespace())}, argoPlan(u)...)
	}
}

func deleteSet(name, namespace string) string {
	return fmt.Sprintf("Delete the ApplicationSet without its Applications, or it restores them, also one that is deleted: remove its file from Git, then kubectl -n %s delete applicationset %s --cascade=orphan", namespace, name)
}

// fluxPlan returns the takeover of a Kustomization or HelmRelease. Flux leaves alone what a
// suspended object declares when that is deleted.
func fluxPlan(u *unit) []string {
	name, namespace := u.document.name(), u.document.namespace()
	if namespace == "" {
		namespace = "flux-system"
	}
	resource, short := "kustomizations.kustomize.toolkit.fluxcd.io", "kustomization"
	patch := `{"spec":{"suspend":true,"prune":false}}`
	if u.document.kind() == "HelmRelease" {
		resource, short, patch = "helmreleases.helm.toolkit.fluxcd.io", "helmrelease", `{"spec":{"suspend":true}}`
	}
	pause := []string{}
	if owner := u.owner(); owner != "" {
		pause = append(pause, fmt.Sprintf("Pause what applies the %s first, or the next step is undone: %s", u.document.kind(), owner))
	}
	pause = append(pause, fmt.Sprintf(`Pause Flux: kubectl -n %s patch %s %s --type merge -p '%s' (or flux suspend %s %s -n %s)`, namespace, resource, name, patch, short, name, namespace))
	remove := []string{fmt.Sprintf("Remove it while it is suspended, which leaves its objects alone: remove its file from Git, then kubectl -n %s delete %s %s", namespace, resource, name)}
	if short == "helmrelease" {
		remove = append(remove, fmt.Sprintf("Remove the records of Helm, which has no part in the application any more: kubectl -n %s delete secret -l owner=helm,name=%s", u.storage(), u.releaseName()))
	}
	return u.steps(pause, remove...)
}
