package trigger

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// request is a deployment to create.
type request struct {
	store.NewDeployment
	queue  config.Queue
	reason string // for the log
}

// newRequest returns a request with the fields that every new deployment of app has. It
// begins the chain of the application's configuration, unless the deployment is part of one.
func (w *watcher) newRequest(ctx context.Context, app deploy.Application, e entry, provider string, t deploy.Trigger) (request, error) {
	cfg, now := e.candidate.Config, w.Now()
	t.At = now
	r := request{queue: cfg.Trigger.Queue, NewDeployment: store.NewDeployment{Deployment: deploy.Deployment{
		ID: w.NewID(), ApplicationID: app.ID, ApplicationName: deploy.NameOf(cfg.Name, app.Registration, e.git), Kind: cfg.Kind, Git: e.git, Provider: provider,
		Labels: cfg.Labels, Trigger: t, Status: deploy.Pending,
		StatusReason: deploy.ReasonToPlan, CreatedAt: now, UpdatedAt: now, Metadata: metadata(cfg),
	}}}
	if cfg.PostSync.Chain == nil || t.Kind == deploy.OnChain {
		return r, nil
	}
	chain, err := w.newChain(ctx, cfg.PostSync.Chain, app.ID)
	if err != nil {
		return r, fmt.Errorf("find the applications of the deployment chain: %w", err)
	}
	r.Chain, r.Deployment.ChainID = chain, chain.ID
	return r, nil
}

// metadata returns the deployment metadata from the application's configuration: the
// environment URL, and the users whom notifications mention. It returns nil if there is
// none.
func metadata(cfg *config.Application) map[string]string {
	out := map[string]string{}
	if cfg.EnvironmentURL != "" {
		out[deploy.MetaEnvironmentURL] = cfg.EnvironmentURL
	}
	if whom := cfg.Notification.Whom(); whom != nil {
		text, err := json.Marshal(map[string]any{"mentions": whom})
		if err == nil { // texts always encode
			out[deploy.MetaNotification] = string(text)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// create creates the deployments, independently of each other. The errors have the
// indices of the requests.
func (w *watcher) create(ctx context.Context, rs []request) []error {
	ns := make([]store.NewDeployment, len(rs))
	for i, r := range rs {
		ns[i] = r.NewDeployment
	}
	created, errs := w.Store.CreateDeployments(ctx, ns)
	for i, d := range created {
		if errs[i] != nil {
			continue
		}
		w.log.Info("deployment triggered", "app", d.ApplicationName, "deployment", d.ID, "kind", d.Trigger.Kind,
			"commit", d.Trigger.Commit.Short(), "reason", rs[i].reason)
	}
	return errs
}
