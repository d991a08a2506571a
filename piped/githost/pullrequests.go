package githost

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/c785c783/piped/piped/deploy"
)

// gitHubPulls opens pull requests of GitHub and GitHub Enterprise Server.
type gitHubPulls struct{ client *github.Client }

func newGitHubPulls(a restAPI) (gitHubPulls, error) {
	client := github.NewClient(a.client).WithAuthToken(a.token.Reveal())
	base, err := url.Parse(a.url + "/")
	if err != nil {
		return gitHubPulls{}, deploy.Errorf(deploy.Invalid, "apiURL: %w", err)
	}
	client.BaseURL = base
	return gitHubPulls{client}, nil
}

func (h gitHubPulls) open(ctx context.Context, path string, p PullRequest) (string, error) {
	owner, name, _ := strings.Cut(path, "/")
	pr, _, err := h.client.PullRequests.Create(ctx, owner, name, &github.NewPullRequest{Title: &p.Title, Head: &p.Head, Base: &p.Base, Body: &p.Body})
	if err == nil {
		return pr.GetHTMLURL(), nil
	}
	var refused *github.ErrorResponse
	if errors.As(err, &refused) && refused.Response.StatusCode == http.StatusUnprocessableEntity {
		list, _, listErr := h.client.PullRequests.List(ctx, owner, name, &github.PullRequestListOptions{State: "all", Head: owner + ":" + p.Head, Base: p.Base})
		if listErr == nil && len(list) > 0 {
			return list[0].GetHTMLURL(), nil
		}
	}
	return "", gitHubError(err)
}

func gitHubError(err error) error {
	var refused *github.ErrorResponse
	var limited *github.RateLimitError
	var abuse *github.AbuseRateLimitError
	switch {
	case errors.As(err, &limited), errors.As(err, &abuse):
		return deploy.Errorf(deploy.Unavailable, "the host permits no more calls for now")
	case errors.As(err, &refused):
		said := refused.Message
		for _, e := range refused.Errors {
			said += " " + cmp.Or(e.Message, e.Field+" "+e.Code)
		}
		return refusedBy(refused.Response.StatusCode, said)
	}
	return unreachable(err)
}

// gitLabPulls opens merge requests of GitLab, as documented in "Merge requests API"
// on docs.gitlab.com.
type gitLabPulls struct{ restAPI }

type gitLabMergeRequest struct {
	WebURL string `json:"web_url"`
}

func (h gitLabPulls) open(ctx context.Context, path string, p PullRequest) (string, error) {
	at := "/projects/" + url.PathEscape(path) + "/merge_requests"
	var made gitLabMergeRequest
	status, err := h.call(ctx, http.MethodPost, at, "PRIVATE-TOKEN", "", map[string]any{
		"source_branch": p.Head, "target_branch": p.Base, "title": p.Title, "description": p.Body, "remove_source_branch": true,
	}, &made, http.StatusConflict)
	if err != nil || status != http.StatusConflict {
		return made.WebURL, err
	}
	var there []gitLabMergeRequest
	query := url.Values{"source_branch": {p.Head}, "target_branch": {p.Base}}
	if _, err = h.call(ctx, http.MethodGet, at+"?"+query.Encode(), "PRIVATE-TOKEN", "", nil, &there, 0); err == nil && len(there) == 0 {
		err = refusedBy(status, "it conflicts with another merge request")
	}
	if err != nil {
		return "", err
	}
	return there[0].WebURL, nil
}

// giteaPulls opens pull requests of Gitea and Forgejo, as documented in their API
// at /api/swagger.
type giteaPulls struct{ restAPI }

type giteaPullRequest struct {
	HTMLURL string `json:"html_url"`
	Head    struct {
		Ref string `json:"ref"`
	} `json:"head"`
}

func (h giteaPulls) open(ctx context.Context, path string, p PullRequest) (string, error) {
	at := "/repos/" + path + "/pulls"
	var made giteaPullRequest
	status, err := h.call(ctx, http.MethodPost, at, "Authorization", "token ", map[string]any{
		"head": p.Head, "base": p.Base, "title": p.Title, "body": p.Body,
	}, &made, http.StatusConflict)
	if err != nil || status != http.StatusConflict {
		return made.HTMLURL, err
	}
	var there []giteaPullRequest
	if _, err := h.call(ctx, http.MethodGet, at+"?state=all&sort=recentupdate&limit=50", "Authorization", "token ", nil, &there, 0); err != nil {
		return "", err
	}
	for _, pr := range there {
		if pr.Head.Ref == p.Head {
			return pr.HTMLURL, nil
		}
	}
	return "", refusedBy(status, "there is a pull request for the branch already")
}
