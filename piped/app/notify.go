package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
	"github.com/c785c783/piped/piped/notify/bigquery"
	"github.com/c785c783/piped/piped/notify/slack"
	webhooks "github.com/c785c783/piped/piped/notify/webhook"
	"github.com/c785c783/piped/piped/store"
)

// notifications are the configured receivers and routes with their secrets. They are
// immutable.
type notifications struct {
	config             config.Notifications
	secrets            []strict.Secret // in the order of the receivers
	signing            []strict.Secret // likewise: the keys that sign webhooks
	export             config.RolloutExport
	exportSecret       strict.Secret // of BigQuery
	pipedID, projectID string
}

// planNotifications reads the secrets of the configured receivers.
func planNotifications(cfg *config.Piped) (*notifications, error) {
	n := &notifications{config: cfg.Notifications, export: cfg.RolloutExport, pipedID: cfg.PipedID, projectID: cfg.ProjectID}
	var errs []error
	for _, r := range cfg.Notifications.Receivers {
		var secret, signing strict.Secret
		var err error
		switch {
		case r.Slack == nil:
			var unsigned error
			secret, err = r.Webhook.Load()
			signing, unsigned = r.Webhook.LoadHMAC()
			err = errors.Join(err, unsigned)
		case !r.Slack.HookURL.IsEmpty():
			secret = r.Slack.HookURL
		default:
			secret, err = r.Slack.Load()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("receiver %q: %w", r.Name, err))
		}
		n.secrets, n.signing = append(n.secrets, secret), append(n.signing, signing)
	}
	if b := n.export.BigQuery; b != nil {
		var err error
		if n.exportSecret, err = b.Load(); err != nil {
			errs = append(errs, err)
		}
	}
	return n, errors.Join(errs...)
}

func (n *notifications) same(o *notifications) bool {
	return reflect.DeepEqual(n.open(), o.open()) && reflect.DeepEqual(n.export, o.export) && n.exportSecret.Equal(o.exportSecret) &&
		slices.EqualFunc(n.secrets, o.secrets, strict.Secret.Equal) && slices.EqualFunc(n.signing, o.signing, strict.Secret.Equal)
}

// open returns the receivers and routes without secrets, which need their own comparison.
func (n *notifications) open() config.Notifications {
	out := n.config
	out.Receivers = slices.Clone(out.Receivers)
	for i := range out.Receivers {
		r := &out.Receivers[i]
		if r.Slack != nil {
			s := *r.Slack
			s.HookURL, s.OAuthToken, s.OAuthTokenData = strict.Secret{}, strict.Secret{}, strict.Secret{}
			r.Slack = &s
		}
		if r.Webhook != nil {
			w := *r.Webhook
			w.SignatureValue, w.HMACSecret = strict.Secret{}, strict.Secret{}
			r.Webhook = &w
		}
	}
	return out
}

// receivers returns the configured receivers. One without a route receives nothing.
func (n *notifications) receivers(st *store.Store, page notify.Page, now func() time.Time) []notify.Receiver {
	var out []notify.Receiver
	for i, r := range n.config.Receivers {
		var sender notify.Sender
		if r.Slack != nil {
			sender = slack.New(slack.Config{
				Receiver: r.Name, HookURL: r.Slack.HookURL.Reveal(), Token: n.secrets[i].Reveal(), ChannelID: r.Slack.ChannelID,
				Accounts: r.Slack.MentionedAccounts, Groups: r.Slack.MentionedGroups, Page: page, ProjectID: n.projectID, Notes: st, Now: now,
			})
		} else {
			sender = webhooks.New(webhooks.Config{
				URL: r.Webhook.URL, SignatureKey: r.Webhook.SignatureKey, SignatureValue: n.secrets[i].Reveal(),
				HMACSecret: n.signing[i].Reveal(), PipedID: n.pipedID, ProjectID: n.projectID, Now: now,
			})
		}
		out = append(out, notify.Routed(r.Name, sender, n.routes(r.Name)...))
	}
	if b := n.export.BigQuery; b != nil {
		out = append(out, bigquery.New(bigquery.Config{
			Project: b.Project, Dataset: b.Dataset, Table: b.Table, Endpoint: b.Endpoint, Credentials: n.exportSecret.Reveal(), Now: now,
		}))
	}
	return out
}

// routes returns the routes to a receiver.
func (n *notifications) routes(receiver string) []notify.Route {
	var out []notify.Route
	for _, r := range n.config.Routes {
		if r.Receiver != receiver {
			continue
		}
		out = append(out, notify.Route{
			Events: namesOf[deploy.EventType](r.Events), IgnoreEvents: namesOf[deploy.EventType](r.IgnoreEvents),
			Groups: namesOf[deploy.EventGroup](r.Groups), IgnoreGroups: namesOf[deploy.EventGroup](r.IgnoreGroups),
			Apps: r.Apps, IgnoreApps: r.IgnoreApps, Labels: r.Labels, IgnoreLabels: r.IgnoreLabels,
			Previews: r.Previews == config.PreviewsAlso, OnlyPreviews: r.Previews == config.PreviewsOnly,
		})
	}
	return out
}

func namesOf[To, From ~string](list []From) []To {
	var out []To
	for _, v := range list {
		out = append(out, To(v))
	}
	return out
}

const (
	// startTimeout bounds how long the start of the agent waits to be stored.
	startTimeout = time.Minute
	// stopTimeout bounds how long its stop waits to be stored. Together with stopGrace it is less
	// than the default of Options.Grace.
	stopTimeout = 5 * time.Second
	// stopGrace is how long pending notifications are flushed when the agent stops.
	stopGrace = time.Second
)

// addNotifications adds the component that sends notifications. It returns the courier and
// a function that replaces the receivers. The start and the stop of the agent are those of the
// replica that has the database.
func (a *App) addNotifications(cfg *config.Piped, o Options, st *store.Store) (courier *notify.Courier, setReceivers func(*notifications)) {
	log := o.Logger.With("component", "notifications")
	courier = notify.New(notify.Config{Store: st, Metrics: a.metrics.notifications, Rights: a.rights, Grace: stopGrace, Logger: log, Now: o.Now})
	a.metrics.registry.MustRegister(notify.Backlog{Status: courier.Status, Now: o.Now})
	live := a.live
	agent := cfg.ProjectID + "/" + cfg.PipedID
	setReceivers = func(n *notifications) {
		courier.SetReceivers(append(n.receivers(st, live.page, o.Now), live.gitHostReceivers(st, agent)...)...)
	}
	if a.worker() {
		a.parts.add("notifications", courier.Run)
		return courier, setReceivers
	}
	who := func() deploy.PipedIdentity {
		return deploy.PipedIdentity{ID: cfg.PipedID, Name: *live.name.Load(), Version: o.Version, ProjectID: cfg.ProjectID}
	}
	a.parts.add("notifications", (&lifecycle{courier: courier, store: st, who: who, run: o.NewID(), now: o.Now, log: log}).Run)
	return courier, setReceivers
}

// lifecycle is the component that runs the courier, and publishes the start and the stop of
// the agent.
type lifecycle struct {
	courier *notify.Courier
	store   *store.Store
	who     func() deploy.PipedIdentity
	run     string // ID of this run of the agent
	now     func() time.Time
	log     *slog.Logger
}

// Run delivers notifications until ctx ends, then publishes the stop. What is not delivered
// within stopGrace is delivered after the next start.
func (l *lifecycle) Run(ctx context.Context) error {
	courierCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- l.courier.Run(courierCtx) }()
	select {
	case <-l.courier.Ready():
		l.announce(ctx, deploy.EventPipedStarted, startTimeout)
		<-ctx.Done()
		l.announce(context.WithoutCancel(ctx), deploy.EventPipedStopped, stopTimeout)
	case <-ctx.Done():
	}
	stop()
	return <-ended
}

func (l *lifecycle) announce(ctx context.Context, kind deploy.EventType, within time.Duration) {
	ctx, done := context.WithTimeout(ctx, within)
	defer done()
	who := l.who()
	err := l.store.Announce(ctx, deploy.Event{
		Key: l.run + "/" + string(kind), Type: kind, Payload: deploy.EventPayload{Piped: &who}.JSON(), At: l.now(),
	})
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		l.log.Warn("cannot publish that the agent starts or stops", "event", kind, "error", err)
	}
}
