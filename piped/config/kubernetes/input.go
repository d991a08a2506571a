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
	// Manifests are files of the application's directory.
	// Default: all in the directory.
	Manifests []string `yaml:"manifests"`
	// Namespace is the namespace of every namespaced object.
	// Default: those of the objects.
	Namespace string `yaml:"namespace"`
	// AutoCreateNamespace creates `input.namespace`.
	AutoCreateNamespace bool `yaml:"autoCreateNamespace"`
	// AutoRollback is another place for `planner.autoRollback`.
	// Default: `true`.
	//
	// It is nil when not written; see config.Application.AutoRollback.
	AutoRollback *bool `yaml:"autoRollback"`

	// HelmChart is a chart to render: of this repository by `path`, of another repository by
	// `gitRemote`, `ref` and `path`, or of a chart repository or registry by `repository`, `name`
	// and `version`.
	//
	// It is nil when not written.
	HelmChart *HelmChart `yaml:"helmChart"`
	// HelmOptions are how the chart is rendered.
	//
	// It is nil when not written.
	HelmOptions *HelmOptions `yaml:"helmOptions"`
	// KustomizeOptions are flags of `kustomize build` without their dashes: `load-restrictor`
	// (`LoadRestrictionsNone` or `LoadRestrictionsRootOnly`; files outside the repository are
	// never read), `reorder` (`legacy` or `none`), `enable-helm` (`true`, or no value),
	// `helm-kube-version`, and `helm-api-versions` (with commas).
	//
	// See KustomizeBuild.
	KustomizeOptions map[string]string `yaml:"kustomizeOptions"`
}

// HelmChart names a chart in one of three ways: in Git by GitRemote, Ref and
// Path, in a configured chart repository or registry by Repository, Name and
// Version, or in the application's own repository by Path.
type HelmChart struct {
	// GitRemote is the Git repository of the chart.
	GitRemote string `yaml:"gitRemote"`
	// Ref is a branch, tag or commit of `gitRemote`.
	Ref string `yaml:"ref"`
	// Path is the directory of the chart in `gitRemote`. Without `gitRemote` it is a path from the
	// application's directory: `./chart`, `../../charts/web`, or an archive.
	Path string `yaml:"path"`
	// Repository is the configured name or the address of a chart repository, or an address in a
	// registry (`oci://registry/path`).
	Repository string `yaml:"repository"`
	// Name is the name of the chart in `repository`.
	Name string `yaml:"name"`
	// Version is its version, or a constraint such as `~1.2`. Of a registry it may be the digest
	// of the chart (`sha256:...`).
	Version string `yaml:"version"`
}

// HelmOptions say how a chart is rendered.
type HelmOptions struct {
	// ReleaseName is the name of the release.
	// Default: the application's name.
	ReleaseName string `yaml:"releaseName"`
	// SetValues are values as `helm --set` takes them, in the order of the keys.
	SetValues map[string]string `yaml:"setValues"`
	// ValueFiles are files of the application's directory, or `https://` or `http://` addresses.
	// Later ones win.
	ValueFiles []string `yaml:"valueFiles"`
	// SetFiles are values that are the text of files of the application's directory.
	SetFiles map[string]string `yaml:"setFiles"`
	// APIVersions are additional `.Capabilities.APIVersions`.
	APIVersions []string `yaml:"apiVersions"`
	// KubeVersion is the Kubernetes version that templates see.
	// Default: the cluster's.
	KubeVersion string `yaml:"kubeVersion"`
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
