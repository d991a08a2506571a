package importer

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// argoSources adds an application for each source that has content.
func (u *unit) argoSources(s field) {
	if h := s.get("sourceHydrator"); h.exists() {
		h.block("manifests are not hydrated: import an Application whose source is the branch and the path that they are written to")
		return
	}
	sources := s.get("sources").items()
	single := s.get("source")
	switch {
	case len(sources) == 0 && single.exists():
		sources = []field{single}
	case len(sources) > 0:
		single.none() // as by Argo CD
	default:
		single.missing("there is no source")
	}
	refs := map[string]field{}
	var contents []field
	for _, source := range sources {
		if ref := source.get("ref").text(); ref != "" {
			refs["$"+ref] = source
		}
		source.get("name").none()
		if source.get("ref").text() == "" || source.get("path").exists() || source.get("chart").exists() {
			contents = append(contents, source)
		} else {
			u.revision(source)
		}
	}
	if len(contents) == 0 && len(sources) > 0 {
		s.get("sources").block("no source has a path or a chart")
	}
	named := map[string]bool{}
	for i, source := range contents {
		name := u.spec.Name
		if len(contents) > 1 {
			name += "-" + cmp.Or(source.get("name").text(), source.get("chart").text(), path.Base(source.get("path").text()))
			for n := i + 1; named[name]; n++ {
				name = fmt.Sprintf("%s-%d", u.spec.Name, n)
			}
			named[name] = true
		}
		a := application{spec: u.spec.copy(), fills: true}
		a.spec.Name = name
		if u.argoSource(source, refs, &a) {
			u.add(a)
		}
	}
}

// revision reports the repository and the revision of a source in Git, and blocks one that is
// not in the checkout.
func (u *unit) revision(source field) bool {
	repo, revision := source.get("repoURL"), source.get("targetRevision")
	return u.inCheckout(repo, revision, revision.text())
}

var (
	commitHash = regexp.MustCompile(`^[0-9a-f]{7,64}$`)
	tagLike    = regexp.MustCompile(`^(v?\d+\.\d+|[~^<>=*])`)
)

// inCheckout reports whether a repository is that of the checkout, and what the agent needs to
// read it.
func (u *unit) inCheckout(repo, at field, revision string) bool {
	address := repo.text()
	if !u.Checkout.holds(address) {
		repo.block("the checkout is one of %s: import it into a checkout of this repository, or name its address with --repo", u.Checkout.shown())
		return false
	}
	branch := revision
	switch {
	case branch == "" || branch == "HEAD":
		branch = "the default branch"
	case commitHash.MatchString(branch) || tagLike.MatchString(branch):
		at.lost("a tag or a commit: the agent deploys the head of a branch, where changes are released by commits")
		branch = "a branch"
	default:
		branch = "branch " + branch
	}
	repo.agent("spec.repositories needs %s of this repository", strings.TrimPrefix(branch, "the "))
	return true
}

// argoSource converts one source, and reports whether it can be written.
func (u *unit) argoSource(source field, refs map[string]field, a *application) bool {
	if p := source.get("plugin"); p.exists() {
		p.block("plugins are not run: commit what the plugin writes, or use a chart or a kustomization")
		return false
	}
	helm := source.get("helm")
	if source.get("chart").exists() {
		return u.argoChart(source, refs, a)
	}
	p := source.get("path")
	if !u.revision(source) {
		return false
	}
	dir, ok := inside(cmp.Or(p.text(), "."))
	if !ok || !u.Checkout.isDir(dir) {
		p.missing("the checkout has no such directory")
		return false
	}
	switch {
	case source.get("directory").exists(): // whatever else the directory has
		return u.argoDirectory(source.get("directory"), p, dir, a)
	case helm.exists() || u.Checkout.isFile(path.Join(dir, "Chart.yaml")):
		return u.argoHelm(source, refs, a, chart{dir: dir})
	case source.get("kustomize").exists() || u.Checkout.kustomization(dir) != "":
		return u.argoKustomize(source.get("kustomize"), dir, a)
	}
	return u.argoDirectory(source.get("directory"), p, dir, a)
}

// argoChart converts a chart of a chart repository or a registry.
func (u *unit) argoChart(source field, refs map[string]field, a *application) bool {
	repo, name, version := source.get("repoURL"), source.get("chart").text(), source.get("targetRevision").text()
	address := repo.text()
	if !strings.Contains(address, "://") {
		address = "oci://" + address // as Argo CD writes registries
	}
	if version == "" {
		source.get("targetRevision").missing("the chart needs a version")
		return false
	}
	repo.agent("spec.chartRepositories or spec.chartRegistries need it if it asks for credentials")
	source.get("path").none()
	return u.argoHelm(source, refs, a, chart{remote: &helmChart{Repository: address, Name: name, Version: version}})
}

// argoHelm converts a source that is a chart.
func (u *unit) argoHelm(source field, refs map[string]field, a *application, c chart) bool {
	h := source.get("helm")
	c.release = cmp.Or(h.get("releaseName").text(), u.spec.Name)
	c.skipMissing = h.get("ignoreMissingValueFiles").flag()
	for _, f := range h.get("valueFiles").items() {
		u.valueFile(f, refs, &c)
	}
	u.inlineValues(h, &c)
	u.parameters(h.get("parameters"), &c)
	for _, p := range h.get("fileParameters").items() {
		name := p.get("name").text()
		if !u.noBuildVariable(p.get("path")) {
			continue
		}
		file, ok := inside(path.Join(c.dir, p.get("path").text()))
		if !ok || c.dir == "" {
			p.get("path").block("expected a file of the repository")
			continue
		}
		c.setFile(name, file)
	}
	if ns := h.get("namespace"); ns.text() != "" && ns.text() != u.spec.Input.Namespace {
		ns.block("the chart has one namespace, input.namespace: that of the destination is another")
	}
	c.kubeVersion, c.apiVersions = h.get("kubeVersion").text(), h.get("apiVersions").texts()
	if skip := h.get("skipCrds"); skip.flag() {
		skip.lost("the CRDs of the chart are applied, too")
	}
	if skip := h.get("skipSchemaValidation"); skip.flag() {
		skip.lost("values are validated by the schema of the chart")
	}
	h.get("skipTests").none() // test hooks never run
	h.get("version").none()   // there is one version of Helm
	if pass := h.get("passCredentials"); pass.flag() {
		pass.lost("credentials are sent only to the host of the chart repository")
	}
	return u.place(c, a)
}

// buildVariable is a variable of Argo CD's build environment.
var buildVariable = regexp.MustCompile(`\$\{?(ARGOCD_APP_[A-Z0-9_]+|KUBE_VERSION|KUBE_API_VERSIONS)`)

// noBuildVariable blocks a text that Argo CD fills variables into.
func (u *unit) noBuildVariable(f field) bool {
	m := buildVariable.FindStringSubmatch(f.text())
	if m != nil {
		f.block("variables such as %s are not filled in: write the value, and import again", m[1])
	}
	return m == nil
}

// valueFile adds a values file of a source. It begins with $ref for a file of another source.
func (u *unit) valueFile(f field, refs map[string]field, c *chart) {
	name := f.text()
	if !u.noBuildVariable(f) {
		return
	}
	switch first, rest, _ := strings.Cut(name, "/"); {
	case isURL(name):
		c.values = append(c.values, name)
		return
	case strings.HasPrefix(name, "$"):
		ref, known := refs[first]
		if !known {
			f.block("there is no source with ref: %s", strings.TrimPrefix(first, "$"))
			return
		}
		name = rest
		if p := ref.get("path"); p.exists() {
			p.none() // paths of a reference begin at the root of its repository
		}
	case c.dir == "":
		if name != "values.yaml" {
			f.block("the file is inside of the chart: copy its values into values, and import again")
		}
		return // the chart's own defaults
	case !strings.HasPrefix(name, "/"):
		name = path.Join(c.dir, name)
	}
	file, ok := inside(name)
	switch {
	case !ok:
		f.block("the file is outside of the repository")
	case u.Checkout.isFile(file):
		c.values = append(c.values, file)
	case c.skipMissing:
		f.lost("the file does not exist: add it to input.helmOptions.valueFiles once it does")
	default:
		f.block("the checkout has no file %s", file)
	}
}

// argoDirectory converts a directory of plain manifests.
func (u *unit) argoDirectory(d, at field, dir string, a *application) bool {
	if j := d.get("jsonnet"); len(j.keys()) > 0 {
		j.block("Jsonnet is not evaluated: commit what it writes")
		return false
	}
	recurse := d.get("recurse").flag()
	include, exclude := d.get("include"), d.get("exclude")
	in, err := globs(include.text())
	if err != nil {
		include.block("%v", err)
		return false
	}
	out, err := globs(exclude.text())
	if err != nil {
		exclude.block("%v", err)
		return false
	}
	names, err := u.Checkout.manifests(dir, func(name string) bool {
		return (recurse || !strings.Contains(name, "/")) && !isKustomization(path.Base(name)) && (in == nil || in.MatchString(name)) && (out == nil || !out.MatchString(name))
	})
	if err != nil || len(names) == 0 {
		at.missing("the checkout has no manifests in this directory")
		return false
	}
	a.dir = dir
	if recurse || in != nil || out != nil || u.Checkout.kustomization(dir) != "" {
		a.spec.Input.Manifests = names
		d.lost("the files that match now are listed in input.manifests: name new ones there")
	}
	return true
}

// globs returns the expression for a pattern of Argo CD, in which * also stands for slashes; nil
// for "".
func globs(pattern string) (*regexp.Regexp, error) {
	if pattern == "" {
		return nil, nil
	}
	var out strings.Builder
	depth := 0
	for _, r := range pattern {
		switch {
		case r == '*':
			out.WriteString(".*")
		case r == '?':
			out.WriteString(".")
		case r == '{':
			depth++
			out.WriteString("(?:")
		case r == '}' && depth > 0:
			depth--
			out.WriteString(")")
		case r == ',' && depth > 0:
			out.WriteString("|")
		default:
			out.WriteString(regexp.QuoteMeta(string(r)))
		}
	}
	return regexp.Compile("^" + out.String() + "$")
}
