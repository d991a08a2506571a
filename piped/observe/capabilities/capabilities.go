// Package capabilities reads the Kubernetes version and the API versions of the clusters, and
// stores them. Helm charts are rendered with these capabilities, and with the stored ones
// while a cluster is unavailable.
package capabilities

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/store"
)

const (
	timeout      = 10 * time.Second      // of one request
	retryAfter   = 15 * time.Second      // after a failure; also the interval of checks for new providers
	refreshAfter = 10 * time.Minute      // after a success
	firstWait    = timeout + time.Second // how long For waits for the first round of requests
)

// Clusters provides access to the clusters of the platform providers. The set of providers
// may change.
type Clusters interface {
	// Names returns the names of the providers.
	Names() []string
	// Capabilities requests the capabilities of a provider's cluster.
	Capabilities(ctx context.Context, provider string) (deploy.Capabilities, error)
}

// Reader reads the capabilities of each cluster at start and when its provider is added,
// retries until the cluster answers, and then refreshes them every ten minutes. It is safe
// for concurrent use.
type Reader struct {
	store    *store.Store
	clusters Clusters
	log      *slog.Logger
	now      func() time.Time

	first chan struct{} // closed after the first round of requests, even if some failed

	mu    sync.RWMutex
	known map[string]deploy.Capabilities // by provider
	due   map[string]time.Time           // of the next request, by provider
}

// New returns a Reader that starts with the stored capabilities.
func New(ctx context.Context, st *store.Store, c Clusters, log *slog.Logger, now func() time.Time) (*Reader, error) {
	known, err := st.Capabilities(ctx)
	if err != nil {
		return nil, err
	}
	return &Reader{
		store: st, clusters: c, log: log, now: now, first: make(chan struct{}), known: known, due: map[string]time.Time{},
	}, nil
}

// Run reads capabilities until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	poll := time.NewTicker(retryAfter)
	defer poll.Stop()
	for done := sync.OnceFunc(func() { close(r.first) }); ; {
		r.readDue(ctx)
		done()
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
	}
}

// readDue reads the capabilities of every provider that is due, concurrently.
func (r *Reader) readDue(ctx context.Context) {
	var reading sync.WaitGroup
	defer reading.Wait()
	for _, provider := range r.clusters.Names() {
		if !r.isDue(provider) {
			continue
		}
		reading.Go(func() {
			next := refreshAfter
			if err := r.read(ctx, provider); err != nil {
				next = retryAfter
				r.log.Debug("cannot read the capabilities of a cluster", "cluster", provider, "error", err)
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.due[provider] = r.now().Add(next)
		})
	}
}

func (r *Reader) isDue(provider string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return !r.now().Before(r.due[provider])
}

func (r *Reader) read(ctx context.Context, provider string) error {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	read, err := r.clusters.Capabilities(ctx, provider)
	if err != nil {
		return err
	}
	r.mu.RLock()
	was, ok := r.known[provider]
	r.mu.RUnlock()
	if ok && was.KubeVersion == read.KubeVersion && slices.Equal(was.APIVersions, read.APIVersions) {
		return nil
	}
	r.mu.Lock()
	r.known[provider] = read
	r.mu.Unlock()
	return r.store.SaveCapabilities(ctx, provider, read)
}

// For returns the capabilities for rendering the charts of an application, zero if its
// provider is unknown or its cluster has never answered. If the capabilities are unknown, it
// waits up to eleven seconds for the Reader's first round of requests.
func (r *Reader) For(ctx context.Context, at deploy.GitPath, app *config.Application) helm.Capabilities {
	provider, err := app.Provider(r.clusters.Names())
	if err != nil && app.PlatformProvider == "" {
		provider, err = r.registered(ctx, at, app)
	}
	if err != nil {
		return helm.Capabilities{} // the planner reports it
	}
	known, ok := r.get(provider)
	if !ok {
		select {
		case <-r.first:
		case <-time.After(firstWait):
		}
		known, _ = r.get(provider)
	}
	return helm.Capabilities{KubeVersion: known.KubeVersion, APIVersions: known.APIVersions}
}

// registered returns the provider that the store has for an application whose configuration
// names none.
func (r *Reader) registered(ctx context.Context, at deploy.GitPath, app *config.Application) (string, error) {
	known, err := r.store.ApplicationAt(ctx, at)
	if err != nil {
		return "", err
	}
	return app.ProviderOf(known, r.clusters.Names())
}

func (r *Reader) get(provider string) (deploy.Capabilities, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	known, ok := r.known[provider]
	return known, ok
}

// Versions returns the last known Kubernetes version of each cluster, by provider.
func (r *Reader) Versions() map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := map[string]string{}
	for provider, known := range r.known {
		out[provider] = known.KubeVersion
	}
	return out
}
