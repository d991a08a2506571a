package githosttest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v4"
)

// ID and installation of the App that a GitHub of NewGitHubApp accepts.
const (
	AppID          = 4711
	InstallationID = 815
	appSlug        = "piped-app"
)

// app is a GitHub App: it issues tokens to holders of its private key.
type app struct {
	public    *rsa.PublicKey
	installed string // the repository, owner/name

	mu     sync.Mutex
	life   time.Duration // lifetime of tokens
	tokens map[string]time.Time
	given  int
}

// NewGitHubApp starts a GitHub that accepts only the App AppID, installed for one
// repository, owner/name. It also returns the App's private key.
func NewGitHubApp(t testing.TB, repository string) (g *GitHub, privateKey string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	g = &GitHub{app: &app{public: &key.PublicKey, installed: repository, life: time.Hour, tokens: map[string]time.Time{}}}
	g.serve()
	t.Cleanup(g.Close)
	return g, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// Tokens returns the number of issued tokens.
func (g *GitHub) Tokens() int {
	g.app.mu.Lock()
	defer g.app.mu.Unlock()
	return g.app.given
}

// Revoke revokes all tokens and sets the lifetime of new ones.
func (g *GitHub) Revoke(life time.Duration) {
	g.app.mu.Lock()
	defer g.app.mu.Unlock()
	g.app.life = life
	clear(g.app.tokens)
}

func (a *app) serve(mux *http.ServeMux) {
	mux.Handle("GET /app", a.signed(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"id": AppID, "slug": appSlug})
	}))
	mux.Handle("GET /repos/{owner}/{repo}/installation", a.signed(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("owner")+"/"+r.PathValue("repo") != a.installed {
			notFound(w)
			return
		}
		answer(w, http.StatusOK, map[string]any{"id": InstallationID})
	}))
	mux.Handle("POST /app/installations/{id}/access_tokens", a.signed(func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != strconv.Itoa(InstallationID) {
			notFound(w)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.given++
		token, end := fmt.Sprintf("ghs_%d", a.given), time.Now().Add(a.life)
		a.tokens[token] = end
		answer(w, http.StatusCreated, map[string]any{"token": token, "expires_at": end})
	}))
}

// signed requires a JWT signed with the App's key, as GitHub does: RS256, issued by the
// App, valid for at most ten minutes.
func (a *app) signed(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		var claims jwt.RegisteredClaims
		_, err := jwt.ParseWithClaims(text, &claims, func(*jwt.Token) (any, error) { return a.public, nil }, jwt.WithValidMethods([]string{"RS256"}))
		if err != nil || claims.Issuer != strconv.Itoa(AppID) || claims.ExpiresAt == nil || time.Until(claims.ExpiresAt.Time) > 10*time.Minute {
			answer(w, http.StatusUnauthorized, map[string]string{"message": "A JSON web token could not be decoded"})
			return
		}
		next(w, r)
	})
}

// accepts reports whether a token was issued and is valid.
func (a *app) accepts(header string) bool {
	token, _ := strings.CutPrefix(header, "token ")
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.tokens[token])
}
