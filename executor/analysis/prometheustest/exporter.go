package prometheustest

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// Exporter exposes metrics, set by tests, to Prometheus.
type Exporter struct {
	Addr string // host:port

	mu     sync.Mutex
	values map[string]float64
	asked  int
}

// NewExporter returns an exporter without metrics. It ends with the test.
func NewExporter(t testing.TB) *Exporter {
	e := &Exporter{values: map[string]float64{}}
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	e.Addr = server.Listener.Addr().String()
	return e
}

// Set sets the value of a series, such as errors{variant="canary"}.
func (e *Exporter) Set(series string, value float64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.values[series] = value
}

// Asked returns how often the metrics were scraped.
func (e *Exporter) Asked() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked
}

// ServeHTTP implements http.Handler. Each value has a time: Prometheus then keeps the last one for five
// minutes, also when a later scrape fails.
func (e *Exporter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	now := time.Now().UnixMilli()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, series := range slices.Sorted(maps.Keys(e.values)) {
		fmt.Fprintf(w, "%s %g %d\n", series, e.values[series], now)
	}
}
