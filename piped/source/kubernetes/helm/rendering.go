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

	remotes *remotes          // at the begin of the rendering
	left    budget            // remaining files and bytes of charts
	indexes map[string][]byte // of chart repositories, by address
	remote  bool              // sets Result.Remote
}

// online records that the result depends on what is fetched. It returns an error if that is not allowed.
func (r *rendering) online(what string) error {
	if r.Offline {
		return deploy.Errorf(deploy.Invalid, "%s: nothing is fetched for the pull request of a fork; commit it to the repository", withoutSecrets(what))
	}
	r.remote = true
	return nil
}

// wait releases the rendering's slot while it waits for on, such as a download. resume acquires
// a slot again.
func (r *rendering) wait(ctx context.Context, on string) (resume func()) {
	done := background.Wait(ctx, on)
	<-r.slots
	return func() {
		done()
		r.slots <- struct{}{} // the renderings that hold slots end in bounded time
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

// allValues returns the merged values of the request for a chart: those of Request.Values, or
// of the options if it is nil.
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

// releaseName returns the validated name of the release.
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

// maxName is the byte limit for executing a template of a release name.
const maxName = 4 << 10

// option returns the name of a Helm option in the user's configuration, for messages.
func (r *rendering) option(name string) string {
	if r.Template != nil {
		return name
	}
	return "input.helmOptions." + name
}

// scope returns the top-level data of templates (.Values, .Release and others). It enables and
// disables the dependencies of c, merges the values of all charts, and validates them.
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
	// The result must not depend on the state of the cluster, so each rendering is a first
	// installation, as with helm template.
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
