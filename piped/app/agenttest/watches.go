package agenttest

import (
	"context"
	"net/http"
	"net/url"
	"sync"
)

// watches are the watch requests that go through an APIProxy.
type watches struct {
	mu      sync.Mutex
	open    map[*watched]bool
	expired map[string]bool // what is watched from a version that is to be refused, once
	refused int
}

// watched is one watch request that is being answered.
type watched struct {
	what string
	end  context.CancelFunc
}

// CutWatches ends all watches, as a load balancer does that is restarted, and
// returns how many there were. Clients go on from the last version they saw.
func (p *APIProxy) CutWatches() int { return p.watches.cut(false) }

// ExpireWatches is CutWatches after which each client is told once that the
// version it goes on from is too old (410 Gone), as after a compaction of etcd:
// it has to read everything again.
func (p *APIProxy) ExpireWatches() int { return p.watches.cut(true) }

// Refused returns how many watches were told that their version is too old.
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

// serve has next answer the request, and ends the answer when it is a watch that
// is cut.
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

// tooOld is what an API server answers who asks for versions it has forgotten.
const tooOld = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}`

// refuse reports whether a watch is to be told that its version is too old. One
// that asks for the initial state is not.
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
