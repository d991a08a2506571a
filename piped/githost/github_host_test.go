package githost

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost/githosttest"
)

const (
	remote = "git@git.example.com:shop/config.git"
	commit = "76ae82c7b1a177c8d03f9e96e0adf2466113728f"
)

// gitHubOf returns the API of a GitHub that accepts githosttest.Token.
func gitHubOf(t *testing.T, g *githosttest.GitHub) *API {
	t.Helper()
	return hostOf(t, config.GitHost{Host: "git.example.com", Type: config.GitHostGitHub, APIURL: g.URL}, githosttest.Token)
}

func hostOf(t *testing.T, c config.GitHost, credential string) *API {
	t.Helper()
	api, err := NewAPI(c, strict.NewSecret(credential), quick)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func TestGitHubStatus(t *testing.T) {
	g := githosttest.NewGitHub(t)
	api := gitHubOf(t, g)
	long := strings.Repeat("ü", 150)
	for _, s := range []Status{
		{"piped/web", StatePending, "waits", ""}, {"piped/web", StateRunning, long, ""}, {"piped/web", StateSuccess, "live:\n took 42 s", "https://shop.example.com"},
		{"piped/api", StateFailure, "no", ""}, {"piped/api", StateCancelled, "superseded", ""},
	} {
		if err := api.SetStatus(t.Context(), remote, commit, s); err != nil {
			t.Fatal(err)
		}
	}
	status := func(state, context, says, url string) githosttest.Status {
		return githosttest.Status{SHA: commit, State: state, Context: context, Description: says, TargetURL: url}
	}
	want := []githosttest.Status{
		status("pending", "piped/web", "waits", ""), status("pending", "piped/web", strings.Repeat("ü", 139)+"…", ""),
		status("success", "piped/web", "live: took 42 s", "https://shop.example.com"),
		status("failure", "piped/api", "no", ""), status("error", "piped/api", "superseded", ""),
	}
	if diff := cmp.Diff(want, g.Statuses(commit)); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
}

// TestRefusals: permanent errors are Invalid, those a user can fix Denied, and temporary
// ones Unavailable; a rate limit has a time.
func TestRefusals(t *testing.T) {
	const inTenMinutes, dayInTenMinutes = "in 10 minutes", "the day in 10 minutes" // the host replaces them when it answers
	for name, c := range map[string]struct {
		status  int
		header  map[string]string
		message string
		kind    deploy.Kind
		until   time.Duration // 0: no RetryAt
	}{
		"commit is gone":              {422, nil, "No commit found for SHA", deploy.Invalid, 0},
		"token ended":                 {401, nil, "Bad credentials", deploy.Denied, 0},
		"token may not":               {403, nil, "Resource not accessible by integration", deploy.Denied, 0},
		"no repository":               {404, nil, "Not Found", deploy.Denied, 0},
		"down":                        {502, nil, "", deploy.Unavailable, 0},
		"primary limit":               {403, map[string]string{"X-RateLimit-Limit": "5000", "X-RateLimit-Remaining": "0", "X-RateLimit-Reset": inTenMinutes}, "API rate limit exceeded", deploy.Unavailable, 10 * time.Minute},
		"primary limit as 429":        {429, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": inTenMinutes}, "API rate limit exceeded", deploy.Unavailable, 10 * time.Minute},
		"secondary limit":             {403, map[string]string{"Retry-After": "120"}, "You have exceeded a secondary rate limit", deploy.Unavailable, 2 * time.Minute},
		"secondary limit as 429":      {429, map[string]string{"Retry-After": "120"}, "slow down", deploy.Unavailable, 2 * time.Minute},
		"secondary limit, no time":    {403, nil, "You have exceeded a secondary rate limit", deploy.Unavailable, time.Minute},
		"a limit without any bounds":  {429, map[string]string{"Retry-After": "99999999"}, "slow down", deploy.Unavailable, 2 * time.Hour},
		"a limit until a certain day": {429, map[string]string{"Retry-After": dayInTenMinutes}, "slow down", deploy.Unavailable, 10 * time.Minute},
	} {
		for _, kind := range config.GitHostType("").Values() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				g := githosttest.NewGitHub(t)
				g.SetFault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
					reset := time.Now().Add(10 * time.Minute)
					times := map[string]string{inTenMinutes: strconv.FormatInt(reset.Unix(), 10), dayInTenMinutes: reset.UTC().Format(http.TimeFormat)}
					for k, v := range c.header {
						if at := times[v]; at != "" {
							v = at
						}
						w.Header().Set(k, v)
					}
					w.WriteHeader(c.status)
					fmt.Fprintf(w, `{"message": %q}`, c.message)
				})
				api := hostOf(t, config.GitHost{Host: "git.example.com", Type: config.GitHostType(kind), APIURL: g.URL}, githosttest.Token)
				asked := time.Now()
				err := api.SetStatus(t.Context(), remote, commit, Status{Context: "piped/web", State: StateSuccess})
				answered := time.Now()
				if deploy.KindOf(err) != c.kind || err == nil || strings.Contains(err.Error(), githosttest.Token) {
					t.Errorf("error %v has kind %s, want %s", err, deploy.KindOf(err), c.kind)
				}
				var limit interface{ RetryAt() time.Time }
				switch found := errors.As(err, &limit); {
				case found != (c.until != 0):
					t.Errorf("%v has a time: %t", err, found)
				case found && (limit.RetryAt().Sub(answered) > c.until || limit.RetryAt().Sub(asked) < c.until-10*time.Second):
					t.Errorf("retry in %s, want %s", limit.RetryAt().Sub(asked), c.until)
				}
			})
		}
	}
}

// TestALimitIsRespected: GitHub gets no requests until its rate limit ends.
func TestALimitIsRespected(t *testing.T) {
	g := githosttest.NewGitHub(t)
	api := gitHubOf(t, g)
	g.SetFault(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("X-RateLimit-Limit", "5000")
		w.Header().Set("X-RateLimit-Remaining", "0")
		w.Header().Set("X-RateLimit-Reset", strconv.FormatInt(time.Now().Add(time.Minute).Unix(), 10))
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"message": "API rate limit exceeded"}`)
	})
	for range 3 {
		var limit interface{ RetryAt() time.Time }
		if err := api.SetStatus(t.Context(), remote, commit, Status{State: StateSuccess}); !errors.As(err, &limit) {
			t.Fatalf("no limit: %v", err)
		}
	}
	if calls := g.Calls(); len(calls) != 1 {
		t.Errorf("asked %d times: %q", len(calls), calls)
	}
}

// TestAppTokens: a token is reused while it is valid, renewed before it expires, and
// replaced when GitHub rejects it.
func TestAppTokens(t *testing.T) {
	g, key := githosttest.NewGitHubApp(t, "shop/config")
	host := config.GitHost{Host: "git.example.com", Type: config.GitHostGitHub, APIURL: g.URL, App: &config.GitHubApp{AppID: githosttest.AppID}}
	api := hostOf(t, host, key)
	set := func() error {
		return api.SetStatus(t.Context(), remote, commit, Status{Context: "piped/web", State: StateSuccess})
	}
	must := func(tokens int) {
		t.Helper()
		if err := set(); err != nil {
			t.Fatal(err)
		}
		if got := g.Tokens(); got != tokens {
			t.Errorf("%d tokens were given, want %d", got, tokens)
		}
	}
	must(1)
	must(1)
	g.Revoke(30 * time.Second) // shorter than the remaining lifetime at which a token is renewed
	must(2)
	must(3)
	g.Revoke(time.Hour)
	must(4)
	must(4)
	if err := api.UpsertComment(t.Context(), remote, 7, "<!-- me -->", "<!-- me --> hello"); err != nil {
		t.Fatal(err)
	}
	if got := g.Comments(7); len(got) != 1 || got[0].User.Login != "piped-app[bot]" {
		t.Errorf("comments: %v", got)
	}

	if err := api.SetStatus(t.Context(), "git@git.example.com:shop/other.git", commit, Status{}); !deploy.IsKind(err, deploy.Denied) || !strings.Contains(err.Error(), "not installed for the repository") {
		t.Errorf("not installed: %v", err)
	}
	if len(g.Statuses(commit)) != 6 {
		t.Errorf("%d statuses, want 6", len(g.Statuses(commit)))
	}
	finds := 0
	for _, call := range g.Calls() {
		if call == "GET /repos/shop/config/installation" {
			finds++
		}
	}
	if finds != 1 {
		t.Errorf("the installation was looked up %d times", finds)
	}

	for name, c := range map[string]config.GitHubApp{
		"another App":          {AppID: 12},
		"another installation": {AppID: githosttest.AppID, InstallationID: 99},
	} {
		host.App = &c
		err := hostOf(t, host, key).SetStatus(t.Context(), remote, commit, Status{})
		if !deploy.IsKind(err, deploy.Denied) || strings.Contains(err.Error(), "PRIVATE KEY") {
			t.Errorf("%s: %v", name, err)
		}
	}
	host.App = &config.GitHubApp{AppID: githosttest.AppID, InstallationID: githosttest.InstallationID}
	if err := hostOf(t, host, key).SetStatus(t.Context(), remote, commit, Status{State: StateSuccess}); err != nil {
		t.Errorf("a given installation: %v", err)
	}
	if _, err := NewAPI(host, strict.NewSecret("no key"), quick); !deploy.IsKind(err, deploy.Invalid) || strings.Contains(err.Error(), "no key") {
		t.Errorf("no key: %v", err)
	}
}

// TestAnAppThatIsReinstalled is found again.
func TestAnAppThatIsReinstalled(t *testing.T) {
	g, key := githosttest.NewGitHubApp(t, "shop/config")
	api := hostOf(t, config.GitHost{Host: "git.example.com", Type: config.GitHostGitHub, APIURL: g.URL, App: &config.GitHubApp{AppID: githosttest.AppID}}, key)
	g.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/installation") {
			fmt.Fprint(w, `{"id": 1}`)
			return
		}
		next.ServeHTTP(w, r)
	})
	if err := api.SetStatus(t.Context(), remote, commit, Status{State: StateSuccess}); !deploy.IsKind(err, deploy.Denied) || !strings.Contains(err.Error(), "installation 1") {
		t.Fatalf("an installation that is gone: %v", err)
	}
	g.SetFault(nil)
	if err := api.SetStatus(t.Context(), remote, commit, Status{State: StateSuccess}); err != nil {
		t.Error(err)
	}
}

// TestAComment: a comment is created once and then edited, also if the first response was
// lost; comments of others are unchanged, with or without marker.
func TestAComment(t *testing.T) {
	g := githosttest.NewGitHub(t)
	api := gitHubOf(t, g)
	const marker = "<!-- piped -->"
	for i := range 150 { // more than one page
		g.CommentAs(7, "other-user", fmt.Sprintf("%s %d", marker, i))
	}
	if err := api.EditComment(t.Context(), remote, 7, marker, marker+" nothing to edit"); err != nil || len(g.Comments(7)) != 150 {
		t.Fatalf("%d comments, %v", len(g.Comments(7)), err)
	}
	g.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			next.ServeHTTP(discard{w.Header()}, r)
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		next.ServeHTTP(w, r)
	})
	if err := api.UpsertComment(t.Context(), remote, 7, marker, marker+" one"); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("a lost answer: %v", err)
	}
	g.SetFault(nil)
	for _, text := range []string{" one", " two", " two"} {
		if err := gitHubOf(t, g).UpsertComment(t.Context(), remote, 7, marker, marker+text); err != nil {
			t.Fatal(err)
		}
	}
	all := g.Comments(7)
	if last := all[150]; len(all) != 151 || last.Body != marker+" two" || last.Edits != 1 || last.User.Login != githosttest.Login {
		t.Errorf("%d comments, the last %+v", len(all), last)
	}
	for _, c := range all[:150] {
		if c.Edits > 0 {
			t.Errorf("the comment of another user was edited: %+v", c)
		}
	}
}

// discard drops a response.
type discard struct{ header http.Header }

func (d discard) Header() http.Header            { return d.header }
func (d discard) Write(data []byte) (int, error) { return len(data), nil }
func (d discard) WriteHeader(int)                {}

// TestDeployments: there is one deployment per ID, with its states, also after retries and
// failures.
func TestDeployments(t *testing.T) {
	g := githosttest.NewGitHub(t)
	api := gitHubOf(t, g)
	if !api.HasDeployments() {
		t.Error("GitHub has deployments")
	}
	set := func(id string, state DeploymentState, says, url string) error {
		return api.SetDeployment(t.Context(), remote, Deployed{ID: id, Commit: commit, Environment: "production/web", State: state, Description: says, URL: url})
	}
	g.SetFault(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/deployments") {
			next.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusInternalServerError)
	})
	if err := set("d1", DeploymentInProgress, "rolling out", ""); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("a failure after it is made: %v", err)
	}
	g.SetFault(nil)
	for _, c := range []struct {
		id    string
		state DeploymentState
		url   string
	}{
		{"d1", DeploymentInProgress, ""}, {"d1", DeploymentSuccess, "https://shop.example.com"},
		{"d2", DeploymentInProgress, ""}, {"d2", DeploymentFailure, ""}, {"d3", DeploymentSuccess, ""}, {"d4", DeploymentInactive, ""},
	} {
		if err := set(c.id, c.state, "says", c.url); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, d := range g.Deployments() {
		line := d.SHA[:7] + " " + d.Environment + " " + string(d.Payload)
		for _, s := range d.Statuses {
			line += " " + s.State + s.EnvironmentURL
		}
		got = append(got, line)
	}
	want := []string{
		`76ae82c production/web {"pipedDeploymentID":"d1"} in_progress successhttps://shop.example.com inactive`,
		`76ae82c production/web {"pipedDeploymentID":"d2"} in_progress failure`,
		`76ae82c production/web {"pipedDeploymentID":"d3"} success`,
		`76ae82c production/web {"pipedDeploymentID":"d4"} inactive`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("deployments (-want +got):\n%s", diff)
	}
}

func TestMergedBy(t *testing.T) {
	g := githosttest.NewGitHub(t)
	now := time.Now()
	for _, p := range []githosttest.PullRequest{
		{Number: 1, State: "closed", MergedAt: &now, Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}},
		{Number: 2, State: "closed", MergedAt: &now, Base: githosttest.Ref{Ref: "release"}, Brought: []string{commit}},
		{Number: 3, State: "closed", Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}},
		{Number: 4, State: "open", Head: githosttest.Ref{SHA: commit}, Base: githosttest.Ref{Ref: "main"}, Brought: []string{commit}},
	} {
		g.SetPull(p)
	}
	api := gitHubOf(t, g)
	got, err := api.MergedBy(t.Context(), remote, "main", commit)
	if diff := cmp.Diff([]Proposed{{Number: 1, Base: "main", Merged: true}}, got); err != nil || diff != "" {
		t.Errorf("merged: %v\n%s", err, diff)
	}
	one, err := api.PullRequest(t.Context(), remote, 4)
	if diff := cmp.Diff(Proposed{Number: 4, Head: commit, Base: "main", Open: true}, one); err != nil || diff != "" {
		t.Errorf("one: %v\n%s", err, diff)
	}
}

// TestChangesArePaced: changes are sent one at a time with a pause; reads do not wait.
func TestChangesArePaced(t *testing.T) {
	const pause = 100 * time.Millisecond
	g := githosttest.NewGitHub(t)
	api, err := NewAPI(config.GitHost{Host: "git.example.com", Type: config.GitHostGitHub, APIURL: g.URL}, strict.NewSecret(githosttest.Token), Options{Pause: pause})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	failed := make(chan error)
	for range 4 {
		go func() { failed <- api.SetStatus(t.Context(), remote, commit, Status{State: StateSuccess}) }()
	}
	if _, err := api.MergedBy(t.Context(), remote, "main", commit); err != nil {
		t.Error(err)
	}
	for range 4 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(began); took < 3*pause {
		t.Errorf("4 changes took %s, want at least %s", took, 3*pause)
	}
}
