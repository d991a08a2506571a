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

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// Metrics answers queries with numbers.
type Metrics interface {
	// Query returns the numbers of a time. It ends when ctx does. Its error is of
	// kind deploy.Invalid if the question or the credentials are wrong, else of kind
	// deploy.Unavailable.
	Query(ctx context.Context, query string, over Window) (Numbers, error)
}

// Window is the time that a query is about, both ends included.
type Window struct {
	From, To time.Time
	Step     time.Duration // between two points, where the provider lets one choose
}

// Numbers are the points of all series of an answer. What is no number (NaN) is
// left out, so that there may be none.
type Numbers struct {
	Points   []float64
	Warnings []string
}

// Logs answers queries with lines of logs.
type Logs interface {
	// Find returns the lines of a time, the latest first, at most 100. Errors are
	// those of Metrics.
	Find(ctx context.Context, query string, over Window) (Lines, error)
}

// Lines are what a query found.
type Lines struct {
	Lines    []string
	More     bool // there may be more
	Warnings []string
}

// Set are the analysis providers in effect, by name. It is safe for concurrent
// use.
type Set struct {
	http      *http.Client
	providers atomic.Pointer[map[string]any]
}

// NewSet returns a Set of none.
func NewSet() *Set {
	s := &Set{http: &http.Client{Transport: bounded{http.DefaultTransport.(*http.Transport).Clone()}, CheckRedirect: noRedirect}}
	s.Use(nil)
	return s
}

// Use makes the configured providers those in effect. Questions that are under
// way are not disturbed.
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

// Close closes the connections that nobody uses. It returns nil.
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

// unsupported stands for a provider that is configured and that this version cannot
// ask: the type it has.
type unsupported config.AnalysisProviderType

// unknown says which providers there are instead.
func unknown[T any](s *Set, name, what, kinds string) error {
	var have []string
	all := *s.providers.Load()
	if kind, ok := all[name].(unsupported); ok {
		return deploy.Errorf(deploy.Invalid, "provider %q of %s is of type %s, which this version of piped cannot ask: use a provider of type %s", name, what, kind, kinds)
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

// numbers leaves out what is none.
func numbers(points []float64) []float64 {
	return slices.DeleteFunc(points, math.IsNaN)
}
