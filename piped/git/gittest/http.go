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

// HTTPOptions configures access. Callers authenticate with the user name and password; an
// empty user name permits everyone. Push also permits pushes.
type HTTPOptions struct {
	Username, Password string
	Push               bool
	Folder             string // of the repository in the URL, such as its owner at a Git host
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

// Fault intercepts the requests to a server: it answers a request itself or passes it to next.
type Fault func(w http.ResponseWriter, r *http.Request, next http.Handler)

// Fail answers every request with a status.
func Fail(status int) Fault {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		http.Error(w, "injected failure", status)
	}
}

// Hang answers no request. Each request lasts until the client or the server ends it.
func Hang() Fault {
	return func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body) // needed to detect a disconnect
		<-r.Context().Done()
	}
}

// CutPack answers listings of references, and cuts the connection after n bytes of each pack.
func CutPack(n int) Fault { return cutPack(n, func(*http.Request) {}) }

// StallPack answers listings of references, and stops sending after n bytes of each pack.
func StallPack(n int) Fault {
	return cutPack(n, func(r *http.Request) { <-r.Context().Done() })
}

// cutPack sends n bytes of each pack, calls then, and aborts the request.
func cutPack(n int, then func(*http.Request)) Fault {
	return func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if !isPack(r) {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(&cutWriter{ResponseWriter: w, left: n}, r)
		_ = http.NewResponseController(w).Flush() // deliver what was written before the abort
		then(r)
		panic(http.ErrAbortHandler)
	}
}

// cutWriter fails after left bytes.
type cutWriter struct {
	http.ResponseWriter
	left int
}

var errCut = errors.New("injected connection cut")

func (c *cutWriter) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	n, err := c.ResponseWriter.Write(p[:n])
	if err == nil && n < len(p) {
		err = errCut
	}
	return n, err
}

// isPack reports whether a request asks for a pack.
func isPack(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/git-upload-pack")
}

// ServeHTTP serves the repository at dir with git http-backend on a free loopback port. The
// caller closes the server.
func ServeHTTP(dir string, options HTTPOptions) (*HTTPServer, error) {
	execPath, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, fmt.Errorf("find git's programs: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	folder := ""
	if options.Folder != "" {
		folder = "/" + options.Folder
	}
	s := &HTTPServer{
		URL:     "http://" + listener.Addr().String() + folder + "/" + filepath.Base(dir),
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
	s.server = &http.Server{Handler: http.StripPrefix(folder, s.handler(backend)), ErrorLog: quiet}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // ends with Close
	}()
	return s, nil
}

// anyOwner is the environment that lets git serve a repository of any owner.
var anyOwner = []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}

// configured returns anyOwner with one more Git setting.
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

// begin registers a request and returns the current fault. It returns false after Close.
func (s *HTTPServer) begin() (Fault, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.handlers.Add(1)
	return s.fault, true
}

// same compares in constant time.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// SetFault sets the fault for later requests; nil removes it.
func (s *HTTPServer) SetFault(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Listings returns the number of requests for the list of references.
func (s *HTTPServer) Listings() int64 { return s.listings.Load() }

// Packs returns the number of requests for a pack.
func (s *HTTPServer) Packs() int64 { return s.packs.Load() }

// Close closes all connections and waits until the server has stopped.
func (s *HTTPServer) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	err := s.server.Close()
	<-s.done
	s.handlers.Wait()
	return err
}
