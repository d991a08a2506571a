package helm

import (
	"cmp"
	"context"
	"fmt"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/c785c783/piped/piped/deploy"
)

// rendering is one call of Render.
type rendering struct {
	*Renderer
	Request

	remotes *remotes          // as they were when it began
	left    budget            // for the files of charts
	indexes map[string][]byte // of chart repositories, by address
	remote  bool              // something was fetched
}

func (r *rendering) run(ctx context.Context) (Result, error) {
	c, err := r.chart(ctx)
	if err != nil {
		return Result{Remote: r.remote}, err
	}
	version := c.Metadata.Version
	result, err := r.render(ctx, c)
	result.Version, result.Remote = version, r.remote
	if err != nil {
		err = fmt.Errorf("render Helm chart %s %s: %w", c.Name(), version, err)
	}
	return result, err
}

func (r *rendering) render(ctx context.Context, c *chart.Chart) (Result, error) {
	if c.Metadata.Type == "library" {
		return Result{}, deploy.Errorf(deploy.Invalid, "it is a library chart, which declares nothing itself; name a chart that depends on it")
	}
	values, err := r.values(ctx)
	if err != nil {
		return Result{}, err
	}
	scope, err := r.scope(ctx, c, values)
	if err != nil {
		return Result{}, err
	}
	files, err := execute(ctx, c, scope, r.limits)
	if err != nil {
		return Result{}, err
	}
	return objects(c, files, r.limits.Output)
}

// scope returns what templates see, after the dependencies were switched on and
// off and the values of all charts were merged and checked.
func (r *rendering) scope(ctx context.Context, c *chart.Chart, values map[string]any) (common.Values, error) {
	caps, err := r.capabilities()
	if err != nil {
		return nil, err
	}
	if want := c.Metadata.KubeVersion; want != "" && !chartutil.IsCompatibleRange(want, caps.KubeVersion.String()) {
		return nil, deploy.Errorf(deploy.Invalid,
			"the chart wants Kubernetes %s, which %s is not; input.helmOptions.kubeVersion names the version to render for", want, caps.KubeVersion.Version)
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the values and dependencies do not fit: %w", err)
	}
	// What a chart renders to must not depend on what runs: each rendering is as
	// for a first installation, as with helm template.
	release := common.ReleaseOptions{
		Name: cmp.Or(r.Options.ReleaseName, r.ReleaseName), Namespace: cmp.Or(r.Namespace, "default"), Revision: 1, IsInstall: true,
	}
	if err := chartutil.ValidateReleaseName(release.Name); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%q cannot be the name of a release: %w; set input.helmOptions.releaseName", release.Name, err)
	}
	scope, err := commonutil.ToRenderValuesWithSchemaValidation(c, values, release, caps, true)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the values do not fit the chart: %w", err)
	}
	merged, _ := scope["Values"].(common.Values)
	return scope, r.checkSchemas(ctx, c, merged)
}
