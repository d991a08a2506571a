package app

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/executor/analysis/provider"
	"github.com/c785c783/piped/executor/script"
	"github.com/c785c783/piped/piped/certificate"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
	"github.com/c785c783/piped/piped/source/secret"
	"github.com/c785c783/piped/piped/web"
	"github.com/c785c783/piped/scheduler"
	"github.com/c785c783/piped/trigger"
)

// live is what the configuration decides and a reload changes, apart from what
// lives as long as the agent. plan reads, checks and opens all that a
// configuration asks for and changes nothing; begin and use put it into effect.
// These three have one caller at a time.
type live struct {
	clusters     *clusters
	platforms    platforms // set before begin is called
	repositories *repositories
	follower     *follower
	secrets      *secret.Renderer
	concealed    *secret.Renderer // has the keys, and shows no secret
	tenants      *tenants
	analysis     *provider.Set
	remotes      *git.Remotes   // set before plan is called
	charts       *helm.Renderer // set before plan is called
	limits       atomic.Pointer[scheduler.Limits]
	retention    atomic.Pointer[config.Retention]
	name         atomic.Pointer[string]
	events       atomic.Pointer[events]

	configuration configuration

	// Set before begin is called.
	newTrigger func(interval time.Duration, review bool) *trigger.Trigger
	scheduler  *scheduler.Scheduler
	scripts    *script.Executor
	api        *control.Server
	web        *web.Server
	tell       func(*notifications) // makes the receivers those of the configuration in effect

	used setup
}

// setup is what one configuration asks for.
type setup struct {
	connections  map[string]*connection
	providers    []config.PlatformProvider
	repositories []repository
	name         string
	interval     time.Duration
	review       bool // of what is taken over
	limits       scheduler.Limits
	retention    config.Retention
	identity     *certificate.Identity // of the API; nil without TLS
	webIdentity  *certificate.Identity // of web; nil without TLS
	rateLimit    control.RateLimit
	webhooks     []webhook
	keys         *secret.Keys // nil when secrets cannot be decrypted
	tenancy      *tenancy
	remotes      *remotes
	charts       charts
	analysis     []config.AnalysisProvider
	events       *events

	notifications *notifications
}

func newLive(dataDir string, m counted, o Options) *live {
	repositories := newRepositories(dataDir, m.git, o)
	l := &live{
		clusters: newClusters(m.requests, o), repositories: repositories, follower: newFollower(), secrets: secret.New(nil), concealed: secret.New(nil),
		tenants: newTenants(repositories.CommitObject), analysis: provider.NewSet(),
	}
	l.configuration.load(o.Now())
	return l
}

// plan returns what cfg asks for. Problems joins which of its providers and
// repositories cannot be used and are not known to be so: an agent can do
// without them. With an error it cannot do at all.
func (l *live) plan(cfg *config.Piped) (s setup, problems, err error) {
	s.name, s.interval, s.review = cfg.Name, cfg.SyncInterval, cfg.Adopt == config.AdoptReview
	s.remotes = planRemotes(cfg)
	s.providers = cfg.Providers
	s.limits = scheduler.Limits{Deployments: cfg.Limits.Deployments, PerCluster: cfg.Limits.PerCluster}
	s.retention = cfg.Retention
	var errs [9]error
	s.connections, errs[0] = l.clusters.plan(providersOf(cfg.Providers, deploy.KindKubernetes))
	s.repositories, errs[1] = l.repositories.plan(cfg)
	s.webhooks, errs[2] = planWebhooks(cfg.Webhooks)
	s.keys, errs[3] = secret.LoadKeys(cfg.SecretManagement, cfg.SOPS)
	s.tenancy, errs[4] = planTenancy(cfg.Tenancy)
	s.charts = charts{cfg.ChartRepositories, cfg.ChartRegistries, cfg.Charts.AllowedHosts}
	s.analysis = cfg.AnalysisProviders
	s.identity, errs[5] = certificate.Files{Section: "api", Cert: cfg.API.TLSCertFile, Key: cfg.API.TLSKeyFile, ClientCA: cfg.API.ClientCAFile}.Load()
	s.webIdentity, errs[8] = webCertificate(cfg.Web).Load()
	s.rateLimit = rateLimit(cfg)
	s.events, errs[6] = planEvents(cfg)
	s.notifications, errs[7] = planNotifications(cfg)
	return s, errors.Join(errs[:2]...), errors.Join(errs[2:]...)
}

func webCertificate(w config.Web) certificate.Files {
	return certificate.Files{Section: "web", Cert: w.TLSCertFile, Key: w.TLSKeyFile, ClientCA: w.ClientCAFile}
}

// begin puts the first setup into effect. Nothing runs yet.
func (l *live) begin(ctx context.Context, s setup) {
	l.clusters.use(s.connections)
	l.platforms.use(s.providers)
	l.repositories.use(ctx, s.repositories)
	l.secrets.Use(s.keys)
	l.concealed.Use(s.keys.Concealed())
	l.tenants.use(s.tenancy)
	l.analysis.Use(s.analysis)
	l.remotes.Allow(s.remotes.hosts, s.remotes.auth)
	l.charts.Use(s.charts.repositories, s.charts.registries, s.charts.allowed)
	l.limits.Store(&s.limits)
	l.retention.Store(&s.retention)
	l.name.Store(&s.name)
	l.events.Store(s.events)
	l.follower.set(l.newTrigger(s.interval, s.review))
	l.web.SetWebhooks(served(s.webhooks, s.repositories))
	l.tell(s.notifications)
	l.used = s
}

// use puts next into effect and returns the names of what has changed. What
// runs is not disturbed.
func (l *live) use(ctx context.Context, next setup) (changed []string) {
	was := l.used
	l.used = next
	if was.keys.Fingerprint() != next.keys.Fingerprint() {
		name := "secretManagement"
		if was.keys.SOPSFingerprint() != next.keys.SOPSFingerprint() {
			name = "secretManagement or sops"
		}
		changed = append(changed, name)
		l.secrets.Use(next.keys)
		l.concealed.Use(next.keys.Concealed())
	}
	if !was.charts.same(next.charts) {
		changed = append(changed, "chartRepositories and chartRegistries")
		l.charts.Use(next.charts.repositories, next.charts.registries, next.charts.allowed)
	}
	if !sameAnalysisProviders(was.analysis, next.analysis) {
		changed = append(changed, "analysisProviders")
		l.analysis.Use(next.analysis)
	}
	providers := l.platforms.providerKinds()
	if !maps.Equal(was.connections, next.connections) || !reflect.DeepEqual(was.providers, next.providers) {
		changed = append(changed, "platformProviders")
		l.clusters.use(next.connections)
		l.platforms.use(next.providers)
	}
	repositories := !slices.EqualFunc(was.repositories, next.repositories, repository.same)
	if repositories {
		changed = append(changed, "repositories")
	}
	if !was.remotes.same(next.remotes) {
		l.remotes.Allow(next.remotes.hosts, next.remotes.auth)
		if !repositories { // they are part of it
			changed = append(changed, "git.remoteHosts")
		}
	}
	if was.interval != next.interval {
		changed = append(changed, "syncInterval")
	}
	if was.review != next.review {
		changed = append(changed, "adopt")
	}
	tenancy := !was.tenancy.same(next.tenancy)
	if tenancy {
		changed = append(changed, "tenancy")
		l.tenants.use(next.tenancy)
	}
	if repositories || tenancy || was.interval != next.interval || was.review != next.review || !maps.Equal(providers, l.platforms.providerKinds()) {
		l.follower.replace(ctx, func() *trigger.Trigger {
			l.repositories.use(ctx, next.repositories)
			return l.newTrigger(next.interval, next.review)
		})
	}
	if was.name != next.name {
		changed = append(changed, "name")
		l.name.Store(&next.name)
	}
	changed = append(changed, l.useEvents(was.events, next.events)...)
	told := !was.notifications.same(next.notifications)
	if told {
		changed = append(changed, "notifications")
	}
	if told || !was.events.sameRules(next.events) { // the Git hosts are told, too
		l.tell(next.notifications)
	}
	if was.limits != next.limits {
		changed = append(changed, "limits")
		l.limits.Store(&next.limits)
		l.scheduler.Rescan()
	}
	if was.retention != next.retention {
		changed = append(changed, "retention")
		l.retention.Store(&next.retention)
	}
	webhooks := !slices.EqualFunc(was.webhooks, next.webhooks, webhook.same)
	if webhooks {
		changed = append(changed, "webhooks")
	}
	if webhooks || repositories {
		l.web.SetWebhooks(served(next.webhooks, next.repositories))
	}
	if next.identity != nil && l.api.Secure() && !was.identity.Same(next.identity) {
		changed = append(changed, "api certificate")
		l.api.SetIdentity(next.identity)
	}
	if next.webIdentity != nil && l.web.Secure() && !was.webIdentity.Same(next.webIdentity) {
		changed = append(changed, "web certificate")
		l.web.SetIdentity(next.webIdentity)
	}
	if was.rateLimit != next.rateLimit {
		changed = append(changed, "api.rateLimit")
		l.api.SetRateLimit(next.rateLimit)
	}
	return changed
}

// unusable reports whether something configured cannot be used, which another
// attempt may mend.
func (l *live) unusable() bool {
	_, problems := l.repositories.watchable()
	return len(problems) > 0 || l.clusters.unusable()
}

// Limits are those of the scheduler.
func (l *live) Limits() scheduler.Limits { return *l.limits.Load() }

// Retention says how long what is over is kept.
func (l *live) Retention() config.Retention { return *l.retention.Load() }

func rateLimit(cfg *config.Piped) control.RateLimit {
	return control.RateLimit{PerSecond: cfg.API.RateLimit.PerSecond, Burst: cfg.API.RateLimit.Burst}
}
