package app

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/trigger"
)

// setting is what a reload can change. Rows without a name apply what several settings
// share, which have rows of their own.
type setting struct {
	name  string
	same  func(l *live, was, next *setup) bool
	apply func(ctx context.Context, l *live, next *setup) // nil: a later row applies it
}

// liveSettings lists all settings in the order in which they are applied.
func liveSettings() []setting {
	return []setting{
		{"secretManagement", func(_ *live, was, next *setup) bool {
			return was.sameKeys(next) || was.keys.SOPSFingerprint() != next.keys.SOPSFingerprint()
		}, nil},
		{"secretManagement or sops", func(_ *live, was, next *setup) bool {
			return was.keys.SOPSFingerprint() == next.keys.SOPSFingerprint()
		}, nil},
		{"", func(_ *live, was, next *setup) bool { return was.sameKeys(next) }, func(_ context.Context, l *live, next *setup) {
			l.secrets.Use(next.keys)
			l.concealed.Use(next.keys.Concealed())
		}},
		{"chartRepositories and chartRegistries", func(_ *live, was, next *setup) bool { return was.charts.same(next.charts) },
			func(_ context.Context, l *live, next *setup) {
				l.charts.Use(next.charts.repositories, next.charts.registries, next.charts.allowed)
			}},
		{"analysisProviders", func(_ *live, was, next *setup) bool { return sameAnalysisProviders(was.analysis, next.analysis) },
			func(_ context.Context, l *live, next *setup) { l.analysis.Use(next.analysis) }},
		{"platformProviders", func(_ *live, was, next *setup) bool {
			return maps.Equal(was.connections, next.connections) && was.sameProviders(next)
		}, func(_ context.Context, l *live, next *setup) {
			l.clusters.use(next.connections)
			l.platforms.use(next.providers)
		}},
		{"repositories", func(_ *live, was, next *setup) bool { return was.sameRepositories(next) }, nil},
		{"git.remoteHosts", func(_ *live, was, next *setup) bool { // repositories contribute hosts, too
			return was.remotes.same(next.remotes) || !was.sameRepositories(next)
		}, nil},
		{"", func(_ *live, was, next *setup) bool { return was.remotes.same(next.remotes) },
			func(_ context.Context, l *live, next *setup) { l.remotes.Allow(next.remotes.hosts, next.remotes.auth) }},
		{"syncInterval", func(_ *live, was, next *setup) bool { return was.interval == next.interval }, nil},
		{"adopt", func(_ *live, was, next *setup) bool { return was.review == next.review }, nil},
		{"tenancy", func(_ *live, was, next *setup) bool { return was.tenancy.same(next.tenancy) },
			func(_ context.Context, l *live, next *setup) { l.tenants.use(next.tenancy) }},
		{"", func(_ *live, was, next *setup) bool { return was.sameTrigger(next) }, func(ctx context.Context, l *live, next *setup) {
			l.follower.replace(ctx, func() *trigger.Trigger {
				l.repositories.use(ctx, next.repositories)
				return l.newTrigger(next.interval, next.review)
			})
		}},
		{"name", func(_ *live, was, next *setup) bool { return was.name == next.name },
			func(_ context.Context, l *live, next *setup) { l.name.Store(&next.name) }},
		{"git.username and git.email", func(_ *live, was, next *setup) bool { return was.events.sameAuthor(next.events) },
			func(_ context.Context, l *live, next *setup) { l.events.Store(next.events) }},
		{"eventWatcher and gitHosts", func(_ *live, was, next *setup) bool { return was.events.sameRules(next.events) },
			func(_ context.Context, l *live, next *setup) { l.events.Store(next.events) }},
		{"limits", func(_ *live, was, next *setup) bool { return was.limits == next.limits }, func(_ context.Context, l *live, next *setup) {
			l.limits.Store(&next.limits)
			l.scheduler.Rescan()
		}},
		{"retention", func(_ *live, was, next *setup) bool { return was.retention == next.retention },
			func(_ context.Context, l *live, next *setup) { l.retention.Store(&next.retention) }},
		{"notifications", func(_ *live, was, next *setup) bool { return was.notifications.same(next.notifications) }, nil},
		{"", func(_ *live, was, next *setup) bool { // Git hosts are receivers, too
			return was.notifications.same(next.notifications) && was.events.sameRules(next.events)
		}, func(_ context.Context, l *live, next *setup) { l.setReceivers(next.notifications) }},
		{"webhooks", func(_ *live, was, next *setup) bool {
			return slices.EqualFunc(was.webhooks, next.webhooks, webhook.same)
		}, nil},
		{"", func(_ *live, was, next *setup) bool {
			return slices.EqualFunc(was.webhooks, next.webhooks, webhook.same) && was.sameRepositories(next)
		}, func(_ context.Context, l *live, next *setup) {
			l.web.SetWebhooks(served(next.webhooks, next.repositories))
		}},
		{"api certificate", func(l *live, was, next *setup) bool {
			return next.identity == nil || !l.api.Secure() || was.identity.Same(next.identity)
		}, func(_ context.Context, l *live, next *setup) {
			if next.identity != nil {
				l.api.SetIdentity(next.identity)
			}
		}},
		{"web certificate", func(l *live, was, next *setup) bool {
			return next.webIdentity == nil || !l.web.Secure() || was.webIdentity.Same(next.webIdentity)
		}, func(_ context.Context, l *live, next *setup) {
			if next.webIdentity != nil {
				l.web.SetIdentity(next.webIdentity)
			}
		}},
		{"access", func(_ *live, was, next *setup) bool { return sameAccess(was.access, next.access) }, nil},
		{"", func(_ *live, _, _ *setup) bool { return false }, // the content of a client secret's file may have changed
			func(ctx context.Context, l *live, next *setup) { l.users.use(ctx, next.access) }},
		{"api.rateLimit", func(_ *live, was, next *setup) bool { return was.rateLimit == next.rateLimit },
			func(_ context.Context, l *live, next *setup) { l.api.SetRateLimit(next.rateLimit) }},
	}
}

func (s *setup) sameKeys(o *setup) bool { return s.keys.Fingerprint() == o.keys.Fingerprint() }

// sameProviders compares the platform providers; their order does not matter.
func (s *setup) sameProviders(o *setup) bool {
	byName := func(all []config.PlatformProvider) map[string]config.PlatformProvider {
		out := map[string]config.PlatformProvider{}
		for _, p := range all {
			out[p.Name] = p
		}
		return out
	}
	return reflect.DeepEqual(byName(s.providers), byName(o.providers))
}

func (s *setup) sameRepositories(o *setup) bool {
	return slices.EqualFunc(s.repositories, o.repositories, repository.same)
}

// sameTrigger reports whether s and o need no different trigger.
func (s *setup) sameTrigger(o *setup) bool {
	return s.sameRepositories(o) && s.tenancy.same(o.tenancy) && s.interval == o.interval && s.review == o.review &&
		maps.Equal(s.providerKinds(), o.providerKinds())
}

// providerKinds returns the kind of each platform provider, by name.
func (s *setup) providerKinds() map[string]string {
	out := map[string]string{}
	for _, p := range s.providers {
		out[p.Name] = p.Type
	}
	return out
}

// begin applies the first setup, before any component runs.
func (l *live) begin(ctx context.Context, first setup, t targets) {
	l.targets, l.used = t, first
	l.effective.Store(first.cfg)
	for _, row := range liveSettings() {
		if row.apply != nil {
			row.apply(ctx, l, &first)
		}
	}
}

// use applies what differs in next and returns the names of the changed settings. Running
// deployments are not affected.
func (l *live) use(ctx context.Context, next setup) (changed []string) {
	was := l.used
	l.used = next
	l.effective.Store(withUnchanged(next.cfg, l.effective.Load()))
	for _, row := range liveSettings() {
		if row.same(l, &was, &next) {
			continue
		}
		if row.name != "" {
			changed = append(changed, row.name)
		}
		if row.apply != nil {
			row.apply(ctx, l, &next)
		}
	}
	return changed
}
