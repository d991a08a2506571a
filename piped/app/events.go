package app

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/event"
	"github.com/c785c783/piped/piped/githost"
)

// events are the settings for writing events into Git. They are immutable.
type events struct {
	watcher       config.EventWatcher
	author, email string
	hosts         []gitHost
}

// planEvents reads the tokens of the configured Git hosts.
func planEvents(cfg *config.Piped) (*events, error) {
	e := &events{watcher: cfg.EventWatcher, author: cfg.Git.Username, email: cfg.Git.Email}
	var errs []error
	for _, c := range cfg.GitHosts {
		h, err := planGitHost(c)
		errs = append(errs, err)
		e.hosts = append(e.hosts, h)
	}
	return e, errors.Join(errs...)
}

func (e *events) sameAuthor(o *events) bool { return e.author == o.author && e.email == o.email }

func (e *events) sameRules(o *events) bool {
	return reflect.DeepEqual(e.watcher, o.watcher) && slices.EqualFunc(e.hosts, o.hosts, gitHost.same)
}

// eventSettings returns the present settings of the event watcher.
func (l *live) eventSettings() event.Settings {
	e := l.events.Load()
	out := event.Settings{Author: e.author, Email: e.email}
	watched, _ := l.repositories.watchable()
	for _, r := range watched {
		repo := event.Repository{ID: r.Config.RepoID, Branch: r.Config.Branch, Git: r.Git, Files: e.watcher.Of(r.Config.RepoID)}
		if host := e.host(r.Config.Remote); host != nil {
			repo.PullRequests = pullRequests{host.api, r.Config.Remote, l.repositories.permit}
		}
		out.Repositories = append(out.Repositories, repo)
	}
	return out
}

// host returns the configuration of a remote's host, nil if there is none.
func (e *events) host(remote string) *gitHost {
	for i := range e.hosts {
		if e.hosts[i].api.Serves(remote) {
			return &e.hosts[i]
		}
	}
	return nil
}

// pullRequests opens pull requests of one repository.
type pullRequests struct {
	api    *githost.API
	remote string
	permit func(context.Context) error // nil if they are permitted
}

func (p pullRequests) Open(ctx context.Context, head, base, title, body string) (string, error) {
	if p.permit != nil {
		if err := p.permit(ctx); err != nil {
			return "", err
		}
	}
	return p.api.OpenPullRequest(ctx, githost.PullRequest{Remote: p.remote, Head: head, Base: base, Title: title, Body: body})
}
