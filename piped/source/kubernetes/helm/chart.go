package helm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/c785c783/piped/piped/deploy"
)

// place is the directory of a chart in a tree, which file:// dependencies are relative to. A
// chart that was downloaded or packed has only a depth.
type place struct {
	tree  fs.FS
	dir   string
	above []string // the directories of the charts that depend on this one
	depth int      // the number of charts above this one in the chain of dependencies
}

// maxDependencies is the maximum length of a chain of chart dependencies.
const maxDependencies = 16

// chart returns the chart of the request with all its dependencies.
func (r *rendering) chart(ctx context.Context) (*chart.Chart, error) {
	want := r.Request.Chart
	switch {
	case want.GitRemote != "":
		return r.gitChart(ctx, want.GitRemote, want.Ref, want.Path)
	case want.Repository != "":
		data, label, err := r.fetch(ctx, want.Repository, want.Name, want.Version)
		if err != nil {
			return nil, fmt.Errorf("get Helm chart %s %s: %w", want.Name, want.Version, err)
		}
		return r.archive(ctx, label, data, place{})
	}
	dir := path.Join(r.Dir, want.Path)
	if !fs.ValidPath(dir) {
		return nil, deploy.Errorf(deploy.Invalid, "input.helmChart.path: %q leads out of the repository", want.Path)
	}
	label := "input.helmChart.path: " + dir
	if r.Template != nil {
		label = dir
	}
	return r.treeChart(ctx, place{tree: r.Tree, dir: dir}, label)
}

func (r *rendering) gitChart(ctx context.Context, remote, ref, name string) (*chart.Chart, error) {
	if r.git == nil {
		return nil, deploy.Errorf(deploy.Invalid, "input.helmChart.gitRemote: this agent reads no charts of other Git repositories")
	}
	dir := path.Clean(name)
	if !fs.ValidPath(dir) {
		return nil, deploy.Errorf(deploy.Invalid, "input.helmChart.path: %q leads out of the repository", name)
	}
	if err := r.online(remote); err != nil {
		return nil, err
	}
	resume := r.wait(ctx, "Git repository "+withoutSecrets(remote))
	tree, commit, err := r.git.At(ctx, remote, ref)
	resume()
	if err != nil {
		return nil, fmt.Errorf("get Helm chart %s at %s: %w", name, ref, err)
	}
	return r.treeChart(ctx, place{tree: tree, dir: dir}, fmt.Sprintf("input.helmChart: %s at %s (commit %s)", dir, ref, deploy.ShortHash(commit)))
}

// treeChart reads a chart from a directory or an archive in the tree.
func (r *rendering) treeChart(ctx context.Context, at place, label string) (*chart.Chart, error) {
	info, err := fs.Stat(at.tree, at.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, deploy.Errorf(deploy.Invalid, "%s: there is no such directory", label)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	if !info.IsDir() {
		return r.packed(ctx, at, label, info.Size())
	}
	files, err := readTree(ctx, at.tree, at.dir, &r.left)
	if err != nil {
		return nil, fmt.Errorf("read the Helm chart: %w", err)
	}
	return r.load(ctx, label, files, at)
}

func (r *rendering) packed(ctx context.Context, at place, label string, size int64) (*chart.Chart, error) {
	if size > r.limits.Archive {
		return nil, deploy.Errorf(deploy.Invalid, "%s: the archive has %d bytes; expected at most %d", label, size, r.limits.Archive)
	}
	data, err := fs.ReadFile(at.tree, at.dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	return r.archive(ctx, label, data, place{depth: at.depth})
}

// archive reads a packed chart.
func (r *rendering) archive(ctx context.Context, label string, data []byte, at place) (*chart.Chart, error) {
	files, err := unpack(data, &r.left)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	return r.load(ctx, label, files, at)
}

// load creates a chart from its files and loads the dependencies that charts/ lacks.
func (r *rendering) load(ctx context.Context, label string, files []*file, at place) (*chart.Chart, error) {
	files, err := r.unfold(files, maxDirectories)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	if !slices.ContainsFunc(files, func(f *file) bool { return f.Name == "Chart.yaml" }) {
		return nil, deploy.Errorf(deploy.Invalid, "%s: there is no Chart.yaml, so it is no Helm chart", label)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s: %w", label, err)
	}
	if err := r.complete(ctx, c, at); err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	sortDependencies(c)
	return c, nil
}

// unfold replaces packed charts in charts/ by their files, recursively up to depth levels. Its
// limits thus apply to the unpacked files.
func (r *rendering) unfold(files []*file, depth int) ([]*file, error) {
	var out []*file
	for _, f := range files {
		dir, base := path.Split(f.Name)
		if path.Ext(base) != ".tgz" || path.Base(dir) != "charts" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") {
			out = append(out, f)
			continue
		}
		if depth == 0 {
			return nil, deploy.Errorf(deploy.Invalid, "%s: charts are packed into charts more than %d deep", f.Name, maxDirectories)
		}
		inner, err := unpack(f.Data, &r.left)
		if err == nil {
			inner, err = r.unfold(inner, depth-1)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		for _, in := range inner {
			out = append(out, &file{Name: path.Join(dir, base+".unpacked", in.Name), Data: in.Data})
		}
	}
	return out, nil
}

// sortDependencies sorts the dependencies of c recursively, because the SDK loads them in
// random order.
func sortDependencies(c *chart.Chart) {
	below := slices.Clone(c.Dependencies())
	slices.SortStableFunc(below, func(a, b *chart.Chart) int {
		return strings.Compare(a.Name()+" "+a.Metadata.Version, b.Name()+" "+b.Metadata.Version)
	})
	c.SetDependencies(below...)
	for _, d := range below {
		sortDependencies(d)
	}
}
