package main

import (
	"net/http"
	"strings"
	"sync"
)

// call is one request to an API server.
type call struct {
	method, path  string
	watch, dryRun bool
}

// calls remembers the requests to an API server.
type calls struct {
	mu  sync.Mutex
	all []call
}

func (c *calls) saw(r *http.Request) {
	query := r.URL.Query()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, call{
		method: r.Method, path: r.URL.Path, dryRun: query.Has("dryRun"),
		watch: query.Get("watch") == "true" || query.Get("watch") == "1",
	})
}

// take returns the requests since the last time.
func (c *calls) take() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.all
	c.all = nil
	return all
}

// reads reports whether a call reads one object of a namespace.
func (c call) reads(namespace string) bool {
	_, rest, found := strings.Cut(c.path, "/namespaces/"+namespace+"/")
	return c.method == http.MethodGet && !c.watch && found && strings.Count(rest, "/") == 1
}

// splitSweep splits calls: the sweep's are those about an object that a dry run was
// made of, and that is not one of others. What those cause is no sweep.
func splitSweep(all []call, others map[string]bool) (rest, sweep []call) {
	swept := map[string]bool{}
	for _, c := range all {
		if c.dryRun && !others[c.path] {
			swept[c.path] = true
		}
	}
	for _, c := range all {
		if swept[c.path] {
			sweep = append(sweep, c)
		} else {
			rest = append(rest, c)
		}
	}
	return rest, sweep
}
