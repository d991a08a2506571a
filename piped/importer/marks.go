package importer

import (
	"errors"
	"slices"
	"strings"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/manifest"
)

// ErrUnknown is the error of Request.Render for objects that cannot be known without a server.
var ErrUnknown = errors.New("the objects are not known without the network")

func isUnknown(err error) bool { return errors.Is(err, ErrUnknown) }

// isConfiguration reports whether a file is no manifest, by its name.
func isConfiguration(name string) bool {
	return config.IsApplicationConfig(name) || name == ".sops.yaml"
}

// mark is an annotation of another tool on an object.
type mark struct {
	key    string
	values []string // of which it has a meaning; none: all
	needs  string   // an annotation of ours that takes its place; the finding is gone when it exists
	reason string
	blocks bool
}

// marks are the annotations of both tools, without those that need nothing.
var marks = []mark{
	{key: "argocd.argoproj.io/sync-wave", needs: manifest.AnnotationOrder, reason: "waves are another annotation: write " + manifest.AnnotationOrder + " with the same number"},
	{key: "argocd.argoproj.io/hook", values: []string{"PreSync"}, needs: "helm.sh/hook", blocks: true, reason: "the agent would apply it like any object: write helm.sh/hook: pre-install,pre-upgrade, and import again"},
	{key: "argocd.argoproj.io/hook", values: []string{"PostSync"}, needs: "helm.sh/hook", blocks: true, reason: "the agent would apply it like any object: write helm.sh/hook: post-install,post-upgrade, and import again"},
	{key: "argocd.argoproj.io/hook", values: []string{"Sync"}, needs: "helm.sh/hook", blocks: true, reason: "the agent has no hooks among the objects: remove the annotation, or write helm.sh/hook: pre-install,pre-upgrade, and import again"},
	{key: "argocd.argoproj.io/hook", values: []string{"SyncFail", "PostDelete", "PreDelete"}, needs: "helm.sh/hook", blocks: true, reason: "the agent has no such hook and would apply it like any object: a SCRIPT_RUN stage with onRollback takes its place; remove the object, and import again"},
	{key: "argocd.argoproj.io/hook", values: []string{"Skip"}, blocks: true, reason: "the agent would apply it: remove the object from the source, and import again"},
	{key: "argocd.argoproj.io/sync-options", values: []string{"Prune=false", "Delete=false", "Prune=confirm", "Delete=confirm"}, needs: manifest.AnnotationResourcePolicy, reason: "write " + manifest.AnnotationResourcePolicy + ": keep"},
	{key: "argocd.argoproj.io/sync-options", values: []string{"Replace=true"}, needs: manifest.AnnotationSyncByReplace, reason: "write " + manifest.AnnotationSyncByReplace + ": enabled"},
	{key: "argocd.argoproj.io/sync-options", values: []string{"Force=true", "Force=true,Replace=true", "Replace=true,Force=true"}, needs: manifest.AnnotationForceSyncByReplace, reason: "write " + manifest.AnnotationForceSyncByReplace + ": enabled"},
	{key: "kustomize.toolkit.fluxcd.io/prune", values: []string{"disabled", "Disabled"}, needs: manifest.AnnotationResourcePolicy, reason: "write " + manifest.AnnotationResourcePolicy + ": keep"},
	{key: "kustomize.toolkit.fluxcd.io/reconcile", values: []string{"disabled", "Disabled"}, blocks: true, reason: "the agent would apply it: remove the object from the source, and import again"},
	{key: "kustomize.toolkit.fluxcd.io/ssa", values: []string{"IfNotPresent", "Ignore", "Merge"}, reason: "the agent owns every field that Git has: leave fields to others with driftDetection.ignoreRules and mode: yield"},
	{key: "kustomize.toolkit.fluxcd.io/force", values: []string{"enabled", "Enabled"}, needs: manifest.AnnotationForceSyncByReplace, reason: "write " + manifest.AnnotationForceSyncByReplace + ": enabled"},
	{key: "helm.toolkit.fluxcd.io/driftDetection", values: []string{"disabled"}, needs: manifest.AnnotationIgnoreDrift, reason: "write " + manifest.AnnotationIgnoreDrift + `: "true"`},
}

// holds reports whether a value of the annotation, a list with commas, has a meaning.
func (m mark) holds(value string) bool {
	return len(m.values) == 0 || slices.Contains(m.values, value) ||
		slices.ContainsFunc(strings.Split(value, ","), func(part string) bool { return slices.Contains(m.values, strings.TrimSpace(part)) })
}

// marks reports what annotations of rendered objects ask the other tool for, and objects that
// declare applications themselves.
func (u *unit) marks(objects []manifest.Object) {
	for _, o := range objects {
		annotations := o.GetAnnotations()
		for _, m := range marks {
			value, has := annotations[m.key]
			if !has || !m.holds(value) || m.needs != "" && annotations[m.needs] != "" {
				continue
			}
			u.found(o, `metadata.annotations["`+m.key+`"]`, m.blocks, o.GetKind()+" "+o.GetName()+": "+value+": "+m.reason)
		}
		switch o.GroupVersionKind().Group {
		case groupArgo, groupKustomize, groupHelm:
			if k := o.GetKind(); k == "Application" || k == "ApplicationSet" || k == "Kustomization" || k == "HelmRelease" {
				u.found(o, "kind", true, o.GetKind()+" "+o.GetName()+": the source declares what another tool deploys: import these files instead; then nothing is left to import of this one")
			}
		}
	}
}

// found adds a finding about an object in the source.
func (u *unit) found(o manifest.Object, path string, blocks bool, reason string) {
	f := Finding{File: o.Origin.String(), Path: path, Reason: reason, Blocks: blocks}
	if !slices.Contains(u.root.track.findings, f) {
		u.root.track.findings = append(u.root.track.findings, f)
	}
}
