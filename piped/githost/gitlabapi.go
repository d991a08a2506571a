package githost

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
)

// gitLabAPI is GitLab's API, as documented in "REST API" on docs.gitlab.com. A pull
// request is a merge request there, and its number the iid.
type gitLabAPI struct{ restAPI }

type gitLabMergeRequest struct {
	WebURL       string `json:"web_url"`
	IID          int    `json:"iid"`
	State        string `json:"state"`
	SHA          string `json:"sha"`
	TargetBranch string `json:"target_branch"`
}

func (m gitLabMergeRequest) proposed() Proposed {
	return Proposed{Number: m.IID, Head: m.SHA, Base: m.TargetBranch, Open: m.State == "opened", Merged: m.State == "merged"}
}

func gitLabProject(path string) string { return "/projects/" + url.PathEscape(path) }

// open opens a merge request and returns its page, or that of an existing one for the
// same branches.
func (h gitLabAPI) open(ctx context.Context, path string, p PullRequest) (string, error) {
	at := gitLabProject(path) + "/merge_requests"
	var made gitLabMergeRequest
	status, err := h.call(ctx, http.MethodPost, at, map[string]any{
		"source_branch": p.Head, "target_branch": p.Base, "title": p.Title, "description": p.Body, "remove_source_branch": true,
	}, &made, http.StatusConflict)
	if err != nil || status != http.StatusConflict {
		return made.WebURL, err
	}
	var there []gitLabMergeRequest
	query := url.Values{"source_branch": {p.Head}, "target_branch": {p.Base}}
	if err = h.get(ctx, at+"?"+query.Encode(), &there); err == nil && len(there) == 0 {
		err = refusedBy(status, "it conflicts with another merge request")
	}
	if err != nil {
		return "", err
	}
	return there[0].WebURL, nil
}

// gitLabStates maps commit states to GitLab's.
var gitLabStates = map[State]string{
	StatePending: "pending", StateRunning: "running", StateSuccess: "success", StateFailure: "failed", StateCancelled: "canceled",
}

// gitLabDescription is the length limit of a status's description.
const gitLabDescription = 255

// setStatus sets the status of a commit. GitLab rejects a state that the context already
// has, which is no error here.
func (h gitLabAPI) setStatus(ctx context.Context, path, commit string, s Status) error {
	body := map[string]any{"state": gitLabStates[s.State], "name": s.Context, "description": cut(s.Description, gitLabDescription)}
	if s.TargetURL != "" {
		body["target_url"] = s.TargetURL
	}
	err := h.send(ctx, http.MethodPost, gitLabProject(path)+"/statuses/"+url.PathEscape(commit), body)
	if deploy.IsKind(err, deploy.Invalid) && strings.Contains(err.Error(), "Cannot transition status") {
		return nil
	}
	return err
}

func (h gitLabAPI) commit(ctx context.Context, path, name string) (string, error) {
	var found struct {
		ID string `json:"id"`
	}
	err := h.get(ctx, gitLabProject(path)+"/repository/commits/"+url.PathEscape(name), &found)
	return found.ID, err
}

func (h gitLabAPI) openPullRequests(ctx context.Context, path string, page int) (out []OpenRequest, more bool, err error) {
	var found []struct {
		gitLabMergeRequest
		SourceBranch    string   `json:"source_branch"`
		SourceProjectID int64    `json:"source_project_id"`
		TargetProjectID int64    `json:"target_project_id"`
		Labels          []string `json:"labels"`
	}
	err = h.get(ctx, fmt.Sprintf("%s/merge_requests?state=opened&per_page=%d&page=%d", gitLabProject(path), perPage, page), &found)
	for _, m := range found {
		out = append(out, OpenRequest{
			Number: m.IID, Head: m.SourceBranch, Commit: m.SHA, Base: m.TargetBranch, Labels: m.Labels,
			Fork: m.SourceProjectID != m.TargetProjectID || m.SourceProjectID == 0, Ref: fmt.Sprintf("refs/merge-requests/%d/head", m.IID),
		})
	}
	return out, len(found) == perPage, err
}

func (h gitLabAPI) pullRequest(ctx context.Context, path string, number int) (Proposed, error) {
	var found gitLabMergeRequest
	err := h.get(ctx, gitLabMergeRequestPath(path, number), &found)
	return found.proposed(), err
}

func (h gitLabAPI) pullRequestsOf(ctx context.Context, path, commit string) ([]Proposed, error) {
	var found []gitLabMergeRequest
	err := h.get(ctx, gitLabProject(path)+"/repository/commits/"+url.PathEscape(commit)+"/merge_requests", &found)
	var out []Proposed
	for _, m := range found {
		out = append(out, m.proposed())
	}
	return out, err
}

func (h gitLabAPI) account(ctx context.Context) (string, error) {
	var me struct{ Username string }
	err := h.get(ctx, "/user", &me)
	return me.Username, err
}

// comments returns a page of a merge request's notes; more is true if the page is full,
// so the next one may be empty.
func (h gitLabAPI) comments(ctx context.Context, path string, number, page int) (_ []comment, more bool, _ error) {
	var found []struct {
		ID     int64
		Body   string
		Author struct{ Username string }
	}
	err := h.get(ctx, fmt.Sprintf("%s/notes?sort=asc&per_page=%d&page=%d", gitLabMergeRequestPath(path, number), perPage, page), &found)
	var out []comment
	for _, n := range found {
		out = append(out, comment{id: n.ID, author: n.Author.Username, body: n.Body})
	}
	return out, len(found) == perPage, err
}

func (h gitLabAPI) addComment(ctx context.Context, path string, number int, body string) error {
	return h.send(ctx, http.MethodPost, gitLabMergeRequestPath(path, number)+"/notes", map[string]any{"body": body})
}

func (h gitLabAPI) editComment(ctx context.Context, path string, number int, id int64, body string) error {
	return h.send(ctx, http.MethodPut, fmt.Sprintf("%s/notes/%d", gitLabMergeRequestPath(path, number), id), map[string]any{"body": body})
}

func gitLabMergeRequestPath(path string, number int) string {
	return fmt.Sprintf("%s/merge_requests/%d", gitLabProject(path), number)
}
