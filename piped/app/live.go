package app

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/c785c783/piped/executor/analysis/provider"
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

// live holds the settings that a reload of the configuration changes; the others last as
// long as the agent. plan reads, checks and opens all that a configuration names and
// changes nothing; begin and use apply it. These three have one caller at a time.
type live struct {
	clusters     *clusters
	platforms    platforms // opened with the sources
	repositories *repositories
	follower     *follower
	secrets      *secret.Renderer
	concealed    *secret.Renderer // has the keys and shows no secret
	tenants      *tenants
	analysis     *provider.Set
	limits       atomic.Pointer[scheduler.Limits]
	retention    atomic.Pointer[config.Retention]
	name         atomic.Pointer[string]
	events       atomic.Pointer[events]

	configuration configuration
	effective     atomic.Pointer[config.Piped] // the configuration in effect

	used setup
	targets
}

// targets are the components that settings are applied to.
type targets struct {
	newTrigger   func(interval time.Duration, review bool) *trigger.Trigger
	setReceivers func(*notifications)
	scheduler    *scheduler.Scheduler
	remotes      *git.Remotes
	charts       *helm.Renderer
	api          *control.Server
	web          *web.Server
	users        *users
}

// setup is what one configuration asks for.
type setup struct {
	cfg          *config.Piped
	connections  map[string]*connection
	providers    []config.PlatformProvider
	repositories []repository
	name         string
	interval     time.Duration
	review       bool // of adopted applications
	limits       scheduler.Limits
	retention    config.Retention
	identity     *certificate.Identity // of the API; nil without TLS
	webIdentity  *certificate.Identity // nil without TLS
	rateLimit    control.RateLimit
	access       config.Access
	webhooks     []webhook
	keys         *secret.Keys // nil if secrets cannot be decrypted
	tenancy      *tenancy
	remotes      *remotes
	charts       charts
	analysis     []config.AnalysisProvider
	events       *events

	notifications *notifications
}

func newLive(dataDir string, c clusterConfig, m git.Metrics, o Options) *live {
	repositories := newRepositories(dataDir, m, o)
	repositories.permit = c.permit
	l := &live{
		clusters: newClusters(c, o), repositories: repositories, follower: newFollower(), secrets: secret.New(nil), concealed: secret.New(nil),
		tenants: newTenants(repositories.CommitObject), analysis: provider.NewSet(),
	}
	l.configuration.load(o.Now())
	return l
}

// plan returns what cfg asks for. Problems joins why some of its providers and
// repositories cannot be used, unless that is known already: an agent runs without them.
// With err it cannot run.
func (l *live) plan(cfg *config.Piped) (s setup, problems, err error) {
	s = setup{
		cfg:  cfg,
		name: cfg.Name, interval: cfg.SyncInterval, review: cfg.Adopt == config.AdoptReview, remotes: planRemotes(cfg),
		providers: cfg.Providers,
		limits:    scheduler.Limits{Deployments: cfg.Limits.Deployments, PerCluster: cfg.Limits.PerCluster},
		retention: cfg.Retention, rateLimit: rateLimit(cfg), analysis: cfg.AnalysisProviders,
		charts: charts{cfg.ChartRepositories, cfg.ChartRegistries, cfg.Charts.AllowedHosts},
	}
	var unusable, invalid collected
	s.connections = collect(&unusable, l.clusters.plan, providersOf(cfg.Providers, deploy.KindKubernetes))
	s.repositories = collect(&unusable, l.repositories.plan, cfg)
	s.webhooks = collect(&invalid, planWebhooks, cfg.Webhooks)
	s.keys, err = secret.LoadKeys(cfg.SecretManagement, cfg.SOPS)
	invalid.add(err)
	s.tenancy = collect(&invalid, planTenancy, cfg.Tenancy)
	s.identity = collect(&invalid, certificate.Files.Load, apiCertificate(cfg.API))
	s.events = collect(&invalid, planEvents, cfg)
	s.notifications = collect(&invalid, planNotifications, cfg)
	s.access = collect(&invalid, planAccess, cfg.Access)
	s.webIdentity = collect(&invalid, certificate.Files.Load, webCertificate(cfg.Web))
	return s, errors.Join(unusable...), errors.Join(invalid...)
}

// collected are errors of several steps.
type collected []error

func (c *collected) add(err error) { *c = append(*c, err) }

// collect returns the result of a step and adds its error to errs.
func collect[In, Out any](errs *collected, step func(In) (Out, error), in In) Out {
	out, err := step(in)
	errs.add(err)
	return out
}

func apiCertificate(a config.API) certificate.Files {
	return certificate.Files{Section: "api", Cert: a.TLSCertFile, Key: a.TLSKeyFile, ClientCA: a.ClientCAFile}
}

func webCertificate(w config.Web) certificate.Files {
	return certificate.Files{Section: "web", Cert: w.TLSCertFile, Key: w.TLSKeyFile, ClientCA: w.ClientCAFile}
}

// unusable reports whether a configured repository or provider cannot be used. A later
// attempt may succeed.
func (l *live) unusable() bool {
	_, problems := l.repositories.watchable()
	return len(problems) > 0 || l.clusters.unusable()
}

// Limits returns the limits of the scheduler.
func (l *live) Limits() scheduler.Limits { return *l.limits.Load() }

// Retention returns how long completed deployments and their data are retained.
func (l *live) Retention() config.Retention { return *l.retention.Load() }

// page returns the address of the page in the configuration in effect, "" without one.
func (l *live) page() string {
	if cfg := l.effective.Load(); cfg != nil {
		return cfg.Access.ExternalURL
	}
	return ""
}

func rateLimit(cfg *config.Piped) control.RateLimit {
	return control.RateLimit{PerSecond: cfg.API.RateLimit.PerSecond, Burst: cfg.API.RateLimit.Burst}
}
