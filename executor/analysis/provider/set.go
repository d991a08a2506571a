package provider

import (
	"context"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/piped/bounded"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// Metrics queries metrics.
type Metrics interface {
	// Query returns the points within a window. It stops when ctx ends. Errors are of
	// kind deploy.Invalid for wrong queries and credentials, else of kind
	// deploy.Unavailable.
	Query(ctx context.Context, query string, over Window) (Numbers, error)
}

// Window is a time window, both ends included.
type Window struct {
	From, To time.Time
	Step     time.Duration // between two points, for providers with a choice
}

// Numbers are the points of all series of a response, without NaN values. There may be
// none.
type Numbers struct {
	Points   []float64
	Warnings []string
}

// Logs queries log lines.
type Logs interface {
	// Find returns at most 100 lines within a window, the latest first. Errors are as
	// for Metrics.
	Find(ctx context.Context, query string, over Window) (Lines, error)
}

// Lines are the result of a log query.
type Lines struct {
	Lines    []string
	More     bool // there may be more
	Warnings []string
}

// Set contains the configured analysis providers by name. It is safe for concurrent
// use.
type Set struct {
	http      *http.Client
	providers atomic.Pointer[map[string]any]
}

// NewSet returns an empty Set.
func NewSet() *Set {
	s := &Set{http: &http.Client{Transport: bounded.Transport(http.DefaultTransport.(*http.Transport).Clone(), maxAnswer), CheckRedirect: noRedirect}}
	s.Use(nil)
	return s
}

// Use replaces the providers. Running queries are not affected.
func (s *Set) Use(configured []config.AnalysisProvider) {
	next := map[string]any{}
	for _, p := range configured {
		switch c := p.Config.(type) {
		case *config.Prometheus:
			next[p.Name] = &prometheus{*c, s.http.Transport}
		case *config.Datadog:
			next[p.Name] = &datadog{*c, s.http}
		case *config.Loki:
			next[p.Name] = &loki{*c, s.http}
		default:
			next[p.Name] = unsupported(p.Type)
		}
	}
	s.providers.Store(&next)
}

// Close closes idle connections. It returns nil.
func (s *Set) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

// Metrics returns the provider of that name, or an error of kind deploy.Invalid.
func (s *Set) Metrics(name string) (Metrics, error) {
	m, ok := (*s.providers.Load())[name].(Metrics)
	if !ok {
		return nil, unknown[Metrics](s, name, "metrics", "PROMETHEUS or DATADOG")
	}
	return m, nil
}

// Logs returns the provider of that name, or an error of kind deploy.Invalid.
func (s *Set) Logs(name string) (Logs, error) {
	l, ok := (*s.providers.Load())[name].(Logs)
	if !ok {
		return nil, unknown[Logs](s, name, "logs", "LOKI")
	}
	return l, nil
}

// unsupported is a configured provider of a type that this version does not support.
type unsupported config.AnalysisProviderType

// unknown returns the error for a provider that does not exist or does not fit. It lists
// the providers that do.
func unknown[T any](s *Set, name, what, kinds string) error {
	var have []string
	all := *s.providers.Load()
	if kind, ok := all[name].(unsupported); ok {
		return deploy.Errorf(deploy.Invalid, "provider %q of %s is of type %s, which this version of piped does not support: use a provider of type %s", name, what, kind, kinds)
	}
	for _, other := range slices.Sorted(maps.Keys(all)) {
		if _, ok := all[other].(T); ok {
			have = append(have, other)
		}
	}
	known := "it has none"
	if len(have) > 0 {
		known = "it has " + strings.Join(have, ", ")
	}
	return deploy.Errorf(deploy.Invalid, "the agent has no provider of %s named %q (%s): name one of those, or add it to analysisProviders of the agent's configuration with type %s",
		what, name, known, kinds)
}

// numbers removes NaN values.
func numbers(points []float64) []float64 {
	return slices.DeleteFunc(points, math.IsNaN)
}
