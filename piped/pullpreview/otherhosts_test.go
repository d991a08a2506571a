package pullpreview

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/git/gittest"
	"github.com/c785c783/piped/piped/githost"
)

// otherHost speaks the parts of the API of GitLab or Gitea that previews use, as their
// documentation has them.
type otherHost struct {
	t    *testing.T
	kind config.GitHostType

	mu       sync.Mutex
	number   int // of the only pull request
	head     string
	open     bool
	label    string
	comments []string
	statuses []string // "COMMIT CONTEXT STATE"
}

func (h *otherHost) set(head string, open bool, label string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.head, h.open, h.label = head, open, label
}

// ServeHTTP implements http.Handler.
func (h *otherHost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var body struct{ Body, Context, Name, State string }
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			h.t.Error(err)
		}
	}
	requests, notes := "/repos/shop/config/pulls", "/repos/shop/config/issues/"
	comments, edited := fmt.Sprintf("%s%d/comments", notes, h.number), notes+"comments/"
	statuses := "/repos/shop/config/statuses/"
	if h.kind == config.GitHostGitLab {
		requests = "/projects/shop%2Fconfig/merge_requests"
		comments = fmt.Sprintf("%s/%d/notes", requests, h.number)
		edited, statuses = comments+"/", "/projects/shop%2Fconfig/statuses/"
	}
	path := r.URL.EscapedPath()
	switch {
	case path == "/user":
		h.answer(w, map[string]any{"login": "robot", "username": "robot"})
	case path == requests:
		list := []any{}
		if page := r.URL.Query().Get("page"); h.open && (page == "" || page == "1") {
			list = append(list, h.request())
		}
		h.answer(w, list)
	case path == fmt.Sprintf("%s/%d", requests, h.number):
		h.answer(w, h.request())
	case path == comments && r.Method == http.MethodGet:
		list := []any{}
		if page := r.URL.Query().Get("page"); page == "" || page == "1" {
			for i, c := range h.comments {
				list = append(list, map[string]any{"id": i + 1, "body": c, "author": map[string]any{"username": "robot"}, "user": map[string]any{"login": "robot"}})
			}
		}
		h.answer(w, list)
	case path == comments:
		h.comments = append(h.comments, body.Body)
		w.WriteHeader(http.StatusCreated)
		h.answer(w, map[string]any{"id": len(h.comments)})
	case strings.HasPrefix(path, edited):
		var id int
		if _, err := fmt.Sscan(strings.TrimPrefix(path, edited), &id); err != nil || id < 1 || id > len(h.comments) {
			http.NotFound(w, r)
			return
		}
		h.comments[id-1] = body.Body
		h.answer(w, map[string]any{"id": id})
	case strings.HasPrefix(path, statuses) && r.Method == http.MethodPost:
		h.statuses = append(h.statuses, strings.TrimPrefix(path, statuses)+" "+body.Context+body.Name+" "+body.State)
		w.WriteHeader(http.StatusCreated)
		h.answer(w, map[string]any{})
	default:
		h.t.Errorf("%s %s is not in the API of the test", r.Method, path)
		http.NotFound(w, r)
	}
}

// request returns the pull request as the host's API describes it.
func (h *otherHost) request() map[string]any {
	labels := []any{}
	state := map[bool]string{true: "open", false: "closed"}[h.open]
	if h.kind == config.GitHostGitLab {
		if h.label != "" {
			labels = append(labels, h.label)
		}
		return map[string]any{
			"iid": h.number, "state": map[bool]string{true: "opened", false: "closed"}[h.open], "source_branch": "pr-7", "target_branch": gittest.Branch, "sha": h.head,
			"source_project_id": 3, "target_project_id": 3, "labels": labels,
		}
	}
	if h.label != "" {
		labels = append(labels, map[string]any{"name": h.label})
	}
	return map[string]any{
		"number": h.number, "state": state, "labels": labels, "base": map[string]any{"ref": gittest.Branch},
		"head": map[string]any{"ref": "pr-7", "sha": h.head, "repo": map[string]any{"full_name": "shop/config"}},
	}
}

func (h *otherHost) answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		h.t.Error(err)
	}
}

// TestOtherHosts: on GitLab and Gitea, a pull request has one comment, which is edited, and a commit
// status, from its begin over a failure to its end.
func TestOtherHosts(t *testing.T) {
	for kind, failure := range map[config.GitHostType]string{config.GitHostGitLab: "failed", config.GitHostGitea: "failure"} {
		t.Run(string(kind), func(t *testing.T) {
			h := &otherHost{t: t, kind: kind, number: 7}
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			api, err := githost.NewAPI(config.GitHost{Host: "git.example.com", Type: kind, APIURL: server.URL}, strict.NewSecret("token"), githost.Options{})
			if err != nil {
				t.Fatal(err)
			}
			e := newEnv(t)
			e.host, e.remote = api, "https://git.example.com/shop/config.git"
			e.app("web", "{label: preview, host: 'pr-{{ .PullRequest.Number }}.example.com'}")
			expect := func(what, comment, state string) {
				t.Helper()
				e.pass()
				h.mu.Lock()
				defer h.mu.Unlock()
				if comment == "" {
					if len(h.comments)+len(h.statuses) > 0 {
						t.Errorf("%s: %q, %q", what, h.comments, h.statuses)
					}
					return
				}
				if len(h.comments) != 1 || !strings.Contains(h.comments[0], "### Preview: "+comment+"\n") {
					t.Errorf("%s: the comments are %q", what, h.comments)
				}
				if want := h.head + " piped/preview " + state; len(h.statuses) == 0 || h.statuses[len(h.statuses)-1] != want {
					t.Errorf("%s: the statuses are %q, want %q as the last", what, h.statuses, want)
				}
				if linked := strings.Contains(h.comments[0], "https://pr-7.example.com"); linked != (comment == "ready") {
					t.Errorf("%s: linked is %v: %s", what, linked, h.comments[0])
				}
			}
			push := func(files map[string]string, open bool, label string) {
				h.set(e.upstream.PushOn(t, "pr-7", "change", files), open, label)
			}
			push(map[string]string{"web/version": "2"}, true, "")
			expect("without the label", "", "")
			h.set(h.head, true, "preview")
			expect("with the label", "ready", "success")
			push(map[string]string{"web/app.pipecd.yaml": "kind: ["}, true, "preview")
			expect("a bad configuration", "failed", failure)
			push(map[string]string{"web/app.pipecd.yaml": "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  preview: {label: preview, host: 'pr-{{ .PullRequest.Number }}.example.com'}\n", "web/version": "3"}, true, "preview")
			expect("corrected", "ready", "success")
			h.set(h.head, false, "preview")
			expect("closed", "removed", "success")
			e.want("closed", "", "", 0)
		})
	}
}
