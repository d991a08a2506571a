package app

import (
	"context"
	"reflect"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/notify"
	hostnotify "github.com/c785c783/piped/piped/notify/githost"
	"github.com/c785c783/piped/piped/store"
)

// gitHost is a configured Git host with its token, or the private key of its App.
type gitHost struct {
	config     config.GitHost
	credential strict.Secret
	api        *githost.API
}

// planGitHost reads the credential of a configured Git host.
func planGitHost(c config.GitHost) (h gitHost, err error) {
	h.config = c
	if h.credential, err = c.Load(); err == nil {
		h.api, err = githost.NewAPI(c, h.credential, githost.Options{})
	}
	return h, err
}

func (h gitHost) same(o gitHost) bool {
	return reflect.DeepEqual(h.open(), o.open()) && h.credential.Equal(o.credential)
}

// open returns the configuration without secrets, which need their own comparison.
func (h gitHost) open() config.GitHost {
	out := h.config
	if out.Token = (strict.Secret{}); out.App != nil {
		app := *out.App
		app.PrivateKey, out.App = strict.Secret{}, &app
	}
	return out
}

// gitHostReceivers returns receivers that report deployments to the present Git hosts. agent
// marks the comments of this agent.
func (l *live) gitHostReceivers(st *store.Store, agent string) []notify.Receiver {
	var out []notify.Receiver
	for _, h := range l.events.Load().hosts {
		out = append(out, hostnotify.Receivers(hostnotify.Config{Host: h.config, API: h.api, Store: st, Remote: l.remoteOf, Page: l.page, Agent: agent})...)
	}
	return out
}

// remoteOf returns the remote of a watched repository, "" for any other.
func (l *live) remoteOf(repoID string) string {
	watched, _ := l.repositories.watchable()
	for _, r := range watched {
		if r.Config.RepoID == repoID {
			return r.Config.Remote
		}
	}
	return ""
}

// maxProposals bounds the pull requests that wait for a preview.
const maxProposals = 100

// proposals requests previews of the pull requests in webhooks.
type proposals struct {
	live  *live
	store *store.Store
	newID func() string
	wake  func() // lists open pull requests
}

// preview requests the preview of a pull request, unless that is open already, if comments are
// enabled for its host. The result is reported in a comment.
func (p proposals) preview(ctx context.Context, repoID string, of githost.Proposal) error {
	p.wake()
	host := p.live.events.Load().host(p.live.remoteOf(repoID))
	if host == nil || !host.config.Comments {
		return nil
	}
	record, err := p.store.Agent(ctx)
	if err != nil || record.Disabled {
		return err
	}
	open, err := p.store.OpenCommands(ctx, deploy.CommandBuildPlanPreview)
	if err != nil {
		return err
	}
	asked := deploy.PlanPreviewRequest{RepoID: repoID, HeadBranch: of.Head, HeadCommit: of.Commit, BaseBranch: of.Base, PullRequest: of.Number}
	waiting := 0
	for _, c := range open {
		switch {
		case c.PlanPreview == nil || c.PlanPreview.PullRequest == 0:
		case *c.PlanPreview == asked:
			return nil
		default:
			waiting++
		}
	}
	if waiting >= maxProposals {
		return deploy.Errorf(deploy.Unavailable, "%d pull requests wait for their preview already", waiting)
	}
	const commander = "pull request" // as an account, that of no caller
	_, err = p.store.CreateCommand(ctx, deploy.Command{ID: p.newID(), Type: deploy.CommandBuildPlanPreview, Commander: commander, Account: commander, PlanPreview: &asked})
	return err
}
