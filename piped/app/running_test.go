package app

import (
	"io/fs"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	sourcekube "github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
)

// TestNothingRunsOfWhatCannotBeLoaded: an error in a commit, even a panic, is left to the
// following deployment. Whether foreign objects exist in its place is then unknown.
func TestNothingRunsOfWhatCannotBeLoaded(t *testing.T) {
	t.Parallel()
	for name, tree := range map[string]source.Tree{
		"the commit is gone": func(string, string) (fs.FS, error) { return nil, deploy.Errorf(deploy.NotFound, "no such commit") },
		"it panics":          func(string, string) (fs.FS, error) { panic("nil map") },
	} {
		t.Run(name, func(t *testing.T) {
			r := running{sources: &source.Loader{Kinds: Kinds(), Renderers: map[string]render.Renderer{deploy.KindKubernetes: sourcekube.New(sourcekube.Config{})}, Tree: tree}}
			git := deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml"}
			commits, err := r.RunningCommits(t.Context(), "local", git, "beef")
			if len(commits) > 0 || err != nil {
				t.Errorf("%v, %v; want nothing", commits, err)
			}
			if _, err := r.Foreign(t.Context(), "local", deploy.Application{Git: git}, "beef"); !deploy.IsKind(err, deploy.Invalid) && !deploy.IsKind(err, deploy.NotFound) {
				t.Errorf("what is foreign: %v, want an error", err)
			}
		})
	}
}
