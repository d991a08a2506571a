package githosttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Token is the token that a GitHub without an App accepts; Login is its account.
const (
	Token = "s3cr3t-token"
	Login = "robot"
)

// Status is a status of a commit.
type Status struct {
	SHA         string `json:"-"`
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url"`
}

// User is an author.
type User struct {
	Login string `json:"login"`
}

// Comment is a comment of a pull request.
type Comment struct {
	ID     int64  `json:"id"`
	Number int    `json:"-"` // of its pull request
	Body   string `json:"body"`
	User   User   `json:"user"`
	Edits  int    `json:"-"`
}

// Ref is the head or base of a pull request.
type Ref struct {
	Ref  string     `json:"ref"`
	SHA  string     `json:"sha"`
	Repo Repository `json:"repo"`
}

// Repository is the repository of a Ref. The list of open pull requests has that of the request if
// there is none.
type Repository struct {
	FullName string `json:"full_name"`
}

// Label is a label of a pull request.
type Label struct {
	Name string `json:"name"`
}

// PullRequest is a pull request; Brought are the commits that its merge added.
type PullRequest struct {
	Number   int        `json:"number"`
	State    string     `json:"state"`
	MergedAt *time.Time `json:"merged_at"`
	Head     Ref        `json:"head"`
	Base     Ref        `json:"base"`
	Labels   []Label    `json:"labels"`
	Brought  []string   `json:"-"`
}

// Deployment is a deployment with its states, the oldest first.
type Deployment struct {
	ID               int64             `json:"id"`
	Ref              string            `json:"ref"`
	SHA              string            `json:"sha"`
	Environment      string            `json:"environment"`
	Payload          json.RawMessage   `json:"payload"`
	RequiredContexts *[]string         `json:"required_contexts,omitempty"`
	Statuses         []DeploymentState `json:"-"`
}

// DeploymentState is a state of a deployment.
type DeploymentState struct {
	State          string `json:"state"`
	Description    string `json:"description"`
	EnvironmentURL string `json:"environment_url"`
	LogURL         string `json:"log_url"`
}

// GitHub is the fake host. Its methods are safe for concurrent use.
type GitHub struct {
	URL string

	server *httptest.Server
	app    *app // nil: Token is accepted

	mu          sync.Mutex
	fault       func(w http.ResponseWriter, r *http.Request, next http.Handler)
	calls       []string
	statuses    []Status
	comments    []Comment
	pulls       []PullRequest
	deployments []Deployment
	commits     []string
}

// NewGitHub starts a GitHub that accepts Token, until the test ends.
func NewGitHub(t testing.TB) *GitHub {
	g := StartGitHub()
	t.Cleanup(g.Close)
	return g
}

// StartGitHub starts a GitHub that accepts Token. The caller closes it.
func StartGitHub() *GitHub {
	g := &GitHub{}
	g.serve()
	return g
}

// Close stops the server, once its requests are answered.
func (g *GitHub) Close() { g.server.Close() }

func (g *GitHub) serve() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /user", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, User{Login}) })
	mux.HandleFunc("POST /repos/{owner}/{repo}/statuses/{sha}", g.addStatus)
	mux.HandleFunc("GET /repos/{owner}/{repo}/commits/{ref}", g.commit)
	mux.HandleFunc("GET /repos/{owner}/{repo}/commits/{sha}/pulls", g.pullsOf)
	mux.HandleFunc("GET /repos/{owner}/{repo}/pulls", g.listPulls)
	mux.HandleFunc("GET /repos/{owner}/{repo}/pulls/{number}", g.pull)
	mux.HandleFunc("GET /repos/{owner}/{repo}/issues/{number}/comments", g.listComments)
	mux.HandleFunc("POST /repos/{owner}/{repo}/issues/{number}/comments", g.addComment)
	mux.HandleFunc("PATCH /repos/{owner}/{repo}/issues/comments/{id}", g.editComment)
	mux.HandleFunc("GET /repos/{owner}/{repo}/deployments", g.listDeployments)
	mux.HandleFunc("POST /repos/{owner}/{repo}/deployments", g.addDeployment)
	mux.HandleFunc("POST /repos/{owner}/{repo}/deployments/{id}/statuses", g.addDeploymentStatus)
	root := http.NewServeMux()
	root.Handle("/", g.authenticated(mux))
	if g.app != nil {
		g.app.serve(root)
	}
	g.server = httptest.NewServer(g.watched(root))
	g.URL = g.server.URL
}

// watched records calls and applies the fault of the test.
func (g *GitHub) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		g.calls = append(g.calls, r.Method+" "+r.URL.Path)
		fault := g.fault
		g.mu.Unlock()
		if fault != nil {
			fault(w, r, next)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (g *GitHub) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		if g.app == nil && got == "Bearer "+Token || g.app != nil && g.app.accepts(got) {
			next.ServeHTTP(w, r)
			return
		}
		answer(w, http.StatusUnauthorized, map[string]string{"message": "Bad credentials"})
	})
}

// SetFault passes requests to fault, which may call next; nil ends that.
func (g *GitHub) SetFault(fault func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fault = fault
}

// Calls returns the method and path of every request.
func (g *GitHub) Calls() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.calls)
}

// Statuses returns all statuses of a commit, the oldest first.
func (g *GitHub) Statuses(sha string) []Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.statuses), func(s Status) bool { return s.SHA != sha })
}

// Comments returns the comments of a pull request.
func (g *GitHub) Comments(number int) []Comment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.comments), func(c Comment) bool { return c.Number != number })
}

// Deployments returns all deployments, the oldest first.
func (g *GitHub) Deployments() []Deployment {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.deployments)
}

// SetPull adds or replaces a pull request by its number.
func (g *GitHub) SetPull(p PullRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pulls = append(slices.DeleteFunc(g.pulls, func(o PullRequest) bool { return o.Number == p.Number }), p)
}

// SetCommits sets the commits that can be read by the first characters of their hashes.
func (g *GitHub) SetCommits(hashes ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.commits = hashes
}

// commit answers with the hash of a commit, in the media type for which the agent asks.
func (g *GitHub) commit(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := slices.DeleteFunc(slices.Clone(g.commits), func(hash string) bool { return !strings.HasPrefix(hash, r.PathValue("ref")) })
	if len(found) != 1 || !strings.HasSuffix(r.Header.Get("Accept"), ".sha") {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "No commit found for SHA: " + r.PathValue("ref")})
		return
	}
	_, _ = w.Write([]byte(found[0]))
}

// CommentAs adds a comment by login.
func (g *GitHub) CommentAs(number int, login, body string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.comments = append(g.comments, Comment{ID: int64(len(g.comments) + 1), Number: number, Body: body, User: User{login}})
}

func (g *GitHub) addStatus(w http.ResponseWriter, r *http.Request) {
	s := Status{SHA: r.PathValue("sha")}
	if !read(w, r, &s) {
		return
	}
	if len(s.SHA) != 40 || len([]rune(s.Description)) > 140 || !slices.Contains([]string{"error", "failure", "pending", "success"}, s.State) {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "Validation Failed"})
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.statuses = append(g.statuses, s)
	answer(w, http.StatusCreated, s)
}

func (g *GitHub) pullsOf(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := []PullRequest{}
	for _, p := range g.pulls {
		if slices.Contains(p.Brought, r.PathValue("sha")) {
			found = append(found, p)
		}
	}
	answer(w, http.StatusOK, found)
}

func (g *GitHub) pull(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.pulls {
		if strconv.Itoa(p.Number) == r.PathValue("number") {
			answer(w, http.StatusOK, p)
			return
		}
	}
	notFound(w)
}

// listPulls lists pull requests in one state, the newest first.
func (g *GitHub) listPulls(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := []PullRequest{}
	for _, p := range g.pulls {
		if p.State != r.URL.Query().Get("state") {
			continue
		}
		if p.Head.Repo.FullName == "" {
			p.Head.Repo.FullName = r.PathValue("owner") + "/" + r.PathValue("repo")
		}
		found = append(found, p)
	}
	slices.SortFunc(found, func(a, b PullRequest) int { return b.Number - a.Number })
	page, size := number(r, "page", 1), number(r, "per_page", 30)
	if page*size < len(found) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?page=%d&per_page=%d>; rel="next"`, g.URL, r.URL.Path, page+1, size))
	}
	answer(w, http.StatusOK, found[min((page-1)*size, len(found)):min(page*size, len(found))])
}

func (g *GitHub) listComments(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := []Comment{}
	for _, c := range g.comments {
		if strconv.Itoa(c.Number) == r.PathValue("number") {
			found = append(found, c)
		}
	}
	page, size := number(r, "page", 1), number(r, "per_page", 30)
	if page*size < len(found) {
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?page=%d&per_page=%d>; rel="next"`, g.URL, r.URL.Path, page+1, size))
	}
	answer(w, http.StatusOK, found[min((page-1)*size, len(found)):min(page*size, len(found))])
}

func (g *GitHub) addComment(w http.ResponseWriter, r *http.Request) {
	c := Comment{User: User{g.login()}, Number: value(r, "number")}
	if !read(w, r, &c) {
		return
	}
	if len(c.Body) > 65536 {
		answer(w, http.StatusUnprocessableEntity, map[string]string{"message": "body is too long (maximum is 65536 characters)"})
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.ID = int64(len(g.comments) + 1)
	g.comments = append(g.comments, c)
	answer(w, http.StatusCreated, c)
}

func (g *GitHub) editComment(w http.ResponseWriter, r *http.Request) {
	var changed Comment
	if !read(w, r, &changed) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, c := range g.comments {
		if c.ID == int64(value(r, "id")) {
			g.comments[i].Body = changed.Body
			g.comments[i].Edits++
			answer(w, http.StatusOK, g.comments[i])
			return
		}
	}
	notFound(w)
}

func (g *GitHub) login() string {
	if g.app != nil {
		return appSlug + "[bot]"
	}
	return Login
}

func (g *GitHub) listDeployments(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	found := []Deployment{}
	for _, d := range slices.Backward(g.deployments) {
		if sha := r.URL.Query().Get("sha"); (sha == "" || d.SHA == sha) && d.Environment == r.URL.Query().Get("environment") {
			found = append(found, d)
		}
	}
	answer(w, http.StatusOK, found)
}

func (g *GitHub) addDeployment(w http.ResponseWriter, r *http.Request) {
	var d Deployment
	if !read(w, r, &d) {
		return
	}
	if d.RequiredContexts == nil || len(*d.RequiredContexts) > 0 {
		answer(w, http.StatusConflict, map[string]string{"message": "Conflict: Commit status checks failed for " + d.Ref})
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	d.ID, d.SHA, d.RequiredContexts = int64(len(g.deployments)+1), d.Ref, nil
	g.deployments = append(g.deployments, d)
	answer(w, http.StatusCreated, d)
}

func (g *GitHub) addDeploymentStatus(w http.ResponseWriter, r *http.Request) {
	var s DeploymentState
	if !read(w, r, &s) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := value(r, "id") - 1
	if at < 0 || at >= len(g.deployments) {
		notFound(w)
		return
	}
	d := &g.deployments[at]
	if s.State == "success" { // GitHub's auto_inactive
		for i, o := range g.deployments {
			if n := len(o.Statuses); i != at && o.Environment == d.Environment && n > 0 && o.Statuses[n-1].State == "success" {
				g.deployments[i].Statuses = append(slices.Clone(o.Statuses), DeploymentState{State: "inactive"})
			}
		}
	}
	d.Statuses = append(slices.Clone(d.Statuses), s)
	answer(w, http.StatusCreated, s)
}

func number(r *http.Request, name string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil {
		return n
	}
	return otherwise
}

// value returns a numeric path parameter, 0 if it is no number.
func value(r *http.Request, name string) int {
	n, _ := strconv.Atoi(r.PathValue(name))
	return n
}

func read(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		answer(w, http.StatusBadRequest, map[string]string{"message": "Problems parsing JSON"})
		return false
	}
	return true
}

func notFound(w http.ResponseWriter) {
	answer(w, http.StatusNotFound, map[string]string{"message": "Not Found"})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
