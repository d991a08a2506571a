package app

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/helm"
	"github.com/c785c783/piped/piped/store"
)

const (
	askTimeout  = 10 * time.Second // for one cluster to say what it serves
	askAgain    = 15 * time.Second // after it did not, and for clusters that are new
	askRefresh  = 10 * time.Minute // after it did
	waitForAsks = askTimeout + time.Second
)

// capabilities know what the clusters serve. It is a component, which asks them:
// at its start, when a provider is new, until it is reached, and then rarely. What
// a cluster said is kept in the store, so that charts are rendered as before
// while it cannot be reached.
type capabilities struct {
	store    *store.Store
	clusters *clusters
	log      *slog.Logger
	now      func() time.Time

	first chan struct{} // closed once every provider was asked, whatever it said

	mu    sync.RWMutex
	known map[string]deploy.Capabilities // by provider
	due   map[string]time.Time           // when a provider is asked again
}

func newCapabilities(ctx context.Context, st *store.Store, c *clusters, o Options) (*capabilities, error) {
	known, err := st.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	return &capabilities{
		store: st, clusters: c, log: o.Logger.With("component", "capabilities"), now: o.Now,
		first: make(chan struct{}), known: known, due: map[string]time.Time{},
	}, nil
}

// Run asks the clusters until ctx ends.
func (c *capabilities) Run(ctx context.Context) error {
	poll := time.NewTicker(askAgain)
	defer poll.Stop()
	for done := sync.OnceFunc(func() { close(c.first) }); ; {
		c.ask(ctx)
		done()
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
}

// ask asks every provider whose time has come, all at once.
func (c *capabilities) ask(ctx context.Context) {
	var asked sync.WaitGroup
	defer asked.Wait()
	for _, provider := range c.clusters.Names() {
		if !c.isDue(provider) {
			continue
		}
		asked.Go(func() {
			next := askRefresh
			if err := c.askOne(ctx, provider); err != nil {
				next = askAgain
				c.log.Debug("a cluster does not say what it serves", "cluster", provider, "error", err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.due[provider] = c.now().Add(next)
		})
	}
}

func (c *capabilities) isDue(provider string) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.now().Before(c.due[provider])
}

func (c *capabilities) askOne(ctx context.Context, provider string) error {
	cluster, release, err := c.clusters.Hold(provider)
	if err != nil {
		return err
	}
	defer release()
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	said, err := cluster.Capabilities(ctx)
	if err != nil {
		return err
	}
	c.mu.RLock()
	was, ok := c.known[provider]
	c.mu.RUnlock()
	if ok && was.KubeVersion == said.KubeVersion && slices.Equal(was.APIVersions, said.APIVersions) {
		return nil
	}
	c.mu.Lock()
	c.known[provider] = said
	c.mu.Unlock()
	return c.store.SaveCapabilities(ctx, provider, said)
}

// For returns what the charts of an application see of its cluster; nothing if
// that has never been reached. Of a cluster that is not known yet the first
// answer is waited for, briefly.
func (c *capabilities) For(ctx context.Context, at deploy.GitPath, app *config.Application) helm.Capabilities {
	provider, err := app.Provider(c.clusters.Names())
	if err != nil && app.PlatformProvider == "" {
		provider, err = c.registered(ctx, at, app)
	}
	if err != nil {
		return helm.Capabilities{} // the planner says so
	}
	known, ok := c.get(provider)
	if !ok {
		select {
		case <-c.first:
		case <-time.After(waitForAsks):
		}
		known, _ = c.get(provider)
	}
	return helm.Capabilities{KubeVersion: known.KubeVersion, APIVersions: known.APIVersions}
}

// registered returns the provider of an application whose configuration names none
// of several: the one it was registered with, or has been assigned to.
func (c *capabilities) registered(ctx context.Context, at deploy.GitPath, app *config.Application) (string, error) {
	known, err := c.store.ApplicationAt(ctx, at)
	if err != nil {
		return "", err
	}
	return app.ProviderOf(known, c.clusters.Names())
}

func (c *capabilities) get(provider string) (deploy.Capabilities, bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	known, ok := c.known[provider]
	return known, ok
}
