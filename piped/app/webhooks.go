package app

import (
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/web"
)

// webhook is a configured webhook with its secret.
type webhook struct {
	name     string
	kind     config.WebhookType
	secret   strict.Secret
	receiver *githost.Receiver
}

func (w webhook) same(o webhook) bool {
	return w.name == o.name && w.kind == o.kind && w.secret.Equal(o.secret)
}

// planWebhooks reads the secrets of the configured webhooks.
func planWebhooks(configured []config.Webhook) ([]webhook, error) {
	var out []webhook
	var errs []error
	for _, c := range configured {
		hook := webhook{name: c.Name, kind: c.Type}
		var err error
		if hook.secret, err = c.Load(); err == nil {
			hook.receiver, err = githost.New(c.Type, hook.secret)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("webhook %q: %w", c.Name, err))
		}
		out = append(out, hook)
	}
	return out, errors.Join(errs...)
}

// served returns the webhooks for the web server.
func served(hooks []webhook, watched []repository) web.Webhooks {
	out := web.Webhooks{Receivers: map[string]*githost.Receiver{}}
	for _, h := range hooks {
		out.Receivers[h.name] = h.receiver
	}
	for _, r := range watched {
		out.Repositories = append(out.Repositories, web.Repository{ID: r.config.RepoID, Remote: r.config.Remote, Branch: r.config.Branch})
	}
	return out
}
