package githost

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
)

// TestOpenPullRequests reads lists in the form of each host's documentation: pages, labels and forks.
func TestOpenPullRequests(t *testing.T) {
	const sha = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
	want := []OpenRequest{
		{Number: 7, Head: "more", Commit: sha, Base: "main", Labels: []string{"preview"}},
		{Number: 8, Head: "evil", Commit: sha, Base: "main", Fork: true},
	}
	gitHub := `[{"number": 7, "head": {"ref": "more", "sha": "` + sha + `", "repo": {"full_name": "team/app"}}, "base": {"ref": "main"}, "labels": [{"name": "preview"}]},
		{"number": 8, "head": {"ref": "evil", "sha": "` + sha + `", "repo": null}, "base": {"ref": "main"}, "labels": []}]`
	gitLab := `[{"iid": 7, "source_branch": "more", "sha": "` + sha + `", "target_branch": "main", "source_project_id": 3, "target_project_id": 3, "labels": ["preview"], "state": "opened"},
		{"iid": 8, "source_branch": "evil", "sha": "` + sha + `", "target_branch": "main", "source_project_id": 4, "target_project_id": 3, "state": "opened"}]`
	for kind, body := range map[config.GitHostType]string{config.GitHostGitHub: gitHub, config.GitHostGitea: gitHub, config.GitHostGitLab: gitLab} {
		t.Run(string(kind), func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if page := r.URL.Query().Get("page"); page != "" && page != "1" {
					body = "[]"
				}
				_, _ = w.Write([]byte(body))
			}))
			defer server.Close()
			api, err := NewAPI(config.GitHost{Host: "host", Type: kind, APIURL: server.URL}, strict.NewSecret("token"), quick)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				want[i].Ref = fmt.Sprintf(map[config.GitHostType]string{config.GitHostGitHub: "refs/pull/%d/head", config.GitHostGitea: "refs/pull/%d/head", config.GitHostGitLab: "refs/merge-requests/%d/head"}[kind], want[i].Number)
			}
			got, err := api.OpenPullRequests(t.Context(), "https://host/team/app.git")
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
