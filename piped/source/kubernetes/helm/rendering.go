package helm

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"text/template"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/c785c783/piped/piped/background"
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

// wait lets another chart be rendered while this one waits for what on names, until
// resume is called.
func (r *rendering) wait(ctx context.Context, on string) (resume func()) {
	done := background.Wait(ctx, on)
	<-r.slots
	return func() {
		done()
		r.slots <- struct{}{} // what is rendered with the others ends in bounded time
	}
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
	values, err := r.allValues(ctx, c)
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
	return objects(c, files, r.limits.Output, r.Template)
}

// allValues returns the values that the request has for a chart.
func (r *rendering) allValues(ctx context.Context, c *chart.Chart) (map[string]any, error) {
	if r.Request.Values == nil {
		return r.values(ctx)
	}
	var own []byte
	for _, f := range c.Raw {
		if f.Name == chartutil.ValuesfileName {
			own = f.Data
		}
	}
	files, err := r.Request.Values(own)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, data := range files {
		more, err := loader.LoadValues(bytes.NewReader(data))
		if err != nil {
			return nil, deploy.Errorf(deploy.Invalid, "the values are not valid YAML: %w", err)
		}
		out = loader.MergeMaps(out, more)
	}
	return out, nil
}

// releaseName returns what the release is called.
func (r *rendering) releaseName(ctx context.Context) (string, error) {
	name := cmp.Or(r.Options.ReleaseName, r.ReleaseName)
	if r.Template != nil && r.Template.Name != "" {
		g := newGuard(ctx, maxName)
		t, err := g.parse(g.functions(template.New("nameTemplate")), r.Template.Name)
		if err != nil {
			return "", deploy.Errorf(deploy.Invalid, "%s", strings.TrimPrefix(err.Error(), "template: "))
		}
		if name, err = g.execute(t, "nameTemplate", nil); err != nil {
			return "", templateError(ctx, "nameTemplate", err)
		}
	}
	if err := chartutil.ValidateReleaseName(name); err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%q cannot be the name of a release: %w; set %s", name, err, r.option("releaseName"))
	}
	return name, nil
}

// maxName bounds what a template of a name writes, in bytes.
const maxName = 4 << 10

// option returns the name of a setting as the author of the request knows it.
func (r *rendering) option(name string) string {
	if r.Template != nil {
		return name
	}
	return "input.helmOptions." + name
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
			"the chart wants Kubernetes %s, which %s is not; %s names the version to render for", want, caps.KubeVersion.Version, r.option("kubeVersion"))
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the values and dependencies do not fit: %w", err)
	}
	// What a chart renders to must not depend on what runs: each rendering is as
	// for a first installation, as with helm template.
	name, err := r.releaseName(ctx)
	if err != nil {
		return nil, err
	}
	release := common.ReleaseOptions{Name: name, Namespace: cmp.Or(r.Namespace, "default"), Revision: 1, IsInstall: true}
	scope, err := commonutil.ToRenderValuesWithSchemaValidation(c, values, release, caps, true)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "the values do not fit the chart: %w", err)
	}
	merged, _ := scope["Values"].(common.Values)
	return scope, r.checkSchemas(ctx, c, merged)
}
