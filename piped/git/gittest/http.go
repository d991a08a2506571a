package gittest

import (
	"bytes"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// HTTPOptions says who may read, and with Push write, too; an empty user name lets
// everybody.
type HTTPOptions struct {
	Username, Password string
	Push               bool
}

// HTTPServer serves one repository over smart HTTP.
type HTTPServer struct {
	URL string // of the repository

	options  HTTPOptions
	server   *http.Server
	done     chan struct{}
	listings atomic.Int64
	packs    atomic.Int64

	mu       sync.Mutex
	fault    Fault
	closed   bool
	handlers sync.WaitGroup
}

// Fault stands before a server: it answers a request itself, or lets next do so.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Fail answers every request with a status.
func Fail(status int) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "told to fail", status)
	}
}

// Hang answers no request; it lasts until the client or the server goes away.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body) // else the client's going is not noticed
		<-r.Context().Done()
	}
}

// CutPack answers listings, and cuts the connection n bytes into each pack.
func CutPack(n int) Fault { return cutPack(n, func(*http.Request) {}) }

// StallPack answers listings, and falls silent n bytes into each pack.
func StallPack(n int) Fault {
	return cutPack(n, func(r *http.Request) { <-r.Context().Done() })
}

func cutPack(n int, then func(*http.Request)) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isPack(r) {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&cutWriter{ResponseWriter: w, left: n}, r)
		_ = http.NewResponseController(w).Flush() // what was sent shall arrive
		then(r)
		panic(http.ErrAbortHandler)
	}
}

// cutWriter fails once enough was written.
type cutWriter struct {
	http.ResponseWriter
	left int
}

var errCut = errors.New("connection cut as told")

func (c *cutWriter) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	n, err := c.ResponseWriter.Write(p[:n])
	if err == nil && n < len(p) {
		err = errCut
	}
	return n, err
}

func isPack(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-upload-pack")
}

// ServeHTTP serves the repository at dir on a free port of loopback with git
// http-backend. The caller closes the server.
func ServeHTTP(dir string, options HTTPOptions) (*HTTPServer, error) {
	execPath, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("find git's programs: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &HTTPServer{
		URL:     "http://" + listener.Addr().String() + "/" + filepath.Base(dir),
		options: options, done: make(chan struct{}),
	}
	quiet := log.New(io.Discard, "", 0)
	backend := &cgi.Handler{
		Path: filepath.Join(string(bytes.TrimSpace(execPath)), "git-http-backend"),
		Env: append([]string{
			"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1",
		}, configured("http.receivepack", strconv.FormatBool(options.Push))...),
		Logger: quiet, Stderr: io.Discard,
	}
	s.server = &http.Server{Handler: s.handler(backend), ErrorLog: quiet}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // ends with Close
	}()
	return s, nil
}

// anyOwner lets git serve a repository whoever owns it.
var anyOwner = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}

// configured is anyOwner with one more setting.
func configured(key, value string) []string {
	return append([]string{"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_1=" + key, "GIT_CONFIG_VALUE_1=" + value}, anyOwner[1:]...)
}

func (s *HTTPServer) handler(backend http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fault, ok := s.begin()
		if !ok {
			return
		}
		defer s.handlers.Done()
		switch {
		case isPack(r):
			s.packs.Add(1)
		case strings.HasSuffix(r.URL.Path, "/info/refs"):
			s.listings.Add(1)
		}
		user, password, _ := r.BasicAuth()
		if s.options.Username != "" && !(same(user, s.options.Username) && same(password, s.options.Password)) {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "<html>who are you, "+user+"?</html>", http.StatusUnauthorized)
			return
		}
		if fault == nil {
			backend.ServeHTTP(w, r)
			return
		}
		fault(w, r, backend)
	})
}

// begin admits a request while the server is open.
func (s *HTTPServer) begin() (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.handlers.Add(1)
	return s.fault, true
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// SetFault puts a fault before the requests to come; nil takes it away.
func (s *HTTPServer) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Listings returns how often references were asked for.
func (s *HTTPServer) Listings() int64 { return s.listings.Load() }

// Packs returns how often a pack was asked for.
func (s *HTTPServer) Packs() int64 { return s.packs.Load() }

// Close cuts all connections and waits until the server is gone.
func (s *HTTPServer) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.server.Close()
	<-s.done
	s.handlers.Wait()
	return err
}
