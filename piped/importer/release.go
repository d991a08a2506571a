package importer

import (
	"cmp"
	"path"
	"regexp"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// release converts a HelmRelease of Flux.
func (u *unit) release() {
	s := u.root.get("spec")
	u.spec.Name = u.document.name()
	u.fluxCommon(s)
	u.spec.QuickSync = &quickSync{true} // an upgrade removes what the chart has no more
	u.spec.Input.Namespace = cmp.Or(s.get("targetNamespace").text(), u.document.namespace())
	s.get("storageNamespace").none() // see the plan
	s.get("persistentClient").none()
	s.get("waitStrategy").none()
	s.get("maxHistory").lost("there are no releases in the cluster: deployments are kept by spec.retention of the agent")
	u.drift(s.get("driftDetection"))
	u.actions(s)
	if p := s.get("postRenderers"); len(p.items()) > 0 {
		p.block("charts are not rendered a second time: write a kustomization with helmCharts and these patches (input.kustomizeOptions: {enable-helm: \"true\"})")
	}
	s.get("commonMetadata").lost("charts are not changed after they are rendered: set labels and annotations in the values")
	c := chart{release: u.releaseName()}
	s.get("releaseName").none()
	a := application{spec: u.spec.copy()}
	if !u.fluxChart(s, &c) {
		return
	}
	u.fluxValues(s, &c)
	if !u.root.track.blocked() && u.place(c, &a) {
		u.add(a)
	}
}

// releaseName returns the name of the Helm release.
func (u *unit) releaseName() string {
	s := u.root.get("spec")
	if name := s.get("releaseName").text(); name != "" {
		return name
	}
	if namespace := s.get("targetNamespace").text(); namespace != "" {
		return namespace + "-" + u.document.name()
	}
	return u.document.name()
}

// storage returns the namespace with the records of Helm.
func (u *unit) storage() string {
	return cmp.Or(u.root.get("spec", "storageNamespace").text(), u.document.namespace(), "default")
}

// drift converts the detection of drift, which only repairs it if it is enabled.
func (u *unit) drift(d field) {
	if d.get("mode").text() == "enabled" {
		u.spec.heal()
	}
	for _, r := range d.get("ignore").items() {
		u.fluxIgnore(r, "")
	}
}

// actions reports what installs and upgrades do otherwise.
func (u *unit) actions(s field) {
	for _, action := range []field{s.get("install"), s.get("upgrade")} {
		action.get("timeout").lost("an application has one timeout")
		for _, key := range []string{"disableWait", "disableWaitForJobs"} {
			if f := action.get(key); f.flag() {
				f.lost("a stage waits until the objects are healthy")
			}
		}
		if f := action.get("disableHooks"); f.flag() {
			f.lost("hooks of the chart are run, but not when objects are taken over")
		}
		for _, key := range []string{"disableOpenAPIValidation", "disableSchemaValidation"} {
			if f := action.get(key); f.flag() {
				f.lost("objects and values are validated")
			}
		}
		if f := action.get("crds"); f.text() == "Skip" {
			f.lost("the CRDs of the chart are applied, too")
		}
		r := action.get("remediation")
		if retries := r.get("retries"); retries.number(0) != 0 {
			retries.lost("a failed deployment is rolled back and not repeated: the next commit or pipectl application sync deploys again")
		}
		if strategy := r.get("strategy"); strategy.text() == "uninstall" {
			strategy.lost("a failed deployment is rolled back")
		}
		r.get("remediateLastFailure").none() // a failed deployment is always rolled back
		r.get("ignoreTestFailures").none()
		for _, key := range []string{"replace", "disableTakeOwnership", "cleanupOnFail", "createNamespace", "serverSideApply"} {
			action.get(key).none()
		}
	}
	install, upgrade := s.get("install"), s.get("upgrade")
	u.spec.Input.AutoCreateNamespace = install.get("createNamespace").flag()
	if skip := install.get("skipCRDs"); skip.flag() {
		skip.lost("the CRDs of the chart are applied, too")
	}
	if force := upgrade.get("force"); force.flag() {
		force.lost("write the annotation pipecd.dev/force-sync-by-replace: enabled on the objects that need it")
	}
	if keep := upgrade.get("preserveValues"); keep.flag() {
		keep.block("values of earlier releases are not known to Git: write all of them into values, and import again")
	}
	if test := s.get("test"); test.get("enable").flag() {
		test.get("enable").lost("tests of charts are not run: use an ANALYSIS or SCRIPT_RUN stage")
	}
	for _, key := range []string{"test", "rollback", "uninstall"} {
		s.get(key).none()
	}
}

// fluxChart reads which chart a HelmRelease installs.
func (u *unit) fluxChart(s field, c *chart) bool {
	t := s.get("chart")
	t.get("metadata").none()
	if ref := s.get("chartRef"); ref.exists() {
		spec, kind, found := u.referred(ref)
		switch {
		case kind == "OCIRepository" && found:
			return u.ociChart(spec, c)
		case kind == "HelmChart" && found:
			return u.chartOf(spec, c)
		case found || kind != "OCIRepository" && kind != "HelmChart":
			ref.block("charts are read from Git, chart repositories and registries, not from a %s", kind)
		default:
			ref.missing("add the file of this %s to the import", kind)
		}
		return false
	}
	return u.chartOf(t.get("spec"), c)
}

// ociChart reads a chart in a registry.
func (u *unit) ociChart(spec field, c *chart) bool {
	address := spec.get("url").text()
	base, name := path.Split(strings.TrimPrefix(address, "oci://"))
	r := spec.get("ref")
	version := cmp.Or(r.get("digest").text(), r.get("semver").text(), r.get("tag").text())
	if version == "" || version == "latest" {
		spec.get("ref").missing("the chart needs a version (spec.ref.tag or .semver)")
		return false
	}
	c.remote = &helmChart{Repository: "oci://" + strings.TrimSuffix(base, "/"), Name: name, Version: version}
	spec.get("secretRef").agent("credentials for registries are spec.chartRegistries of the agent")
	spec.get("verify").lost("signatures of charts are not verified: name the chart by its digest")
	return true
}

// chartOf reads a chart of a source.
func (u *unit) chartOf(t field, c *chart) bool {
	name, version := t.get("chart"), cmp.Or(t.get("version").text(), "*")
	t.get("interval").none()
	t.get("reconcileStrategy").none() // the agent follows the commits of Git and the versions of charts
	t.get("verify").lost("signatures of charts are not verified: name the chart of a registry by its digest")
	c.skipMissing = t.get("ignoreMissingValuesFiles").flag()
	files := t.get("valuesFiles").items()
	if f := t.get("valuesFile"); f.text() != "" {
		files = append([]field{f}, files...)
	}
	ref := t.get("sourceRef")
	spec, kind, found := u.referred(ref)
	switch {
	case kind == "Bucket":
		ref.missing("charts are read from Git, chart repositories and registries, not from a Bucket")
		return false
	case !found:
		ref.missing("add the file of this %s to the import", kind)
		return false
	case kind == "GitRepository":
		return u.gitChart(spec, name, files, c)
	}
	address := spec.get("url").text()
	if spec.get("type").text() == "oci" && !strings.HasPrefix(address, "oci://") {
		address = "oci://" + address
	}
	c.remote = &helmChart{Repository: strings.TrimSuffix(address, "/"), Name: name.text(), Version: version}
	spec.get("secretRef").agent("credentials for chart repositories are spec.chartRepositories and spec.chartRegistries of the agent")
	for _, f := range files {
		if f.text() != "values.yaml" {
			f.block("the file is inside of the chart: copy its values into values, and import again")
		}
	}
	return true
}

// gitChart reads a chart in Git.
func (u *unit) gitChart(spec, name field, files []field, c *chart) bool {
	u.gitSettings(spec)
	dir, ok := inside(strings.TrimPrefix(name.text(), "./"))
	if !u.Checkout.holds(spec.get("url").text()) {
		c.remote = &helmChart{GitRemote: spec.get("url").text(), Ref: strings.TrimPrefix(cmp.Or(gitRevision(spec), "HEAD"), "="), Path: dir}
		for _, f := range files {
			f.block("the file is in another repository: copy its values into values, and import again")
		}
		return true
	}
	if !u.inCheckout(spec.get("url"), spec.get("ref"), gitRevision(spec)) {
		return false
	}
	if c.dir = dir; !ok || !u.Checkout.isFile(path.Join(dir, "Chart.yaml")) {
		name.missing("the checkout has no chart in this directory")
		return false
	}
	own := len(files) == 0 || !u.Checkout.isFile(path.Join(dir, "values.yaml"))
	for _, f := range files {
		file, ok := inside(f.text())
		own = own || file == path.Join(dir, "values.yaml")
		switch {
		case ok && u.Checkout.isFile(file):
			c.values = append(c.values, file)
		case c.skipMissing:
			f.lost("the file does not exist: add it to input.helmOptions.valueFiles once it does")
		default:
			f.block("the checkout has no file %s", f.text())
		}
	}
	if !own {
		files[0].block("Flux takes these files in place of the chart's values.yaml, and the agent in addition to it: name values.yaml first, and import again")
	}
	return true
}

// fluxValues reads the values of a HelmRelease: those of ConfigMaps in their order, then its own.
func (u *unit) fluxValues(s field, c *chart) {
	for _, ref := range s.get("valuesFrom").items() {
		u.valuesFrom(ref, c)
	}
	own, _ := s.get("values").raw().(map[string]any)
	if len(own) > 0 {
		c.inline = overlaid(c.inline, own)
	}
}

// valuesFrom adds values of a ConfigMap.
func (u *unit) valuesFrom(ref field, c *chart) {
	kind, name := ref.get("kind").text(), ref.get("name").text()
	key, target := cmp.Or(ref.get("valuesKey").text(), "values.yaml"), ref.get("targetPath").text()
	optional := ref.get("optional").flag()
	if kind != "ConfigMap" {
		ref.block("values of a Secret do not belong into Git as plain text: write them into a file, encrypt it with sops, name it in input.helmOptions.valueFiles, and remove the reference before the import")
		return
	}
	d, found := u.find("", "ConfigMap", u.document.namespace(), name)
	data, _ := d.Object["data"].(map[string]any)
	text, has := data[key].(string)
	switch {
	case !found && !optional:
		ref.block("add the file of this ConfigMap to the import")
		return
	case !has && !optional:
		ref.block("the ConfigMap has no key %s", key)
		return
	case !has:
		ref.lost("the ConfigMap is optional and not among the files of the import: its values are left out")
		return
	}
	ref.lost("the values of the ConfigMap are copied into the values of the application: change them there from now on")
	if target != "" {
		if c.inline == nil {
			c.inline = map[string]any{}
		}
		if !dotted.MatchString(target) || !setValue(c.inline, strings.Split(target, "."), typed(text)) {
			ref.get("targetPath").block("expected keys with dots between them, such as image.tag")
		}
		return
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		ref.block("the values are not valid YAML: %v", err)
		return
	}
	c.inline = overlaid(c.inline, values)
}

var integer = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)

// typed returns the value that helm --set makes of a text.
func typed(text string) any {
	switch {
	case text == "true", text == "false":
		return text == "true"
	case text == "null":
		return nil
	case integer.MatchString(text):
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
	}
	return text
}

// overlaid returns values with those of over, mapping by mapping.
func overlaid(values, over map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range values {
		out[key] = value
	}
	for key, value := range over {
		below, isMap := out[key].(map[string]any)
		more, alsoMap := value.(map[string]any)
		if isMap && alsoMap {
			out[key] = overlaid(below, more)
			continue
		}
		out[key] = value
	}
	return out
}
