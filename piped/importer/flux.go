package importer

import (
	"cmp"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/manifest"
)

// kustomization converts a Kustomization of Flux.
func (u *unit) kustomization() {
	s := u.root.get("spec")
	u.spec.Name = u.document.name()
	u.fluxCommon(s)
	u.spec.heal() // Flux repairs drift at each interval
	if s.get("prune").flag() {
		u.spec.QuickSync = &quickSync{true}
	}
	s.get("deletionPolicy").none() // what is done when the Kustomization is deleted; see the plan
	s.get("wait").none()           // a stage waits for all objects
	s.get("healthChecks").none()
	if force := s.get("force"); force.flag() {
		force.lost("write the annotation pipecd.dev/force-sync-by-replace: enabled on the objects that need it")
	}
	if d := s.get("decryption"); d.exists() {
		d.agent("the keys for SOPS are spec.sops of the agent")
	}
	for _, r := range s.get("driftIgnoreRules").items() {
		u.fluxIgnore(r, "yield")
	}
	p := s.get("path")
	dir, ok := inside(cmp.Or(strings.TrimPrefix(p.text(), "./"), "."))
	if !u.gitSource(s.get("sourceRef")) {
		return
	}
	if !ok || !u.Checkout.isDir(dir) {
		p.missing("the checkout has no such directory")
		return
	}
	a := application{spec: u.spec.copy()}
	if u.fluxContent(s, dir, &a) {
		u.add(a)
	}
	u.substitution(s.get("postBuild"))
}

// fluxCommon converts what a Kustomization and a HelmRelease have in common.
func (u *unit) fluxCommon(s field) {
	own := func(key string) bool {
		prefix, _, _ := strings.Cut(key, "/")
		return strings.HasSuffix(prefix, "toolkit.fluxcd.io") || prefix == "kubectl.kubernetes.io"
	}
	labels, annotations := u.root.get("metadata", "labels"), u.root.get("metadata", "annotations")
	for _, key := range labels.keys() {
		if value := labels.get(key).text(); !own(key) {
			u.spec.Labels = merged(u.spec.Labels, map[string]string{key: value})
		}
	}
	for _, key := range annotations.keys() {
		if f := annotations.get(key); own(key) {
			f.none()
		} else {
			f.lost("applications have no annotations; labels select them")
		}
	}
	s.get("interval").none() // changes are noticed by syncInterval and webhooks of the agent, drift at once
	s.get("retryInterval").none()
	u.spec.Timeout = s.get("timeout").text()
	if suspend := s.get("suspend"); suspend.flag() {
		u.spec.commit().Disabled = true
		suspend.lost("commits are not deployed (trigger.onCommit.disabled), but syncs by hand are: pipectl application disable stops both")
	}
	for _, d := range s.get("dependsOn").items() {
		d.lost("applications do not wait for one another: objects of one application have an order (annotation pipecd.dev/order), and postSync.chain of an application deploys others after it")
	}
	s.get("healthCheckExprs").lost("expressions are not evaluated: name the conditions in healthChecks")
	s.get("serviceAccountName").agent("an application acts as a service account by spec.tenancy[].serviceAccount of the agent")
	if k := s.get("kubeConfig"); k.exists() {
		name := k.get("secretRef", "name")
		if name.text() == "" {
			name = k.get("configMapRef", "name")
		}
		u.provider(k, name.text(), false)
		k.none()
	}
}

// fluxIgnore converts a rule about fields that may differ.
func (u *unit) fluxIgnore(r field, mode string) {
	t := r.get("target")
	rule := ignoreRule{Mode: mode}
	for key, to := range map[string]*string{"kind": &rule.Kind, "name": &rule.Name} {
		if *to = t.get(key).text(); regexp.QuoteMeta(*to) != *to && strings.ContainsAny(*to, `*+?()|[]\^$`) {
			r.lost("the %s is an expression: write a rule for each", key)
			return
		}
	}
	t.get("group").none()
	t.get("version").none()
	for _, key := range []string{"namespace", "labelSelector", "annotationSelector"} {
		if f := t.get(key); f.text() != "" {
			f.lost("a rule selects by kind and name: it holds for all objects with them")
		}
	}
	for _, p := range r.get("paths").items() {
		u.pointer(&rule, p)
	}
	if len(rule.Paths) > 0 {
		u.spec.ignore(rule)
	}
}

// find returns the document that a reference names.
func (c *converter) find(group, kind, namespace, name string) (Document, bool) {
	i := slices.IndexFunc(c.Documents, func(d Document) bool {
		return d.group() == group && d.kind() == kind && d.name() == name && (d.namespace() == namespace || d.namespace() == "")
	})
	if i < 0 {
		return Document{}, false
	}
	return c.Documents[i], true
}

// referred returns the spec of the source that a reference names.
func (u *unit) referred(ref field) (spec field, kind string, found bool) {
	kind = ref.get("kind").text()
	name, namespace := ref.get("name").text(), cmp.Or(ref.get("namespace").text(), u.document.namespace())
	ref.get("apiVersion").none()
	d, found := u.find(groupSource, kind, namespace, name)
	if !found {
		return field{}, kind, false
	}
	spec = field{d.String() + " spec", d.Object["spec"], u.root.track}
	for _, key := range []string{"interval", "timeout", "suspend", "url", "type", "provider", "gitImplementation", "sparseCheckout"} {
		spec.get(key).none()
	}
	u.sources = append(u.sources, spec)
	return spec, kind, true
}

// gitSource reads a GitRepository, and reports whether it is the checkout.
func (u *unit) gitSource(ref field) bool {
	spec, kind, found := u.referred(ref)
	switch {
	case kind != "GitRepository":
		ref.get("kind").missing("the agent reads manifests from Git: push what is in the %s to a repository", kind)
		return false
	case !found:
		ref.lost("the file of this GitRepository is not among those of the import: its repository is taken for the checkout's")
		return true
	}
	u.gitSettings(spec)
	return u.inCheckout(spec.get("url"), spec.get("ref"), gitRevision(spec))
}

// gitRevision returns the branch of a GitRepository, or its tag or commit.
func gitRevision(spec field) string {
	r := spec.get("ref")
	name := strings.TrimPrefix(r.get("name").text(), "refs/heads/")
	if tag, isTag := strings.CutPrefix(name, "refs/tags/"); isTag {
		name = "=" + tag
	}
	tag := r.get("tag").text()
	if tag != "" {
		tag = "=" + tag
	}
	semver := r.get("semver").text()
	if semver != "" {
		semver = "=" + semver
	}
	return cmp.Or(r.get("commit").text(), name, semver, tag, r.get("branch").text())
}

// gitSettings reports what of a GitRepository belongs into the agent's configuration.
func (u *unit) gitSettings(spec field) {
	spec.get("secretRef").agent("credentials for Git are spec.git of the agent")
	spec.get("verify").agent("signatures of commits are verified by spec.tenancy of the agent")
	spec.get("ignore").lost("files are left out by trigger.onCommit.ignores and input.manifests")
	if include := spec.get("include"); include.exists() {
		include.block("repositories are not merged: use remote bases of a kustomization")
	}
	if sub := spec.get("recurseSubmodules"); sub.flag() {
		sub.lost("submodules are not read")
	}
}

// fluxContent converts the content of a directory and what a Kustomization changes of it.
func (u *unit) fluxContent(s field, dir string, a *application) bool {
	o := overlay{NamePrefix: s.get("namePrefix").text(), NameSuffix: s.get("nameSuffix").text()}
	o.Patches, o.Components = u.patches(s.get("patches"), dir), u.components(s, dir)
	for _, i := range s.get("images").items() {
		image := map[string]any{}
		for _, key := range i.keys() {
			image[key] = i.get(key).text()
		}
		o.Images = append(o.Images, image)
	}
	common := s.get("commonMetadata")
	if pairs := common.get("labels").pairs(); pairs != nil {
		o.Labels = []labels{{Pairs: pairs}}
	}
	if pairs := common.get("annotations").pairs(); pairs != nil {
		o.Patches = append(o.Patches, annotate(pairs))
	}
	namespace := s.get("targetNamespace").text()
	names, err := u.fluxResources(dir)
	if err != nil || names != nil && len(names) == 0 {
		s.get("path").missing("the checkout has no manifests in this directory")
		return false
	}
	u.charts(dir, a)
	if o.changes() || namespace != "" && !u.movable(dir, names) || slices.ContainsFunc(names, u.isDirIn(dir)) {
		o.Namespace = namespace
		return u.lay(o, s, dir, names, a)
	}
	a.dir, a.spec.Input.Namespace = dir, namespace
	if slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "/") }) {
		a.spec.Input.Manifests = names
		s.get("path").lost("the directory has no kustomization, and Flux applies every manifest below it: those that exist are listed in input.manifests; name new ones there")
	}
	return true
}

func (u *unit) isDirIn(dir string) func(string) bool {
	return func(name string) bool { return u.Checkout.isDir(path.Join(dir, name)) }
}

// annotate returns a patch that annotates every object, and not its pods.
func annotate(pairs map[string]string) map[string]any {
	text, _ := marshal(map[string]any{"apiVersion": "v1", "kind": "any", "metadata": map[string]any{"name": "any", "annotations": pairs}}) // texts are always YAML
	return map[string]any{"patch": string(text), "target": map[string]any{"kind": ".*"}}
}

// fluxResources returns what Flux reads of a directory without a kustomization: every manifest
// below it, and the directories below it that have a kustomization. It is nil with one.
func (u *unit) fluxResources(dir string) (names []string, err error) {
	if u.Checkout.kustomization(dir) != "" {
		return nil, nil
	}
	bases := []string{}
	files, err := u.Checkout.manifests(dir, func(name string) bool {
		for at := path.Dir(name); at != "."; at = path.Dir(at) {
			if u.Checkout.kustomization(path.Join(dir, at)) == "" {
				continue
			}
			if !slices.Contains(bases, at) {
				bases = append(bases, at)
			}
			return false
		}
		return true
	})
	return append(append([]string{}, files...), bases...), err
}

var refersToNamespaces = regexp.MustCompile(`(?m)^\s*subjects:|WebhookConfiguration|APIService`)

// movable reports whether input.namespace does the same as the namespace of a kustomization: no
// object refers to the namespace of another one.
func (u *unit) movable(dir string, names []string) bool {
	if names == nil {
		all, _ := u.base(dir)["resources"].([]any)
		for _, r := range all {
			name, ok := r.(string)
			if !ok || !u.Checkout.isFile(path.Join(dir, name)) || !fs.ValidPath(name) {
				return false
			}
			names = append(names, name)
		}
	}
	return !slices.ContainsFunc(names, func(name string) bool {
		data, err := fs.ReadFile(u.Checkout.Files, path.Join(dir, name))
		return err != nil || refersToNamespaces.Match(data)
	})
}

// substitution reports variables that Flux fills into manifests.
func (u *unit) substitution(p field) {
	p.none()
	if p.exists() {
		u.substitutes = true
	}
}

// variable is one that Flux replaces; a second dollar sign in front, which escapes it, goes away.
var variable = regexp.MustCompile(`\$\{[^}\n]*\}?`)

// variables blocks a document whose objects have variables for Flux.
func (u *unit) variables(objects []manifest.Object) {
	for _, o := range objects {
		const off = "kustomize.toolkit.fluxcd.io/substitute"
		if o.GetAnnotations()[off] == "disabled" || o.GetLabels()[off] == "disabled" {
			continue
		}
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			continue // it was rendered from YAML
		}
		if m := variable.Find(text); m != nil {
			u.found(o, "spec.postBuild", true, o.GetKind()+" "+o.GetName()+": variables such as "+string(m)+" are not filled in: use replacements of a kustomization, or values of a chart, and import again")
		}
	}
}
