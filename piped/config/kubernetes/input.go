package kubernetes

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/strict"
)

// Input says where the objects come from.
type Input struct {
	// Manifests are files, relative to the application's directory and inside
	// it; empty means every manifest directly in the directory.
	Manifests []string `yaml:"manifests"`
	// Namespace is the namespace of every namespaced object; "" leaves theirs.
	Namespace           string `yaml:"namespace"`
	AutoCreateNamespace bool   `yaml:"autoCreateNamespace"`
	// AutoRollback is nil when not written; see config.Application.AutoRollback.
	AutoRollback *bool `yaml:"autoRollback"`

	// HelmChart is the chart to render; nil when not written.
	HelmChart   *HelmChart   `yaml:"helmChart"`
	HelmOptions *HelmOptions `yaml:"helmOptions"` // nil when not written
	// KustomizeOptions are flags of kustomize build without their dashes; see
	// KustomizeBuild for those that are honoured.
	KustomizeOptions map[string]string `yaml:"kustomizeOptions"`
}

// HelmChart names a chart in one of three ways: in Git by GitRemote, Ref and
// Path, in a configured chart repository or registry by Repository, Name and
// Version, or in the application's own repository by Path.
type HelmChart struct {
	GitRemote  string `yaml:"gitRemote"`
	Ref        string `yaml:"ref"`
	Path       string `yaml:"path"` // of a chart in the own repository: from the application's directory
	Repository string `yaml:"repository"`
	Name       string `yaml:"name"`
	Version    string `yaml:"version"`
}

// HelmOptions say how a chart is rendered.
type HelmOptions struct {
	ReleaseName string            `yaml:"releaseName"` // "" is the application's name
	SetValues   map[string]string `yaml:"setValues"`
	ValueFiles  []string          `yaml:"valueFiles"` // files of the application, or http(s) URLs
	SetFiles    map[string]string `yaml:"setFiles"`   // values that are the text of files
	APIVersions []string          `yaml:"apiVersions"`
	KubeVersion string            `yaml:"kubeVersion"`
}

func (in *Input) complete(d *strict.Document) {
	for i, name := range in.Manifests {
		if checkFile(d, fmt.Sprintf("input.manifests[%d]", i), name) {
			in.Manifests[i] = path.Clean(name)
		}
	}
	if in.Namespace != "" {
		for _, why := range validation.IsDNS1123Label(in.Namespace) {
			d.Problemf("input.namespace", "%q is not the name of a namespace: %s", in.Namespace, why)
		}
	}
	if in.AutoCreateNamespace && in.Namespace == "" {
		d.Problemf("input.autoCreateNamespace", "needs input.namespace, the namespace to create")
	}
	if in.HelmChart != nil {
		in.HelmChart.complete(d)
	}
	if in.HelmOptions != nil {
		in.HelmOptions.complete(d)
		if in.HelmChart == nil {
			d.Warnf("input.helmOptions", "has no effect without input.helmChart")
		}
	}
	in.completeKustomize(d)
	if in.HelmChart != nil && len(in.KustomizeOptions) > 0 {
		d.Warnf("input.kustomizeOptions", "has no effect with input.helmChart")
	}
}

func (c *HelmChart) complete(d *strict.Document) {
	const at = "input.helmChart"
	need := func(way string, values map[string]string) {
		for field, value := range values {
			if value == "" {
				d.Problemf(at+"."+field, "required for a chart %s", way)
			}
		}
	}
	refuse := func(way string, values map[string]string) {
		for field, value := range values {
			if value != "" {
				d.Problemf(at+"."+field, "has no meaning for a chart %s", way)
			}
		}
	}
	switch {
	case c.GitRemote != "":
		const way = "in Git, which gitRemote names"
		need(way, map[string]string{"ref": c.Ref, "path": c.Path})
		refuse(way, map[string]string{"repository": c.Repository, "name": c.Name, "version": c.Version})
	case c.Repository != "":
		const way = "of the repository that repository names"
		need(way, map[string]string{"name": c.Name, "version": c.Version})
		refuse(way, map[string]string{"ref": c.Ref, "path": c.Path})
	case c.Path != "":
		const way = "of this repository, which path alone names"
		refuse(way, map[string]string{"ref": c.Ref, "name": c.Name, "version": c.Version})
		if path.IsAbs(c.Path) {
			d.Problemf(at+".path", "expected a path from the application's directory, found %q", c.Path)
		}
	default:
		d.Problemf(at, "expected gitRemote, ref and path, or repository, name and version, or path")
	}
}

func (o *HelmOptions) complete(d *strict.Document) {
	const at = "input.helmOptions"
	for i, file := range o.ValueFiles {
		if !strings.HasPrefix(file, "http://") && !strings.HasPrefix(file, "https://") {
			checkFile(d, fmt.Sprintf("%s.valueFiles[%d]", at, i), file)
		}
	}
	for name, file := range o.SetFiles {
		checkFile(d, at+".setFiles."+name, file)
	}
	checkTexts(d, at+".apiVersions", o.APIVersions)
}

// checkFile reports a file that is not inside the application's directory, and
// whether it is.
func checkFile(d *strict.Document, at, file string) bool {
	inside := filepath.IsLocal(file) && path.Clean(file) != "."
	if !inside {
		d.Problemf(at, "expected the name of a file inside the application's directory, found %q", file)
	}
	return inside
}
