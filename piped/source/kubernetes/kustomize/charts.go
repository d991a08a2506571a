package kustomize

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/api/types"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/kustomize/kyaml/yaml/merge2"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// Kustomize renders charts by running helm. The plan renders them with the agent's renderer
// instead, and adds the objects as a resource file to the kustomization.

const (
	helmGenerator  = "HelmChartInflationGenerator"
	defaultRelease = "release-name" // as in helm template
	maxValues      = 4 << 20        // bytes of a values file
)

// charts replaces the charts in the field helmCharts of a kustomization by resources.
func (r *rewriter) charts(k *kustomization) {
	globals := types.HelmGlobals{}
	if k.HelmGlobals != nil {
		globals = *k.HelmGlobals
	}
	for i, chart := range k.HelmCharts {
		if chart.Namespace == "" {
			chart.Namespace = r.namespace
			if at := r.plan.known[r.mount.path(r.dir)]; !r.own {
				at.inherited = true
			}
		}
		r.chart(k, fmt.Sprintf("helmCharts[%d]", i), globals, chart)
	}
	k.HelmCharts, k.HelmGlobals = nil, nil
}

// chart renders a chart and adds its objects to the resources of a kustomization.
func (r *rewriter) chart(k *kustomization, field string, globals types.HelmGlobals, chart types.HelmChart) {
	if r.err != nil {
		return
	}
	req, err := r.chartRequest(globals, chart)
	var data []byte
	if err == nil {
		data, err = r.plan.render(req)
	}
	if err != nil {
		r.fail(field, err)
		return
	}
	if len(data) == 0 {
		return
	}
	k.Resources = append(k.Resources, r.make(data, resource.Origin{
		Repo: r.mount.from.remote, Ref: r.mount.from.ref, ConfiguredIn: path.Base(r.file),
		ConfiguredBy: kyaml.ResourceIdentifier{TypeMeta: kyaml.TypeMeta{APIVersion: konfig.BuiltinPluginApiVersion, Kind: helmGenerator}},
	}))
}

// chartRequest returns the request for rendering a chart of the kustomization.
func (r *rewriter) chartRequest(globals types.HelmGlobals, chart types.HelmChart) (helm.Request, error) {
	options := r.plan.request.Options
	switch {
	case !options.Helm:
		return helm.Request{}, deploy.Errorf(deploy.Invalid, "charts are rendered only with input.kustomizeOptions {enable-helm: \"true\"} of the application")
	case chart.Name == "":
		return helm.Request{}, deploy.Errorf(deploy.Invalid, "name is required")
	case chart.ReleaseName != "" && chart.NameTemplate != "":
		return helm.Request{}, deploy.Errorf(deploy.Invalid, "expected one of releaseName and nameTemplate")
	case !slices.Contains([]string{"", "merge", "override", "replace"}, chart.ValuesMerge):
		return helm.Request{}, deploy.Errorf(deploy.Invalid, "valuesMerge: expected merge, override or replace, found %q", chart.ValuesMerge)
	}
	req := helm.Request{
		ReleaseName: cmp.Or(chart.ReleaseName, defaultRelease), Namespace: chart.Namespace, Capabilities: r.plan.request.Capabilities,
		Options:  kubernetes.HelmOptions{KubeVersion: cmp.Or(options.KubeVersion, chart.KubeVersion), APIVersions: chart.ApiVersions},
		Values:   func(own []byte) ([][]byte, error) { return r.chartValues(chart, own) },
		Template: &helm.Template{CRDs: chart.IncludeCRDs, NoHooks: chart.SkipHooks, NoTests: chart.SkipTests, Name: chart.NameTemplate},
	}
	if len(options.APIVersions) > 0 {
		req.Options.APIVersions = options.APIVersions
	}
	home := cmp.Or(globals.ChartHome, types.HelmDefaultHome)
	if chart.Version != "" && chart.Repo != "" {
		home = path.Join(home, chart.Name+"-"+chart.Version)
	}
	local, err := r.inside(path.Join(home, chart.Name))
	if err == nil && isDir(r.mount, local) {
		req.Tree, req.Dir, req.Chart.Path = r.mount.tree, ".", local
		return req, nil
	}
	if chart.Repo == "" {
		if err == nil {
			err = deploy.Errorf(deploy.Invalid, "chart %s: there is no directory %s, and repo names no repository of charts", chart.Name, r.mount.named(local))
		}
		return helm.Request{}, err
	}
	if chart.Version == "" && chart.Devel {
		chart.Version = ">0.0.0-0"
	}
	req.Chart = kubernetes.HelmChart{Repository: chart.Repo, Name: chart.Name, Version: chart.Version}
	r.plan.remote = true
	return req, nil
}

// inside returns the path in the tree of a file that the kustomization refers to. Unless the
// options allow any file, the file must be below the kustomization's directory.
func (r *rewriter) inside(name string) (string, error) {
	at := path.Join(r.dir, name)
	switch {
	case path.IsAbs(name), at == "..", strings.HasPrefix(at, "../"):
		return "", deploy.Errorf(deploy.Invalid, "%q leads out of the repository", name)
	case !r.plan.request.Options.AnyFile && r.dir != "." && !strings.HasPrefix(at, r.dir+"/"):
		return "", deploy.Errorf(deploy.Invalid, "%q is not below the kustomization's directory; allow it by input.kustomizeOptions {load-restrictor: LoadRestrictionsNone}", name)
	}
	return at, nil
}

// chartValues returns the contents of a chart's values files in the order in which Kustomize
// passes them to helm: valuesFile, or the chart's own if it is not set, merged with
// valuesInline, then additionalValuesFiles.
func (r *rewriter) chartValues(chart types.HelmChart, own []byte) ([][]byte, error) {
	var err error
	if chart.ValuesFile != "" {
		if own, err = r.valuesFile("valuesFile", chart.ValuesFile); err != nil {
			return nil, err
		}
	}
	first, err := mergeValues(own, chart)
	if err != nil {
		return nil, err
	}
	files := [][]byte{first}
	for i, name := range chart.AdditionalValuesFiles {
		data, err := r.valuesFile(fmt.Sprintf("additionalValuesFiles[%d]", i), name)
		if err != nil {
			return nil, err
		}
		files = append(files, data)
	}
	return files, nil
}

// valuesFile reads a values file from the tree or from an http(s) address.
func (r *rewriter) valuesFile(field, name string) (data []byte, err error) {
	if strings.HasPrefix(name, "https://") || strings.HasPrefix(name, "http://") {
		data, err = r.plan.fetchFile(name, maxValues)
		name = withoutQuery(name)
	} else {
		var at string
		if at, err = r.inside(name); err == nil {
			data, err = readFile(r.mount, at, min(maxValues, r.plan.left.Bytes))
			name = r.mount.named(at)
		}
		r.plan.left.Bytes -= int64(len(data))
	}
	if err == nil {
		err = checkAliases(data)
	}
	if err != nil {
		return nil, deploy.Errorf(kindOr(err, deploy.Invalid), "%s: %s: %w", field, name, err)
	}
	return data, nil
}

// kindOr returns the kind of an error, or the default or if the error has none.
func kindOr(err error, or deploy.Kind) deploy.Kind {
	if kind := deploy.KindOf(err); kind != deploy.Internal {
		return kind
	}
	return or
}

// mergeValues merges a values file with valuesInline of the kustomization according to
// valuesMerge.
func mergeValues(file []byte, chart types.HelmChart) ([]byte, error) {
	if len(chart.ValuesInline) == 0 {
		return file, nil
	}
	text, err := yaml.Marshal(chart.ValuesInline)
	if err != nil || chart.ValuesMerge == "replace" {
		return text, err
	}
	if err := checkAliases(file); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the values of the chart: %w", err)
	}
	if isBlank(file) {
		return text, nil
	}
	inline, err := kyaml.Parse(string(text))
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "valuesInline: not valid YAML (what is there is not shown)")
	}
	from, err := kyaml.Parse(string(file))
	if err != nil || from.YNode().Kind != kyaml.MappingNode {
		return nil, deploy.Errorf(deploy.Invalid, "the values that valuesInline is merged with are no YAML mapping (what is there is not shown)")
	}
	// The first overrides the second.
	first, second := inline, from
	if chart.ValuesMerge == "merge" {
		first, second = from, inline
	}
	out, err := merge2.Merge(first, second, kyaml.MergeOptions{})
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "valuesInline cannot be merged with the values of the chart (what is there is not shown)")
	}
	if out == nil {
		return nil, nil
	}
	merged, err := out.String()
	return []byte(merged), err
}

// isBlank reports whether YAML has no content except comments and document separators.
func isBlank(data []byte) bool {
	for line := range bytes.Lines(data) {
		text := bytes.TrimSpace(line)
		if len(text) > 0 && text[0] != '#' && !bytes.Equal(text, []byte("---")) {
			return false
		}
	}
	return true
}

// render renders a chart to YAML. The objects have Kustomize's annotation for charts, so that
// its namespace transformer skips them.
func (p *plan) render(req helm.Request) ([]byte, error) {
	if p.request.Charts == nil {
		return nil, deploy.Errorf(deploy.Invalid, "charts are not rendered here")
	}
	if p.left.Charts--; p.left.Charts < 0 {
		return nil, deploy.Errorf(deploy.Invalid, "the build has more than %d charts; split the application", p.limits.Charts)
	}
	req.Offline = p.request.Offline
	result, err := p.request.Charts.Render(p.ctx, req)
	p.remote = p.remote || result.Remote
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, o := range result.Objects {
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[konfig.HelmGeneratedAnnotation] = "true"
		o.SetAnnotations(annotations)
		data, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, err
		}
		out.WriteString("---\n")
		out.Write(data)
	}
	if p.left.Bytes -= int64(out.Len()); p.left.Bytes < 0 {
		return nil, deploy.Errorf(deploy.Invalid, "its objects and the files of the build have more than %d bytes; split the application", p.limits.Bytes)
	}
	return out.Bytes(), nil
}
