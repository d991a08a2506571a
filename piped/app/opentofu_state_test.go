package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// stateServer keeps a state over HTTP, with a lock, as OpenTofu's backend of that name expects it.
type stateServer struct {
	*httptest.Server

	mu    sync.Mutex
	state []byte
	lock  []byte // the lock information of the holder; nil while the state is not locked
	locks int    // how many times it was taken
}

func newStateServer(t *testing.T) *stateServer {
	t.Helper()
	s := &stateServer{}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *stateServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.Method {
	case http.MethodGet:
		if s.state == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		_, _ = w.Write(s.state)
	case http.MethodPost:
		s.state = body
	case "LOCK":
		if s.lock != nil {
			w.WriteHeader(http.StatusLocked)
			_, _ = w.Write(s.lock)
			return
		}
		s.lock, s.locks = body, s.locks+1
	case "UNLOCK":
		s.lock = nil
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// locked returns the lock information of the holder, "" if the state is not locked.
func (s *stateServer) locked() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.lock)
}

// backend returns the configuration of the backend.
func (s *stateServer) backend() string {
	return strings.ReplaceAll(`  backend "http" {
    address        = "URL"
    lock_address   = "URL"
    unlock_address = "URL"
  }
`, "URL", s.URL)
}
