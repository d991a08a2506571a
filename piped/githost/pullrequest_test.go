package githost

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// quick disables the pause between changes.
var quick = Options{Pause: time.Nanosecond}

// answer is a response of a fake.
type answer struct {
	status int
	body   string
}

// fake is a host that answers by method and path and records its requests.
type fake struct {
	answers map[string]answer
	got     []string // method, path with query, token, body
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	token := r.Header.Get("Authorization") + r.Header.Get("PRIVATE-TOKEN")
	f.got = append(f.got, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+token+" "+sorted(body)))
	a, ok := f.answers[r.Method]
	if !ok {
		a = answer{http.StatusNotFound, `{"message":"no such thing"}`}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

// sorted returns JSON with sorted keys.
func sorted(body []byte) string {
	var v any
	if json.Unmarshal(body, &v) != nil {
		return string(body)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

func TestOpenPullRequest(t *testing.T) {
	const page = "https://host/1"
	asked := map[config.GitHostType][]string{
		config.GitHostGitHub: {
			`POST /api/repos/team/app/pulls Bearer s3cr3t {"base":"main","body":"b","head":"image-1","title":"t"}`,
			`GET /api/repos/team/app/pulls?base=main&head=team%3Aimage-1&state=all Bearer s3cr3t`,
		},
		config.GitHostGitLab: {
			`POST /api/projects/team%2Fapp/merge_requests s3cr3t {"description":"b","remove_source_branch":true,"source_branch":"image-1","target_branch":"main","title":"t"}`,
			`GET /api/projects/team%2Fapp/merge_requests?source_branch=image-1&target_branch=main s3cr3t`,
		},
		config.GitHostGitea: {
			`POST /api/repos/team/app/pulls token s3cr3t {"base":"main","body":"b","head":"image-1","title":"t"}`,
			`GET /api/repos/team/app/pulls?state=all&sort=recentupdate&limit=50 token s3cr3t`,
		},
	}
	made := `{"html_url":"https://host/1","web_url":"https://host/1","head":{"ref":"image-1"}}`
	exists := map[config.GitHostType]int{config.GitHostGitHub: 422, config.GitHostGitLab: 409, config.GitHostGitea: 409}
	for kind, calls := range asked {
		for name, c := range map[string]struct {
			answers map[string]answer
			calls   int
			kind    deploy.Kind // kind of the error
			says    string      // "" for no error
		}{
			"opened":          {map[string]answer{"POST": {201, made}}, 1, 0, ""},
			"there already":   {map[string]answer{"POST": {exists[kind], `{"message":"exists"}`}, "GET": {200, "[" + made + "]"}}, 2, 0, ""},
			"refused":         {map[string]answer{"POST": {exists[kind], `{"message":"no commits"}`}, "GET": {200, "[]"}}, 2, deploy.Invalid, "rejects the request"},
			"wrong token":     {map[string]answer{"POST": {401, `{"message":"Bad credentials"}`}}, 1, deploy.Invalid, "does not accept the token (status 401: Bad credentials)"},
			"no repository":   {nil, 1, deploy.Invalid, "does not know the repository"},
			"down":            {map[string]answer{"POST": {502, `<html>`}}, 1, deploy.Unavailable, "status 502"},
			"another service": {map[string]answer{"POST": {200, `<html>`}}, 1, deploy.Invalid, ""},
		} {
			t.Run(string(kind)+"/"+name, func(t *testing.T) {
				f := &fake{answers: c.answers}
				s := httptest.NewServer(f)
				defer s.Close()
				api, err := NewAPI(config.GitHost{Host: "host", Type: kind, APIURL: s.URL + "/api"}, strict.NewSecret("s3cr3t"), quick)
				if err != nil {
					t.Fatal(err)
				}
				got, err := api.OpenPullRequest(t.Context(), PullRequest{Remote: "git@host:team/app.git", Head: "image-1", Base: "main", Title: "t", Body: "b"})
				if c.says == "" && name != "another service" {
					if err != nil || got != page {
						t.Errorf("got %q, %v, want %s", got, err, page)
					}
				} else if err == nil || got != "" || name != "another service" && deploy.KindOf(err) != c.kind ||
					!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "s3cr3t") {
					t.Errorf("got %q, %v (%s), want kind %s and %q", got, err, deploy.KindOf(err), c.kind, c.says)
				}
				if diff := cmp.Diff(calls[:c.calls], f.got); diff != "" {
					t.Errorf("calls (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestTokenStaysWithItsHost: the token is not sent to the target of a redirect.
func TestTokenStaysWithItsHost(t *testing.T) {
	for _, kind := range config.GitHostType("").Values() {
		other := &fake{answers: map[string]answer{"POST": {201, `{"html_url":"https://other/1","web_url":"https://other/1"}`}}}
		elsewhere := httptest.NewServer(other)
		defer elsewhere.Close()
		host := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
		defer host.Close()
		api, err := NewAPI(config.GitHost{Host: "host", Type: config.GitHostType(kind), APIURL: host.URL}, strict.NewSecret("s3cr3t"), quick)
		if err != nil {
			t.Fatal(err)
		}
		page, err := api.OpenPullRequest(t.Context(), PullRequest{Remote: "https://host/team/app", Head: "image-1", Base: "main"})
		if page != "" || !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "apiURL") || len(other.got) > 0 {
			t.Errorf("%s: got %q, %v; the other host got %q", kind, page, err, other.got)
		}
	}
}

func TestOpenPullRequestWithoutHost(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	api, err := NewAPI(config.GitHost{Host: "host", Type: config.GitHostGitLab, APIURL: s.URL}, strict.NewSecret("s"), quick)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := api.OpenPullRequest(t.Context(), PullRequest{Remote: "https://host/team/app"}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("no server: %v", err)
	}
	if _, err := api.OpenPullRequest(t.Context(), PullRequest{Remote: "/srv/git/app.git"}); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("a path: %v", err)
	}
	if _, err := NewAPI(config.GitHost{Type: "CVS"}, strict.NewSecret("s"), quick); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("another type: %v", err)
	}
}
