package helm

import (
	"cmp"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/c785c783/piped/piped/deploy"
)

// Capabilities describe the cluster for templates, as .Capabilities. The zero value stands
// for Helm's defaults: the Kubernetes version and the group versions of its client library.
type Capabilities struct {
	// KubeVersion is the version of Kubernetes, such as v1.36.3.
	KubeVersion string
	// APIVersions are the served group versions and kinds, such as v1, apps/v1 and
	// apps/v1/Deployment.
	APIVersions []string
}

// capabilities returns the capabilities of the request, or Helm's defaults. The options'
// kubeVersion takes precedence, and the options' API versions are added, as helm template
// does it.
func (r *rendering) capabilities() (*common.Capabilities, error) {
	caps := common.DefaultCapabilities.Copy()
	if known := r.Capabilities.APIVersions; len(known) > 0 {
		caps.APIVersions = slices.Clone(known)
	}
	caps.APIVersions = append(slices.Clone(caps.APIVersions), r.Options.APIVersions...)
	version := cmp.Or(r.Options.KubeVersion, r.Capabilities.KubeVersion)
	if version == "" {
		return caps, nil
	}
	parsed, err := common.ParseKubeVersion(version)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: %q is not a version of Kubernetes, such as v1.36.0: %w", r.option("kubeVersion"), version, err)
	}
	caps.KubeVersion = *parsed
	return caps, nil
}
