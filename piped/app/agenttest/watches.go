package agenttest

import (
	"context"
	"net/http"
	"net/url"
	"sync"
)

// watches holds the watch requests that go through an APIProxy.
type watches struct {
	mu      sync.Mutex
	open    map[*watched]bool
	expired map[string]bool // watched resources whose next watch is refused as too old, once
	refused int
}

// watched is one open watch request.
type watched struct {
	what string
	end  context.CancelFunc
}

// CutWatches ends all watches, as a restarted load balancer does, and returns their
// number. Clients resume from the last version they saw.
func (p *APIProxy) CutWatches() int { return p.watches.cut(false) }

// ExpireWatches is CutWatches, after which each client gets one 410 Gone for the version
// from which it resumes, as after a compaction of etcd: it has to list again.
func (p *APIProxy) ExpireWatches() int { return p.watches.cut(true) }

// Refused returns how many watches were refused because their version was too old.
func (p *APIProxy) Refused() int {
	p.watches.mu.Lock()
	defer p.watches.mu.Unlock()
	return p.watches.refused
}

func (w *watches) cut(expire bool) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for open := range w.open {
		if expire {
			w.expired[open.what] = true
		}
		open.end()
	}
	return len(w.open)
}

// serve passes the request to next, and ends the response of a watch that is cut.
func (w *watches) serve(rw http.ResponseWriter, r *http.Request, next http.Handler) {
	query := r.URL.Query()
	if query.Get("watch") != "true" && query.Get("watch") != "1" {
		next.ServeHTTP(rw, r)
		return
	}
	this := &watched{what: r.URL.Path + "?" + query.Get("labelSelector")}
	if w.refuse(this.what, query) {
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusGone)
		_, _ = rw.Write([]byte(tooOld)) // the client may be gone
		return
	}
	ctx, end := context.WithCancel(r.Context())
	defer end()
	this.end = end
	w.add(this)
	defer w.remove(this)
	next.ServeHTTP(rw, r.WithContext(ctx))
}

// tooOld is an API server's response to a watch from a compacted version.
const tooOld = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}`

// refuse reports whether to refuse a watch because its version is too old. A watch that
// requests the initial state is never refused.
func (w *watches) refuse(what string, query url.Values) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.expired[what] || query.Get("sendInitialEvents") == "true" || query.Get("resourceVersion") == "" {
		return false
	}
	delete(w.expired, what)
	w.refused++
	return true
}

func (w *watches) add(this *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open, w.expired = map[*watched]bool{}, map[string]bool{}
	}
	w.open[this] = true
}

func (w *watches) remove(this *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, this)
}
