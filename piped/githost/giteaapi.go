package githost

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// giteaAPI is the API of Gitea and Forgejo, as documented at /api/swagger of each.
type giteaAPI struct{ restAPI }

type giteaPullRequest struct {
	HTMLURL string `json:"html_url"`
	Number  int    `json:"number"`
	State   string `json:"state"`
	Merged  bool   `json:"merged"`
	Head    struct {
		Ref string `json:"ref"`
		SHA string `json:"sha"`
	} `json:"head"`
	Base struct {
		Ref string `json:"ref"`
	} `json:"base"`
}

func (p giteaPullRequest) proposed() Proposed {
	return Proposed{Number: p.Number, Head: p.Head.SHA, Base: p.Base.Ref, Open: p.State == "open", Merged: p.Merged}
}

func giteaRepository(path string) string { return "/repos/" + path }

func (h giteaAPI) open(ctx context.Context, path string, p PullRequest) (string, error) {
	at := giteaRepository(path) + "/pulls"
	var made giteaPullRequest
	status, err := h.call(ctx, http.MethodPost, at, map[string]any{
		"head": p.Head, "base": p.Base, "title": p.Title, "body": p.Body,
	}, &made, http.StatusConflict)
	if err != nil || status != http.StatusConflict {
		return made.HTMLURL, err
	}
	var there []giteaPullRequest
	if err := h.get(ctx, at+"?state=all&sort=recentupdate&limit=50", &there); err != nil {
		return "", err
	}
	for _, pr := range there {
		if pr.Head.Ref == p.Head {
			return pr.HTMLURL, nil
		}
	}
	return "", refusedBy(status, "the branch already has a pull request")
}

// giteaStates maps commit states to Gitea's. There is no state for cancelled; a warning
// does not block merging.
var giteaStates = map[State]string{
	StatePending: "pending", StateRunning: "pending", StateSuccess: "success", StateFailure: "failure", StateCancelled: "warning",
}

// giteaDescription is the length of a description that fits on its pages.
const giteaDescription = 255

func (h giteaAPI) setStatus(ctx context.Context, path, commit string, s Status) error {
	return h.send(ctx, http.MethodPost, giteaRepository(path)+"/statuses/"+url.PathEscape(commit), map[string]any{
		"state": giteaStates[s.State], "context": s.Context, "description": cut(s.Description, giteaDescription), "target_url": s.TargetURL,
	})
}

func (h giteaAPI) commit(ctx context.Context, path, name string) (string, error) {
	var found struct {
		SHA string `json:"sha"`
	}
	err := h.get(ctx, giteaRepository(path)+"/git/commits/"+url.PathEscape(name), &found)
	return found.SHA, err
}

// openPullRequests reads a page, whose size the host may limit: more is true until one is empty.
func (h giteaAPI) openPullRequests(ctx context.Context, path string, page int) (out []OpenRequest, more bool, err error) {
	type repository struct {
		FullName string `json:"full_name"`
	}
	var found []struct {
		Number int `json:"number"`
		Head   struct {
			Ref  string      `json:"ref"`
			SHA  string      `json:"sha"`
			Repo *repository `json:"repo"`
		} `json:"head"`
		Base struct {
			Ref string `json:"ref"`
		} `json:"base"`
		Labels []struct {
			Name string `json:"name"`
		} `json:"labels"`
	}
	err = h.get(ctx, fmt.Sprintf("%s/pulls?state=open&limit=%d&page=%d", giteaRepository(path), perPage, page), &found)
	for _, p := range found {
		r := OpenRequest{
			Number: p.Number, Head: p.Head.Ref, Commit: p.Head.SHA, Base: p.Base.Ref,
			Fork: p.Head.Repo == nil || !strings.EqualFold(p.Head.Repo.FullName, path), Ref: fmt.Sprintf("refs/pull/%d/head", p.Number),
		}
		for _, l := range p.Labels {
			r.Labels = append(r.Labels, l.Name)
		}
		out = append(out, r)
	}
	return out, len(found) > 0, err
}

func (h giteaAPI) pullRequest(ctx context.Context, path string, number int) (Proposed, error) {
	var found giteaPullRequest
	err := h.get(ctx, fmt.Sprintf("%s/pulls/%d", giteaRepository(path), number), &found)
	return found.proposed(), err
}

// pullRequestsOf returns the pull request that was merged as a commit. The API does not
// distinguish a missing pull request from a missing repository.
func (h giteaAPI) pullRequestsOf(ctx context.Context, path, commit string) ([]Proposed, error) {
	var found giteaPullRequest
	status, err := h.call(ctx, http.MethodGet, giteaRepository(path)+"/commits/"+url.PathEscape(commit)+"/pull", nil, &found, http.StatusNotFound)
	if err != nil || status == http.StatusNotFound {
		return nil, err
	}
	return []Proposed{found.proposed()}, nil
}

func (h giteaAPI) account(ctx context.Context) (string, error) {
	var me struct{ Login string }
	err := h.get(ctx, "/user", &me)
	return me.Login, err
}

// comments returns all comments; the API does not paginate them.
func (h giteaAPI) comments(ctx context.Context, path string, number, _ int) ([]comment, bool, error) {
	var found []struct {
		ID   int64
		Body string
		User struct{ Login string }
	}
	err := h.get(ctx, fmt.Sprintf("%s/issues/%d/comments", giteaRepository(path), number), &found)
	var out []comment
	for _, c := range found {
		out = append(out, comment{id: c.ID, author: c.User.Login, body: c.Body})
	}
	return out, false, err
}

func (h giteaAPI) addComment(ctx context.Context, path string, number int, body string) error {
	return h.send(ctx, http.MethodPost, fmt.Sprintf("%s/issues/%d/comments", giteaRepository(path), number), map[string]any{"body": body})
}

func (h giteaAPI) editComment(ctx context.Context, path string, _ int, id int64, body string) error {
	return h.send(ctx, http.MethodPatch, fmt.Sprintf("%s/issues/comments/%d", giteaRepository(path), id), map[string]any{"body": body})
}
