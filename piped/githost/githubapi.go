package githost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// gitHubAPI is the API of GitHub and GitHub Enterprise Server.
type gitHubAPI struct{ clients gitHubClients }

// gitHubClients provides authenticated clients.
type gitHubClients interface {
	// of returns the client for a repository.
	of(ctx context.Context, owner, name string) (*github.Client, error)
	// account returns the account name of comments.
	account(ctx context.Context) (string, error)
	// failed reports the error of a call that concerned a repository.
	failed(owner, name string, err error)
}

func newGitHub(c config.GitHost, credential strict.Secret, client *http.Client) (gitHubAPI, error) {
	base, err := url.Parse(c.APIURL + "/")
	if err != nil {
		return gitHubAPI{}, deploy.Errorf(deploy.Invalid, "apiURL: %w", err)
	}
	if c.App != nil {
		app, err := newGitHubApp(*c.App, credential, base, client)
		return gitHubAPI{app}, err
	}
	authorized := github.NewClient(client).WithAuthToken(credential.Reveal())
	authorized.BaseURL = base
	return gitHubAPI{gitHubToken{authorized}}, nil
}

// gitHubToken uses one token for every repository.
type gitHubToken struct{ client *github.Client }

func (t gitHubToken) of(context.Context, string, string) (*github.Client, error) {
	return t.client, nil
}

func (t gitHubToken) account(ctx context.Context) (string, error) {
	me, _, err := t.client.Users.Get(ctx, "")
	return me.GetLogin(), err
}

func (gitHubToken) failed(string, string, error) {}

// call calls do with the client for the repository at path. The timeout is on the context
// and not on the client: go-github does not close error responses, and a client timeout
// would wait for that.
func (h gitHubAPI) call(ctx context.Context, path string, do func(ctx context.Context, c *github.Client, owner, name string) error) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	owner, name, _ := strings.Cut(path, "/")
	client, err := h.clients.of(ctx, owner, name)
	if err == nil {
		if err = do(ctx, client, owner, name); err != nil {
			h.clients.failed(owner, name, err)
		}
	}
	return gitHubError(err)
}

// open opens a pull request and returns its page. If GitHub refuses to, it returns the
// page of an earlier one for the same branches, open or closed, if there is one.
func (h gitHubAPI) open(ctx context.Context, path string, p PullRequest) (page string, err error) {
	err = h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		pr, _, err := c.PullRequests.Create(ctx, owner, name, &github.NewPullRequest{Title: &p.Title, Head: &p.Head, Base: &p.Base, Body: &p.Body})
		page = pr.GetHTMLURL()
		var refused *github.ErrorResponse
		if !errors.As(err, &refused) || refused.Response.StatusCode != http.StatusUnprocessableEntity {
			return err
		}
		list, _, listErr := c.PullRequests.List(ctx, owner, name, &github.PullRequestListOptions{State: "all", Head: owner + ":" + p.Head, Base: p.Base})
		if listErr != nil || len(list) == 0 {
			return err
		}
		page = list[0].GetHTMLURL()
		return nil
	})
	return page, err
}

// gitHubStates maps commit states to GitHub's; error stands for a commit that has neither
// failed nor succeeded.
var gitHubStates = map[State]string{
	StatePending: "pending", StateRunning: "pending", StateSuccess: "success", StateFailure: "failure", StateCancelled: "error",
}

// gitHubDescription is the length limit of descriptions of statuses and deployments.
const gitHubDescription = 140

func (h gitHubAPI) setStatus(ctx context.Context, path, commit string, s Status) error {
	return h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		_, _, err := c.Repositories.CreateStatus(ctx, owner, name, commit, &github.RepoStatus{
			State: github.String(gitHubStates[s.State]), Context: &s.Context, Description: github.String(cut(s.Description, gitHubDescription)), TargetURL: optional(s.TargetURL),
		})
		return err
	})
}

func (h gitHubAPI) commit(ctx context.Context, path, name string) (hash string, err error) {
	err = h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, repo string) error {
		hash, _, err = c.Repositories.GetCommitSHA1(ctx, owner, repo, name, "")
		return err
	})
	return hash, err
}

// optional returns nil for "", which GitHub would take as a URL.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func gitHubProposed(p *github.PullRequest) Proposed {
	return Proposed{
		Number: p.GetNumber(), Head: p.GetHead().GetSHA(), Base: p.GetBase().GetRef(), Open: p.GetState() == "open", Merged: p.MergedAt != nil,
	}
}

func (h gitHubAPI) openPullRequests(ctx context.Context, path string, page int) (out []OpenRequest, more bool, err error) {
	err = h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		found, answer, err := c.PullRequests.List(ctx, owner, name, &github.PullRequestListOptions{State: "open", ListOptions: github.ListOptions{Page: page, PerPage: perPage}})
		for _, p := range found {
			r := OpenRequest{
				Number: p.GetNumber(), Head: p.GetHead().GetRef(), Commit: p.GetHead().GetSHA(), Base: p.GetBase().GetRef(),
				Fork: !strings.EqualFold(p.GetHead().GetRepo().GetFullName(), path), Ref: fmt.Sprintf("refs/pull/%d/head", p.GetNumber()),
			}
			for _, l := range p.Labels {
				r.Labels = append(r.Labels, l.GetName())
			}
			out = append(out, r)
		}
		more = err == nil && answer.NextPage > page
		return err
	})
	return out, more, err
}

func (h gitHubAPI) pullRequest(ctx context.Context, path string, number int) (out Proposed, err error) {
	err = h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		found, _, err := c.PullRequests.Get(ctx, owner, name, number)
		if err == nil {
			out = gitHubProposed(found)
		}
		return err
	})
	return out, err
}

// pullRequestsOf returns the pull requests, open or not, that contain the commit; path is the
// owner and name of the repository.
func (h gitHubAPI) pullRequestsOf(ctx context.Context, path, commit string) (out []Proposed, err error) {
	err = h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		found, _, err := c.PullRequests.ListPullRequestsWithCommit(ctx, owner, name, commit, &github.ListOptions{PerPage: perPage})
		for _, p := range found {
			out = append(out, gitHubProposed(p))
		}
		return err
	})
	return out, err
}

func (h gitHubAPI) account(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	name, err := h.clients.account(ctx)
	return name, gitHubError(err)
}

func (h gitHubAPI) comments(ctx context.Context, path string, number, page int) (out []comment, more bool, err error) {
	err = h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		found, answer, err := c.Issues.ListComments(ctx, owner, name, number, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{Page: page, PerPage: perPage}})
		for _, f := range found {
			out = append(out, comment{id: f.GetID(), author: f.GetUser().GetLogin(), body: f.GetBody()})
		}
		more = err == nil && answer.NextPage > page
		return err
	})
	return out, more, err
}

func (h gitHubAPI) addComment(ctx context.Context, path string, number int, body string) error {
	return h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		_, _, err := c.Issues.CreateComment(ctx, owner, name, number, &github.IssueComment{Body: &body})
		return err
	})
}

// editComment replaces the text of a comment. GitHub needs no pull request number to
// find it.
func (h gitHubAPI) editComment(ctx context.Context, path string, _ int, id int64, body string) error {
	return h.call(ctx, path, func(ctx context.Context, c *github.Client, owner, name string) error {
		_, _, err := c.Issues.EditComment(ctx, owner, name, id, &github.IssueComment{Body: &body})
		return err
	})
}

// gitHubError converts an error of go-github.
func gitHubError(err error) error {
	var known *deploy.Error
	var refused *github.ErrorResponse
	var exhausted *github.RateLimitError
	var secondary *github.AbuseRateLimitError
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.As(err, &exhausted):
		return limitedUntil(exhausted.Rate.Reset.Time)
	case errors.As(err, &secondary):
		return limitedFor(secondary.RetryAfter)
	case errors.As(err, &refused):
		said := refused.Message
		for _, e := range refused.Errors {
			said += " " + cmp.Or(e.Message, e.Field+" "+e.Code)
		}
		if err := limitedBy(refused.Response.StatusCode, refused.Response.Header, said); err != nil {
			return err
		}
		return refusedBy(refused.Response.StatusCode, said)
	}
	return unreachable(err)
}
