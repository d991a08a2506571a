package helm

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"

	"github.com/c785c783/piped/piped/deploy"
)

// complete loads the dependencies that Chart.yaml lists and charts/ lacks. If there is a
// Chart.lock, it uses the versions in it, as helm dependency build does.
func (r *rendering) complete(ctx context.Context, c *chart.Chart, at place) error {
	for _, d := range c.Metadata.Dependencies {
		if slices.ContainsFunc(c.Dependencies(), func(have *chart.Chart) bool { return satisfies(have, d) }) {
			continue
		}
		if d.Version == "" {
			return deploy.Errorf(deploy.Invalid, "its dependency %s has no version; name one, or a constraint such as ~1.2, in Chart.yaml", d.Name)
		}
		version, err := locked(c, d)
		if err != nil {
			return err
		}
		got, err := r.dependency(ctx, d, version, at)
		if err != nil {
			return fmt.Errorf("get its dependency %s %s: %w", d.Name, version, err)
		}
		if !satisfies(got, d) {
			return deploy.Errorf(deploy.Invalid, "its dependency %s %s is chart %s %s at %s; fix Chart.yaml",
				d.Name, d.Version, got.Name(), got.Metadata.Version, withoutSecrets(d.Repository))
		}
		leaveOutStale(c, d.Name)
		c.AddDependency(got)
	}
	return nil
}

// satisfies reports whether a chart has the name and the version that a dependency requires.
// A dependency without a version accepts all versions.
func satisfies(have *chart.Chart, d *chart.Dependency) bool {
	return have.Name() == d.Name && (d.Version == "" || chartutil.IsCompatibleRange(d.Version, have.Metadata.Version))
}

// leaveOutStale removes the chart's dependencies with the given name whose version Chart.yaml
// does not require, as helm dependency update does.
func leaveOutStale(c *chart.Chart, name string) {
	c.SetDependencies(slices.DeleteFunc(slices.Clone(c.Dependencies()), func(have *chart.Chart) bool {
		wanted := slices.ContainsFunc(c.Metadata.Dependencies, func(d *chart.Dependency) bool { return satisfies(have, d) })
		return have.Name() == name && !wanted
	})...)
}

// locked returns the version of a dependency in Chart.lock, or the one in Chart.yaml if there
// is no Chart.lock. It returns an error if Chart.lock has no matching version.
func locked(c *chart.Chart, d *chart.Dependency) (string, error) {
	if c.Lock == nil {
		return d.Version, nil
	}
	for _, l := range c.Lock.Dependencies {
		if l != nil && l.Name == d.Name && l.Repository == d.Repository && chartutil.IsCompatibleRange(d.Version, l.Version) {
			return l.Version, nil
		}
	}
	return "", deploy.Errorf(deploy.Invalid,
		"the Chart.lock of %s has no version of the dependency %s that fits its Chart.yaml: run helm dependency update and commit the result", c.Name(), d.Name)
}

func (r *rendering) dependency(ctx context.Context, d *chart.Dependency, version string, at place) (*chart.Chart, error) {
	below := place{depth: at.depth + 1}
	if below.depth > maxDependencies {
		return nil, deploy.Errorf(deploy.Invalid, "charts depend on each other more than %d deep", maxDependencies)
	}
	dir, local := strings.CutPrefix(d.Repository, "file://")
	switch {
	case d.Repository == "":
		return nil, deploy.Errorf(deploy.Invalid, "it is not in charts/ in such a version, and Chart.yaml names no repository for it")
	case local:
		below.tree, below.dir = at.tree, path.Join(at.dir, dir)
		if at.tree == nil || path.IsAbs(dir) || !fs.ValidPath(below.dir) {
			return nil, deploy.Errorf(deploy.Invalid, "its repository %s is not inside the chart's repository", d.Repository)
		}
		if below.dir == at.dir || slices.Contains(at.above, below.dir) {
			return nil, deploy.Errorf(deploy.Invalid, "%s depends on itself", below.dir)
		}
		below.above = append(slices.Clone(at.above), at.dir)
		return r.treeChart(ctx, below, below.dir)
	}
	data, label, err := r.fetch(ctx, d.Repository, d.Name, version)
	if err != nil {
		return nil, err
	}
	return r.archive(ctx, label, data, below)
}
