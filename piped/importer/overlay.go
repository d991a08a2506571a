package importer

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// overlay is a kustomization that changes what a directory declares.
type overlay struct {
	APIVersion        string            `yaml:"apiVersion"`
	Kind              string            `yaml:"kind"`
	Namespace         string            `yaml:"namespace,omitempty"`
	NamePrefix        string            `yaml:"namePrefix,omitempty"`
	NameSuffix        string            `yaml:"nameSuffix,omitempty"`
	Resources         []string          `yaml:"resources"`
	Components        []string          `yaml:"components,omitempty"`
	Labels            []labels          `yaml:"labels,omitempty"`
	CommonAnnotations map[string]string `yaml:"commonAnnotations,omitempty"`
	Images            []map[string]any  `yaml:"images,omitempty"`
	Replicas          []map[string]any  `yaml:"replicas,omitempty"`
	Patches           []map[string]any  `yaml:"patches,omitempty"`
}

type labels struct {
	Pairs            map[string]string `yaml:"pairs"`
	IncludeSelectors bool              `yaml:"includeSelectors,omitempty"`
}

// changes reports whether the overlay changes anything.
func (o overlay) changes() bool {
	return o.Namespace+o.NamePrefix+o.NameSuffix != "" || len(o.Components)+len(o.Labels)+len(o.CommonAnnotations)+len(o.Images)+len(o.Replicas)+len(o.Patches) > 0
}

// lay writes an overlay on a directory into a directory of its own. Components and paths of
// patches are paths of the checkout. names are manifests of a directory without a kustomization.
func (u *unit) lay(o overlay, at field, dir string, names []string, a *application) bool {
	base := u.base(dir)
	for key, sets := range map[string]bool{"namePrefix": o.NamePrefix != "", "nameSuffix": o.NameSuffix != ""} {
		if sets && base[key] != nil {
			at.block("the kustomization sets %s itself, and the other tool replaces it: remove it there, and import again", key)
			return false
		}
	}
	for _, image := range o.Images {
		if renames(base, image["name"]) {
			at.block("the kustomization renames the image %v itself, and the other tool replaces that: change it there, and import again", image["name"])
			return false
		}
	}
	a.dir = u.ownDir(a.spec.Name)
	if within(a.dir, dir) {
		at.block("an overlay cannot lie below what it changes: choose another directory with --apps-dir, outside of %s", dir)
		return false
	}
	o.APIVersion, o.Kind = "kustomize.config.k8s.io/v1beta1", "Kustomization"
	if names == nil {
		o.Resources = []string{relative(a.dir, dir)}
	}
	for _, name := range names {
		o.Resources = append(o.Resources, relative(a.dir, path.Join(dir, name)))
	}
	for i, c := range o.Components {
		o.Components[i] = relative(a.dir, c)
		a.spec.watch(c)
	}
	outside := names != nil
	for _, p := range o.Patches {
		if file, ok := p["path"].(string); ok {
			p["path"], outside = relative(a.dir, file), true
		}
	}
	if outside {
		a.option("load-restrictor", "LoadRestrictionsNone")
	}
	text, err := marshal(o)
	if err != nil {
		at.block("write the kustomization: %v", err)
		return false
	}
	a.files = append(a.files, File{path.Join(a.dir, "kustomization.yaml"), text})
	a.spec.watch(dir)
	return true
}

// option sets a flag of kustomize build.
func (a *application) option(name, value string) {
	a.spec.Input.KustomizeOptions = merged(a.spec.Input.KustomizeOptions, map[string]string{name: value})
}

// base returns the fields of the kustomization of a directory, none without one.
func (u *unit) base(dir string) (fields map[string]any) {
	if name := u.Checkout.kustomization(dir); name != "" {
		if data, err := fs.ReadFile(u.Checkout.Files, name); err == nil {
			_ = yaml.Unmarshal(data, &fields) // what is not YAML does not render either
		}
	}
	return fields
}

// renames reports whether a kustomization gives an image a new name.
func renames(base map[string]any, name any) bool {
	images, _ := base["images"].([]any)
	return slices.ContainsFunc(images, func(i any) bool {
		image, _ := i.(map[string]any)
		return image["name"] == name && image["newName"] != nil
	})
}

// charts lets the kustomization of a directory use charts, if it names any.
func (u *unit) charts(dir string, a *application) {
	if base := u.base(dir); base["helmCharts"] != nil || base["helmChartInflationGenerator"] != nil {
		a.option("enable-helm", "true")
	}
}

// patches reads a list of patches, whose paths are relative to a directory.
func (u *unit) patches(list field, dir string) (out []map[string]any) {
	for _, p := range list.items() {
		patch, ok := p.raw().(map[string]any)
		if !ok {
			p.block("expected a patch")
			continue
		}
		patch = maps.Clone(patch)
		if file, ok := patch["path"].(string); ok {
			name, local := inside(path.Join(dir, file))
			if !local || !u.Checkout.isFile(name) {
				p.get("path").block("the checkout has no such file")
			}
			patch["path"] = name
		}
		out = append(out, patch)
	}
	return out
}

// components reads the paths of components, relative to a directory.
func (u *unit) components(k field, dir string) (out []string) {
	skip := k.get("ignoreMissingComponents").flag()
	for _, f := range k.get("components").items() {
		name, ok := inside(path.Join(dir, f.text()))
		switch {
		case ok && u.Checkout.isDir(name):
			out = append(out, name)
		case skip:
			f.lost("the directory does not exist: add it to components of the kustomization once it does")
		default:
			f.block("the checkout has no such directory")
		}
	}
	return out
}

// argoKustomize converts a source that is a kustomization.
func (u *unit) argoKustomize(k field, dir string, a *application) bool {
	if u.Checkout.kustomization(dir) == "" {
		k.block("the directory has no kustomization")
		return false
	}
	o := overlay{Namespace: k.get("namespace").text(), NamePrefix: k.get("namePrefix").text(), NameSuffix: k.get("nameSuffix").text(), CommonAnnotations: k.get("commonAnnotations").pairs()}
	for _, i := range k.get("images").items() {
		o.Images = append(o.Images, image(i.text()))
	}
	if pairs := k.get("commonLabels").pairs(); pairs != nil {
		o.Labels = []labels{{pairs, !k.get("labelWithoutSelector").flag()}}
	}
	k.get("labelWithoutSelector").none()
	k.get("forceCommonLabels").none() // an overlay replaces labels and annotations
	k.get("forceCommonAnnotations").none()
	if subst := k.get("commonAnnotationsEnvsubst"); subst.flag() {
		for key, value := range o.CommonAnnotations {
			if strings.Contains(value, "$") {
				k.get("commonAnnotations", key).block("variables of Argo CD are not known here")
			}
		}
	}
	for _, r := range k.get("replicas").items() {
		o.Replicas = append(o.Replicas, map[string]any{"name": r.get("name").text(), "count": r.get("count").number(1)})
	}
	o.Patches, o.Components = u.patches(k.get("patches"), dir), u.components(k, dir)
	if v := k.get("kubeVersion").text(); v != "" {
		a.option("helm-kube-version", v)
	}
	if v := k.get("apiVersions").texts(); len(v) > 0 {
		a.option("helm-api-versions", strings.Join(v, ","))
	}
	k.get("version").lost("the agent has one version of Kustomize built in")
	u.charts(dir, a)
	if !o.changes() {
		a.dir = dir
		return true
	}
	return u.lay(o, k, dir, nil, a)
}

// image converts an image of kustomize edit: [name=]newName[:tag][@digest].
func image(text string) map[string]any {
	name, target, renamed := strings.Cut(text, "=")
	if !renamed {
		target = text
	}
	target, digest, _ := strings.Cut(target, "@")
	tag := ""
	if i := strings.LastIndex(target, ":"); i > strings.LastIndex(target, "/") {
		target, tag = target[:i], target[i+1:]
	}
	if !renamed {
		name = target
	}
	out := map[string]any{"name": name}
	if target != name {
		out["newName"] = target
	}
	if tag != "" {
		out["newTag"] = tag
	}
	if digest != "" {
		out["digest"] = digest
	}
	return out
}
