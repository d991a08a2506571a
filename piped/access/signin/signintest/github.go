package signintest

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/c785c783/piped/piped/config"
)

// GitHub is a fake of GitHub Enterprise with one account and an OAuth app.
type GitHub struct {
	ClientID, ClientSecret string

	t      testing.TB
	server *httptest.Server

	mu      sync.Mutex
	id      int64
	login   string
	teams   []string // org/team
	codes   map[string]code
	tokens  map[string]bool
	devices map[string]*device
	status  int // of the API, if not 0
	pages   int // of teams that were read
	n       int
}

// NewGitHub starts a fake, which ends with the test.
func NewGitHub(t testing.TB) *GitHub {
	t.Helper()
	g := &GitHub{
		ClientID: "Iv1.piped", ClientSecret: "github-hunter2", t: t, id: 42, login: "ann", teams: []string{"acme/payments"},
		codes: map[string]code{}, tokens: map[string]bool{}, devices: map[string]*device{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/oauth/authorize", g.authorize)
	mux.HandleFunc("POST /login/oauth/access_token", g.token)
	mux.HandleFunc("POST /login/device/code", g.startDevice)
	mux.HandleFunc("GET /api/v3/user", g.user)
	mux.HandleFunc("GET /api/v3/user/teams", g.userTeams)
	g.server = httptest.NewServer(mux)
	t.Cleanup(g.server.Close)
	return g
}

// Config returns the configuration of an agent that signs users in at the fake.
func (g *GitHub) Config(t testing.TB, name string) config.Issuer {
	return config.Issuer{
		Name: name, Type: config.IssuerGitHub, APIURL: g.server.URL + "/api/v3", ClientID: g.ClientID,
		ClientSecretFile: writeFile(t, g.ClientSecret), Scopes: []string{"read:org"},
	}
}

// SetAccount changes who the user is.
func (g *GitHub) SetAccount(id int64, login string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.id, g.login = id, login
}

// SetTeams changes the teams of the user, org/team.
func (g *GitHub) SetTeams(teams ...string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.teams = teams
}

// SetStatus makes the API answer with an error; 0 ends that.
func (g *GitHub) SetStatus(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.status = status
}

// Revoke makes every token invalid.
func (g *GitHub) Revoke() {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.tokens)
}

// Pages returns how many pages of teams were read.
func (g *GitHub) Pages() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.pages
}

// Approve lets the user of a user code sign in.
func (g *GitHub) Approve(userCode string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range g.devices {
		d.approved = d.approved || d.userCode == userCode
	}
}

func (g *GitHub) next(prefix string) string {
	g.n++
	return fmt.Sprintf("%s-hunter2-%d", prefix, g.n)
}

func (g *GitHub) authorize(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := r.URL.Query()
	if q.Get("client_id") != g.ClientID || len(q.Get("state")) < 22 || q.Get("scope") != "read:org" ||
		q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 {
		g.t.Errorf("the authorization request is wrong: %s", r.URL.RawQuery)
	}
	issued := g.next("code")
	g.codes[issued] = code{challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri")}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+url.Values{"code": {issued}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
}

// token answers with HTTP 200 and a form, also to errors, as GitHub does.
func (g *GitHub) token(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	if r.PostFormValue("client_id") != g.ClientID || r.PostFormValue("client_secret") != g.ClientSecret {
		fmt.Fprint(w, "error=incorrect_client_credentials")
		return
	}
	if r.PostFormValue("grant_type") == "urn:ietf:params:oauth:grant-type:device_code" {
		if d := g.devices[r.PostFormValue("device_code")]; d == nil || !d.approved {
			fmt.Fprint(w, "error=authorization_pending&interval=5")
			return
		}
	} else if !g.redeem(r.PostForm) {
		fmt.Fprint(w, "error=bad_verification_code&error_description=incorrect:"+url.QueryEscape(r.PostForm.Encode()))
		return
	}
	token := g.next("gho")
	g.tokens[token] = true
	fmt.Fprint(w, url.Values{"access_token": {token}, "scope": {"read:org"}, "token_type": {"bearer"}}.Encode())
}

func (g *GitHub) redeem(form url.Values) bool {
	c, ok := g.codes[form.Get("code")]
	delete(g.codes, form.Get("code"))
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	return ok && c.redirect == form.Get("redirect_uri") && c.challenge == base64.RawURLEncoding.EncodeToString(sum[:])
}

func (g *GitHub) startDevice(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.PostFormValue("client_id") != g.ClientID || r.PostFormValue("scope") != "read:org" {
		g.t.Error("the device request is wrong")
	}
	deviceCode, d := g.next("device"), &device{userCode: fmt.Sprintf("WXYZ-%04d", g.n)}
	g.devices[deviceCode] = d
	answer(w, http.StatusOK, map[string]any{
		"device_code": deviceCode, "user_code": d.userCode, "verification_uri": g.server.URL + "/login/device", "expires_in": 900, "interval": 5,
	})
}

// authorized checks what every request to the API must have.
func (g *GitHub) authorized(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Accept") != "application/vnd.github+json" || r.Header.Get("X-GitHub-Api-Version") == "" {
		g.t.Errorf("a request to the API has the headers %v", r.Header)
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case g.status != 0:
		answer(w, g.status, map[string]any{"message": "broken by the test"})
	case !g.tokens[token]:
		answer(w, http.StatusUnauthorized, map[string]any{"message": "Bad credentials"})
	default:
		return true
	}
	return false
}

func (g *GitHub) user(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.authorized(w, r) {
		answer(w, http.StatusOK, map[string]any{"id": g.id, "login": g.login, "name": "Ann"})
	}
}

func (g *GitHub) userTeams(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.authorized(w, r) {
		return
	}
	g.pages++
	per, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	if per < 1 || per > 100 || page < 1 {
		g.t.Errorf("the list of teams is read with %s", r.URL.RawQuery)
		return
	}
	list := []map[string]any{}
	for i := (page - 1) * per; i < len(g.teams) && i < page*per; i++ {
		org, slug, _ := strings.Cut(g.teams[i], "/")
		list = append(list, map[string]any{"slug": slug, "organization": map[string]any{"login": org}})
	}
	answer(w, http.StatusOK, list)
}
