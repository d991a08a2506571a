// Package signintest imitates the sign-in routes of the agent's web server, for tests of clients.
// Users sign in at once; a test decides what they get.
package signintest

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Server is a web server with the routes of sign-in.
type Server struct {
	*httptest.Server
	// Token returns the token of a new session.
	Token func() string
	// Answers are the answers to the first polls of a sign-in on another device; the polls
	// after them return a token.
	Answers []Answer
	// State replaces the state with which the browser returns; nil returns that of the client.
	State func(state string) string
	// Code replaces the code with which the browser returns.
	Code func(code string) string
	// Interval is that of a sign-in on another device, in seconds.
	Interval int

	mu         sync.Mutex
	challenges map[string]string // by code
	issuers    []string
}

// Answer is an error of the web server.
type Answer struct {
	Status int
	Code   string
}

// Start starts a server that gives tokens.
func Start(t testing.TB, token func() string) *Server {
	s := New(token)
	t.Cleanup(s.Close)
	return s
}

// New is Start for callers that close the server. It begins with the Answers.
func New(token func() string, answers ...Answer) *Server {
	s := &Server{Token: token, Answers: answers, Interval: 1, challenges: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /sign-in", s.page)
	mux.HandleFunc("POST /sign-in/token", s.token)
	mux.HandleFunc("POST /sign-in/link/new", s.link)
	mux.HandleFunc("POST /sign-in/device", s.device)
	mux.HandleFunc("POST /sign-in/device/token", s.deviceToken)
	s.Server = httptest.NewServer(mux)
	return s
}

var (
	challengeForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)
	stateForm     = regexp.MustCompile(`^[A-Za-z0-9_-]{16,128}$`)
)

// link returns a link for the key "good".
func (s *Server) link(w http.ResponseWriter, r *http.Request) {
	var in struct{ Key, Next string }
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || in.Key != "good" {
		w.WriteHeader(http.StatusForbidden)
		json.NewEncoder(w).Encode(map[string]string{"error": "access_denied"})
		return
	}
	json.NewEncoder(w).Encode(map[string]string{"path": "/sign-in/link/use?ticket=" + strings.Repeat("a", 43), "expires_at": "2099-01-02T03:04:05Z"})
}

// page sends the browser back with a code.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	port, err := strconv.Atoi(q.Get("cli_port"))
	state, challenge := q.Get("state"), q.Get("challenge")
	if err != nil || port < 1 || port > 65535 || !challengeForm.MatchString(challenge) || !stateForm.MatchString(state) {
		http.Error(w, "the address of pipectl's sign-in is incomplete", http.StatusForbidden)
		return
	}
	s.mu.Lock()
	code := "code-" + strconv.Itoa(len(s.challenges))
	s.challenges[code] = challenge
	s.mu.Unlock()
	if s.State != nil {
		state = s.State(state)
	}
	if s.Code != nil {
		code = s.Code(code)
	}
	http.Redirect(w, r, "http://127.0.0.1:"+strconv.Itoa(port)+"/callback?"+url.Values{"code": {code}, "state": {state}}.Encode(), http.StatusSeeOther)
}

// token exchanges a code, once.
func (s *Server) token(w http.ResponseWriter, r *http.Request) {
	var in struct{ Code, Verifier string }
	if !read(w, r, &in) {
		return
	}
	s.mu.Lock()
	challenge, ok := s.challenges[in.Code]
	delete(s.challenges, in.Code)
	s.mu.Unlock()
	sum := sha256.Sum256([]byte(in.Verifier))
	if !ok || base64.RawURLEncoding.EncodeToString(sum[:]) != challenge {
		write(w, http.StatusForbidden, map[string]any{"error": "access_denied", "error_description": "the sign-in failed"})
		return
	}
	s.grant(w)
}

func (s *Server) grant(w http.ResponseWriter) {
	write(w, http.StatusOK, map[string]any{"token": s.Token(), "subject": "ana@example.com", "issuer": "corp", "expires_at": "2099-01-02T03:04:05Z"})
}

func (s *Server) device(w http.ResponseWriter, r *http.Request) {
	var in struct{ Issuer string }
	if !read(w, r, &in) {
		return
	}
	s.mu.Lock()
	s.issuers = append(s.issuers, in.Issuer)
	s.mu.Unlock()
	write(w, http.StatusOK, map[string]any{
		"handle": "h-1", "user_code": "WDJB-MJHT", "verification_uri": "https://issuer.example.com/device",
		"verification_uri_complete": "https://issuer.example.com/device?user_code=WDJB-MJHT", "interval": s.Interval, "expires_in": 600,
	})
}

func (s *Server) deviceToken(w http.ResponseWriter, r *http.Request) {
	var in struct{ Handle string }
	if !read(w, r, &in) {
		return
	}
	if in.Handle != "h-1" {
		write(w, http.StatusBadRequest, map[string]any{"error": "expired_token"})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Answers) == 0 {
		s.grant(w)
		return
	}
	answer := s.Answers[0]
	s.Answers = s.Answers[1:]
	write(w, answer.Status, map[string]any{"error": answer.Code, "error_description": "as the test says"})
}

// Issuers returns the issuers that sign-ins on other devices named.
func (s *Server) Issuers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issuers
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if r.Header.Get("Content-Type") != "application/json" || json.NewDecoder(r.Body).Decode(into) != nil {
		write(w, http.StatusUnsupportedMediaType, map[string]any{"error": "invalid_request"})
		return false
	}
	return true
}

func write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
