package app

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	sourcekube "github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/trigger"
)

// TestRenderingErrorsAreNotTheClusters: an unreachable source of an application must not
// be reported as an unreachable cluster.
func TestRenderingErrorsAreNotTheClusters(t *testing.T) {
	away := deploy.Errorf(deploy.Unavailable, "repository repo cannot be reached")
	r := running{sources: &source.Loader{Kinds: Kinds(), Renderers: map[string]render.Renderer{deploy.KindKubernetes: sourcekube.New(sourcekube.Config{})}, Tree: func(string, string) (fs.FS, error) { return nil, away }}}
	at := deploy.GitPath{RepoID: "repo", Dir: "web", ConfigFile: "app.pipecd.yaml"}

	_, running := r.RunningCommits(t.Context(), "local", at, "c1")
	_, foreign := r.Foreign(t.Context(), "local", deploy.Application{Git: at}, "c1")
	for what, err := range map[string]error{"RunningCommits": running, "Foreign": foreign} {
		var unreadable *trigger.SourceError
		if !errors.As(err, &unreadable) || !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("%s: got %v (%T), want a *trigger.SourceError that is unavailable", what, err, err)
		}
	}
}
