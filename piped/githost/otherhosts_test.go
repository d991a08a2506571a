package githost

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// otherHost returns the API of a fake GitLab or Gitea that answers by method.
func otherHost(t *testing.T, kind config.GitHostType, answers map[string]answer) (*API, *fake) {
	t.Helper()
	f := &fake{answers: answers}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return hostOf(t, config.GitHost{Host: "git.example.com", Type: kind, APIURL: s.URL + "/api"}, "s3cr3t"), f
}

func TestStatusElsewhere(t *testing.T) {
	for kind, want := range map[config.GitHostType][]string{
		config.GitHostGitLab: {
			`POST /api/projects/shop%2Fconfig/statuses/` + commit + ` s3cr3t {"description":"says","name":"piped/web","state":"pending"}`,
			`POST /api/projects/shop%2Fconfig/statuses/` + commit + ` s3cr3t {"description":"says","name":"piped/web","state":"running"}`,
			`POST /api/projects/shop%2Fconfig/statuses/` + commit + ` s3cr3t {"description":"says","name":"piped/web","state":"success","target_url":"https://shop.example.com"}`,
			`POST /api/projects/shop%2Fconfig/statuses/` + commit + ` s3cr3t {"description":"says","name":"piped/web","state":"failed"}`,
			`POST /api/projects/shop%2Fconfig/statuses/` + commit + ` s3cr3t {"description":"says","name":"piped/web","state":"canceled"}`,
		},
		config.GitHostGitea: {
			`POST /api/repos/shop/config/statuses/` + commit + ` token s3cr3t {"context":"piped/web","description":"says","state":"pending","target_url":""}`,
			`POST /api/repos/shop/config/statuses/` + commit + ` token s3cr3t {"context":"piped/web","description":"says","state":"pending","target_url":""}`,
			`POST /api/repos/shop/config/statuses/` + commit + ` token s3cr3t {"context":"piped/web","description":"says","state":"success","target_url":"https://shop.example.com"}`,
			`POST /api/repos/shop/config/statuses/` + commit + ` token s3cr3t {"context":"piped/web","description":"says","state":"failure","target_url":""}`,
			`POST /api/repos/shop/config/statuses/` + commit + ` token s3cr3t {"context":"piped/web","description":"says","state":"warning","target_url":""}`,
		},
	} {
		api, f := otherHost(t, kind, map[string]answer{"POST": {201, `{}`}})
		for _, state := range []State{StatePending, StateRunning, StateSuccess, StateFailure, StateCancelled} {
			s := Status{Context: "piped/web", State: state, Description: "says"}
			if state == StateSuccess {
				s.TargetURL = "https://shop.example.com"
			}
			if err := api.SetStatus(t.Context(), remote, commit, s); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, f.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		if err := api.SetDeployment(t.Context(), remote, Deployed{}); api.HasDeployments() || !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("%s has deployments: %v", kind, err)
		}
	}
}

// TestGitLabStateIsSetTwice: GitLab rejects the second time, which is no error.
func TestGitLabStateIsSetTwice(t *testing.T) {
	api, _ := otherHost(t, config.GitHostGitLab, map[string]answer{"POST": {400, `{"message":"Cannot transition status via :enqueue from :pending (Reason(s): Status cannot transition via \"enqueue\")"}`}})
	if err := api.SetStatus(t.Context(), remote, commit, Status{State: StatePending}); err != nil {
		t.Error(err)
	}
	api, _ = otherHost(t, config.GitHostGitLab, map[string]answer{"POST": {400, `{"message":"name is too long"}`}})
	if err := api.SetStatus(t.Context(), remote, commit, Status{State: StatePending}); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("another refusal: %v", err)
	}
}

// TestMaintenance: a page instead of JSON is a temporary error.
func TestMaintenance(t *testing.T) {
	for _, kind := range []config.GitHostType{config.GitHostGitLab, config.GitHostGitea} {
		api, _ := otherHost(t, kind, map[string]answer{"POST": {200, "<html>We are back soon</html>"}})
		if err := api.SetStatus(t.Context(), remote, commit, Status{State: StatePending}); !deploy.IsKind(err, deploy.Unavailable) {
			t.Errorf("%s: %v of kind %s", kind, err, deploy.KindOf(err))
		}
	}
}

// TestCommentsElsewhere: on GitLab and Gitea the caller's comment is edited, and the pull
// request of a commit is found.
func TestCommentsElsewhere(t *testing.T) {
	const marker = "<!-- piped -->"
	for kind, want := range map[config.GitHostType]string{
		config.GitHostGitLab: "PUT /projects/shop%2Fconfig/merge_requests/7/notes/2 " + `{"body":"` + `\u003c!-- piped --\u003e new"}`,
		config.GitHostGitea:  "PATCH /repos/shop/config/issues/comments/2 " + `{"body":"` + `\u003c!-- piped --\u003e new"}`,
	} {
		var written []string
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body := make([]byte, 1000)
			n, _ := r.Body.Read(body)
			path := r.URL.EscapedPath()
			switch {
			case r.Method != http.MethodGet:
				written = append(written, r.Method+" "+path+" "+string(body[:n]))
				_, _ = w.Write([]byte(`{}`))
			case path == "/user":
				_, _ = w.Write([]byte(`{"login":"robot","username":"robot"}`))
			case strings.HasSuffix(path, "/notes"), strings.HasSuffix(path, "/comments"):
				_, _ = w.Write([]byte(`[{"id":1,"body":"` + marker + `","author":{"username":"ann"},"user":{"login":"ann"}},
					{"id":2,"body":"` + marker + ` old","author":{"username":"robot"},"user":{"login":"robot"}}]`))
			case strings.HasSuffix(path, "/commits/"+commit+"/merge_requests"):
				_, _ = w.Write([]byte(`[{"iid":7,"state":"merged","target_branch":"main","sha":"abc"},{"iid":8,"state":"opened","target_branch":"main"}]`))
			case strings.HasSuffix(path, "/commits/"+commit+"/pull"), strings.HasSuffix(path, "/pulls/7"):
				_, _ = w.Write([]byte(`{"number":7,"state":"closed","merged":true,"head":{"sha":"abc"},"base":{"ref":"main"}}`))
			case strings.HasSuffix(path, "/merge_requests/7"):
				_, _ = w.Write([]byte(`{"iid":7,"state":"merged","target_branch":"main","sha":"abc"}`))
			default:
				http.NotFound(w, r)
			}
		}))
		defer s.Close()
		api := hostOf(t, config.GitHost{Host: "git.example.com", Type: kind, APIURL: s.URL}, "s3cr3t")
		if err := api.UpsertComment(t.Context(), remote, 7, marker, marker+" new"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want}, written); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
		merged := Proposed{Number: 7, Head: "abc", Base: "main", Merged: true}
		if got, err := api.MergedBy(t.Context(), remote, "main", commit); err != nil || !cmp.Equal(got, []Proposed{merged}) {
			t.Errorf("%s: merged %v, %v", kind, got, err)
		}
		if got, err := api.PullRequest(t.Context(), remote, 7); err != nil || got != merged {
			t.Errorf("%s: pull request %v, %v", kind, got, err)
		}
		if kind == config.GitHostGitea { // which answers 404 if there is none
			if got, err := api.MergedBy(t.Context(), remote, "main", "abc"); err != nil || got != nil {
				t.Errorf("no pull request: %v, %v", got, err)
			}
		}
	}
}
