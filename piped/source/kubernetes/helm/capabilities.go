package helm

import (
	"cmp"
	"slices"

	"helm.sh/helm/v4/pkg/chart/common"

	"github.com/c785c783/piped/piped/deploy"
)

// Capabilities are what templates see of the cluster as .Capabilities. The zero
// value stands for Helm's own: the Kubernetes version that the agent was built
// with and every group version that is built into it.
type Capabilities struct {
	// KubeVersion is the version of Kubernetes, such as v1.36.3.
	KubeVersion string
	// APIVersions are the group versions and kinds that are served: v1, apps/v1,
	// apps/v1/Deployment.
	APIVersions []string
}

// capabilities are those of the options, else the request's, else Helm's. The
// options' API versions come on top, as helm template does it.
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
