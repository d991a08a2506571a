package app

import (
	"context"
	"path/filepath"

	"github.com/c785c783/piped/piped/cluster/variant"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/observe/capabilities"
	"github.com/c785c783/piped/piped/outbound"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/store"
)

// sourceCacheBytes bounds the cache of loaded sources: the planner and the stages of a
// deployment load the same one.
const sourceCacheBytes = 8 << 20

// concealedCacheBytes bounds the cache of sources that were rendered without secrets, for
// display.
const concealedCacheBytes = 2 << 20

// sources contains what loads applications.
type sources struct {
	setup     setup // of the configuration
	serves    *capabilities.Reader
	loader    *source.Loader
	concealed *source.Loader // with placeholders for secrets
	remotes   *git.Remotes
	charts    *helm.Renderer
}

// openSources opens repositories, remotes and charts, and plans the first setup.
func (a *App) openSources(ctx context.Context, cfg *config.Piped, o Options, st *store.Store) (s sources, err error) {
	live := a.live
	a.parts.onClose("repositories", live.repositories.Close)
	s.remotes, err = git.OpenRemotes(git.RemotesConfig{
		Dir: filepath.Join(cfg.DataDir, "remotes"), Logger: o.Logger.With("component", "git"), Now: o.Now, Metrics: a.metrics.git,
		Public: outbound.NotPrivate, Known: outbound.NotMetadata,
	})
	if err != nil {
		return s, err
	}
	a.parts.onClose("remote repositories", s.remotes.Close)
	s.charts, err = helm.New(helm.Config{Git: s.remotes, Dir: filepath.Join(cfg.DataDir, "charts")})
	if err != nil {
		return s, err
	}
	var problems error
	s.setup, problems, err = live.plan(cfg)
	if err != nil {
		return s, err
	}
	if problems != nil {
		a.log.Error("parts of the configuration cannot be used and are retried; everything else works", "error", problems)
	}
	if s.serves, err = capabilities.New(ctx, st, live.clusters, o.Logger.With("component", "capabilities"), o.Now); err != nil {
		return s, err
	}
	name, kinds := registeredName(st), o.kinds()
	s.loader = &source.Loader{Tree: live.repositories.Tree, Secrets: live.secrets, Kinds: kinds, Name: name, Previews: cfg.Previews, CacheBytes: sourceCacheBytes}
	s.concealed = &source.Loader{Tree: live.repositories.Tree, Secrets: live.concealed, Kinds: kinds, Name: name, Previews: cfg.Previews, CacheBytes: concealedCacheBytes}
	for _, l := range []*source.Loader{s.loader, s.concealed} {
		l.Base, l.RoutePreview, l.Fork = live.repositories.Base, routePreview, isFork(st)
	}
	live.platforms = openPlatforms(platformEnv{app: a, cfg: cfg, options: o, store: st, sources: s, wake: func(id string) { a.drift.Wake(id) }})
	s.loader.Renderers = live.platforms.renderers()
	s.concealed.Renderers = s.loader.Renderers
	return s, nil
}

// routePreview adapts the variants of a cluster to the loader.
func routePreview(p source.RoutePreview, branch, merged []manifest.Object) (source.Routed, error) {
	made, err := variant.Preview(p).Make(branch, merged)
	return source.Routed(made), err
}

// isFork returns what reports whether a preview is of a fork. That is stored before the head of the pull
// request is read.
func isFork(st *store.Store) func(context.Context, deploy.GitPath) (bool, error) {
	return func(ctx context.Context, at deploy.GitPath) (bool, error) {
		known, err := st.RetainedPullPreviews(ctx, at.RepoID, at.PullRequest)
		return len(known) > 0 && known[0].Fork, err
	}
}

// registeredName returns the name of an application whose configuration has none.
func registeredName(st *store.Store) func(context.Context, deploy.GitPath) string {
	return func(ctx context.Context, at deploy.GitPath) string {
		known, err := st.ApplicationAt(ctx, at)
		if err != nil { // it is not registered
			return deploy.NameOf("", deploy.Registration{}, at)
		}
		return deploy.NameOf("", known.Registration, at)
	}
}
