package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// pipedSpec is the spec of kind Piped as it is written.
type pipedSpec struct {
	// ProjectID is a name that the API shows.
	ProjectID string `yaml:"projectID"`
	// PipedID marks the objects that the agent applies. Two agents need two IDs.
	PipedID string `yaml:"pipedID"`
	// Name is a name for people, which the API shows.
	Name string `yaml:"name"`
	// DataDir is the directory of the mirrors, keys and the SQLite store. One agent uses it.
	// Type: path. Not in PipeCD.
	DataDir string `yaml:"dataDir"`
	// Store is where the agent stores its state.
	// Not in PipeCD.
	Store Store `yaml:"store"`
	// API is the gRPC control API.
	// Not in PipeCD.
	API API `yaml:"api"`
	// Web is the HTTP server of `/api/v1/`, `/healthz`, `/readyz`, `/metrics` and `/webhooks/<name>`.
	// Not in PipeCD.
	Web Web `yaml:"web"`
	// SyncInterval is the time between two checks of a branch's head, at most. In the 30 seconds
	// after a new commit it is 2s, unless `syncInterval` is above 1m. PipeCD's default is 1m.
	SyncInterval time.Duration `yaml:"syncInterval"`
	// Git is how the agent reaches Git remotes.
	Git Git `yaml:"git"`
	// Repositories are the watched repositories, one branch of each.
	Repositories []Repository `yaml:"repositories"`
	// Webhooks are the receivers of push events from Git hosts. A webhook makes the agent check
	// the branch at once instead of after `syncInterval`. Pull requests that it announces are
	// previewed where `gitHosts` has `comments`.
	// Not in PipeCD.
	Webhooks []Webhook `yaml:"webhooks"`
	// GitHosts are the Git hosts whose API the agent uses: for statuses of commits, comments and
	// pull requests.
	// Not in PipeCD.
	GitHosts []GitHost `yaml:"gitHosts"`
	// Providers are the clusters to deploy to.
	Providers []providerSpec `yaml:"platformProviders"`
	// CloudProviders is PipeCD's older name of `platformProviders`; both are read. Same keys as
	// `platformProviders`.
	CloudProviders []providerSpec `yaml:"cloudProviders"`
	// Plugins is the form of PipeCD's v1 for providers and repositories. The agent runs no
	// plugins; `url` and `port` are ignored.
	Plugins []pluginSpec `yaml:"plugins"`
	// Limits is how many deployments run at once.
	// Not in PipeCD.
	Limits Limits `yaml:"limits"`
	// Tenancy is a list of rules for what applications may do. Without rules an application may do
	// all that the agent may.
	// Not in PipeCD.
	Tenancy []TenancyRule `yaml:"tenancy"`
	// Access is how users sign in, and what users and API keys may do.
	// Not in PipeCD.
	Access Access `yaml:"access"`
	// Scripts is how scripts of stages are isolated from the agent and its secrets. A change needs
	// a restart.
	// Not in PipeCD.
	Scripts Scripts `yaml:"scripts"`
	// Adopt is what the agent does, before an application's first deployment, with live objects
	// that the application declares but that are not its own. `auto` takes them over. `review`
	// holds the application until a user has decided.
	// Not in PipeCD.
	Adopt Adopt `yaml:"adopt"`

	// Charts limits where Helm charts come from.
	// Not in PipeCD.
	Charts Charts `yaml:"charts"`
	// ChartRepositories are Helm chart repositories.
	ChartRepositories []ChartRepository `yaml:"chartRepositories"`
	// ChartRegistries are OCI registries of Helm charts.
	ChartRegistries []ChartRegistry `yaml:"chartRegistries"`
	// AnalysisProviders are what `ANALYSIS` stages query.
	AnalysisProviders []AnalysisProvider `yaml:"analysisProviders"`
	// Notifications are which events are sent to which receivers.
	Notifications Notifications `yaml:"notifications"`
	// RolloutExport is where records of rollouts and scalings are exported when they have ended.
	// Not in PipeCD.
	RolloutExport RolloutExport `yaml:"rolloutExport"`
	// SecretManagement is how the secrets that applications keep in Git (`encryption`) are
	// decrypted. The agent reloads a changed key like the rest of the configuration.
	SecretManagement SecretManagement `yaml:"secretManagement"`
	// SOPS are the keys of files that SOPS has encrypted.
	// Not in PipeCD.
	SOPS SOPS `yaml:"sops"`
	// EventWatcher is how events become commits. Repositories that it does not name are watched,
	// too.
	EventWatcher EventWatcher `yaml:"eventWatcher"`
	// PlanPreview is how plan previews are built.
	PlanPreview PlanPreview `yaml:"planPreview"`
	// Previews deploys pull requests of applications that have `spec.preview`. It needs `gitHosts` for
	// the host of their repository. A change needs a restart.
	// Default: no pull request is deployed. Not in PipeCD.
	Previews *Previews `yaml:"previews"`
	// Retention is how long completed work is stored.
	// Not in PipeCD.
	Retention Retention `yaml:"retention"`
	// Telemetry is where traces of deployments are sent.
	// Not in PipeCD.
	Telemetry Telemetry `yaml:"telemetry"`
	// Debug is for finding problems of the process.
	// Not in PipeCD.
	Debug Debug `yaml:"debug"`
	// AppSelector is checked and has no effect in this version: in PipeCD, labels of the
	// applications that it suggests for registration.
	AppSelector map[string]string `yaml:"appSelector"`
}

func defaultPipedSpec() pipedSpec {
	return pipedSpec{
		ProjectID:    "default",
		PipedID:      "piped",
		DataDir:      "~/.piped",
		Store:        Store{Replicas: ReplicasStandBy},
		API:          API{Address: "127.0.0.1:9083", RateLimit: RateLimit{PerSecond: 1000, Burst: 2000}},
		Web:          Web{Address: "127.0.0.1:9085"},
		SyncInterval: 15 * time.Second,
		Git:          Git{Email: "piped@localhost"},
		Limits:       Limits{Deployments: 50},
		Access:       defaultAccess(),
		Adopt:        AdoptAuto,
		Scripts:      Scripts{Isolation: IsolationAuto},
		PlanPreview:  defaultPlanPreview(),
		Retention:    defaultRetention(),
		Telemetry:    Telemetry{SampleRatio: 1},
	}
}

// pipedRules returns the keys of spec that are known but not read. One goes from
// here when its feature comes.
func (ks Kinds) pipedRules() strict.Rules {
	rules := strict.Rules{Ignored: map[string]string{}, Choices: ks.providerConfigs, Values: ks.providerTypes()}
	for _, field := range []string{"apiAddress", "pipedKeyFile", "pipedKeyData", "webAddress"} {
		rules.Ignored[field] = "has no meaning here, there is no separate control plane; ignored"
	}
	rules.Ignored["appConfigSyncInterval"] = "has no meaning here, configurations are read at each commit; ignored"
	rules.Ignored["eventWatcher.checkInterval"] = "has no meaning here, events are worked off when they are registered; ignored"
	for _, field := range []string{"planPreview.commandQueueBufferSize", "planPreview.commandCheckInterval"} {
		rules.Ignored[field] = "has no meaning here, previews are built when they are asked for; ignored"
	}
	maps.Copy(rules.Ignored, pluginRules())
	rules.Ignored["kubectlVersion"] = "has no meaning here, no kubectl is run; ignored"
	rules.Ignored["git.sshConfigFilePath"] = "has no meaning here, no ssh program is run; ignored"
	for _, list := range []string{"platformProviders", "cloudProviders"} {
		maps.Copy(rules.Ignored, ks.ignoredOfProviders(list+"[].config"))
	}
	return rules
}

// unusedFields returns the keys of spec that are checked and have no effect in
// this version. One goes from here when its feature comes.
func unusedFields() []string {
	return []string{"appSelector"}
}

// complete checks every value, reports what makes no sense to d, and returns
// the configuration with defaults and paths resolved.
func (s *pipedSpec) complete(d *strict.Document, r resolver, kinds Kinds) *Piped {
	for field, value := range map[string]string{"projectID": s.ProjectID, "pipedID": s.PipedID, "dataDir": s.DataDir} {
		if strings.TrimSpace(value) == "" {
			d.Problemf(field, "expected a text, found an empty one")
		}
	}
	atLeastZero(d, "syncInterval", &s.SyncInterval, defaultPipedSpec().SyncInterval)
	if s.Limits.Deployments < 1 {
		d.Problemf("limits.deployments", "expected 1 or more, found %d", s.Limits.Deployments)
	}
	if s.Limits.PerCluster < 0 {
		d.Problemf("limits.perCluster", "expected 0 (no limit) or more, found %d", s.Limits.PerCluster)
	}
	for _, field := range unusedFields() {
		if d.Has(field) {
			d.Warnf(field, "not used by this version")
		}
	}
	for i := range s.Plugins {
		s.Plugins[i].decode(d, fmt.Sprintf("plugins[%d]", i), kinds)
	}
	dataDir := r.path("dataDir", s.DataDir)
	repositories, providers := completeRepositories(s.Repositories, d, r), s.providers(d, r, kinds)
	return &Piped{
		ProjectID: s.ProjectID, PipedID: s.PipedID, Name: s.Name, DataDir: dataDir,
		Store:        s.Store.complete(d, r, dataDir),
		API:          s.API.complete(d, r),
		Web:          s.Web.complete(d, r),
		SyncInterval: s.SyncInterval,
		Git:          s.Git.complete(d, r),
		Repositories: repositories,
		Webhooks:     completeWebhooks(s.Webhooks, d, r),
		GitHosts:     completeGitHosts(s.GitHosts, d, r),
		Providers:    providers,
		Limits:       s.Limits,
		Adopt:        s.Adopt,
		Scripts:      s.Scripts.complete(d, r),
		Tenancy:      completeTenancy(s.Tenancy, d, r, repositories, s.providerNames()),
		Access:       s.Access.complete(d, r, repositories),

		Charts:            s.Charts.complete(d),
		ChartRepositories: s.chartRepositories(d, r),
		ChartRegistries:   s.chartRegistries(d),
		AnalysisProviders: s.analysisProviders(d, r),
		Notifications:     s.Notifications.complete(d, r),
		RolloutExport:     s.RolloutExport.complete(d, r),
		SecretManagement:  s.SecretManagement.complete(d, r),
		SOPS:              s.SOPS.complete(d, r),
		EventWatcher:      s.EventWatcher.complete(d),
		PlanPreview:       s.PlanPreview.complete(d),
		Previews:          s.Previews.complete(d),
		Retention:         s.Retention.complete(d),
		Telemetry:         s.Telemetry.complete(d),
		Debug:             s.Debug.complete(d),
		AppSelector:       s.AppSelector,
	}
}

func (s Store) complete(d *strict.Document, r resolver, dataDir string) Store {
	s.KeyFile = r.path("store.keyFile", s.KeyFile)
	dsn := s.DSN.Reveal()
	scheme, rest, _ := strings.Cut(dsn, "://")
	switch {
	case dsn == "":
		s.DSN = strict.NewSecret("sqlite://" + filepath.Join(dataDir, "piped.db"))
	case scheme == "sqlite" && rest != "":
		s.DSN = strict.NewSecret("sqlite://" + r.path("store.dsn", rest))
	case (scheme == "postgres" || scheme == "postgresql") && rest != "":
	default:
		d.Problemf("store.dsn", "expected sqlite://<path> or postgres://... (the value is not shown)")
	}
	if s.Replicas == ReplicasShare && !strings.HasPrefix(scheme, "postgres") {
		d.Problemf("store.replicas", "replicas share a database of PostgreSQL: set store.dsn to postgres://...")
	}
	if s.Replicas == ReplicasShare && s.KeyFile == "" {
		d.Problemf("store.replicas", "replicas share a key: set store.keyFile")
	}
	if s.Replicas == ReplicasShare && d.Has("previews") { // whose merges are only in the mirror of one replica
		d.Problemf("store.replicas", "previews of pull requests are deployed by one replica: remove previews, or let the replicas stand by")
	}
	return s
}

func (a API) complete(d *strict.Document, r resolver) API {
	a.TLSCertFile, a.TLSKeyFile = r.path("api.tlsCertFile", a.TLSCertFile), r.path("api.tlsKeyFile", a.TLSKeyFile)
	a.ClientCAFile, a.AuditFile = r.path("api.clientCAFile", a.ClientCAFile), r.path("api.auditFile", a.AuditFile)
	checkTLS(d, "api", a.TLSCertFile, a.TLSKeyFile, a.ClientCAFile)
	exclusive(d, field{"api.tlsCertFile", a.TLSCertFile != ""}, field{"api.insecure", a.Insecure})
	if a.RateLimit.PerSecond < 0 {
		d.Problemf("api.rateLimit.perSecond", "expected 0 (no limit) or more, found %d", a.RateLimit.PerSecond)
	}
	if a.RateLimit.Burst < 1 {
		d.Problemf("api.rateLimit.burst", "expected 1 or more, found %d", a.RateLimit.Burst)
	}
	host, ok := checkAddress(d, "api.address", a.Address)
	if ok && !loopback(host) && a.TLSCertFile == "" && !a.Insecure {
		d.Problemf("api.address", "%s is reachable from other machines: set api.tlsCertFile and api.tlsKeyFile, or api.insecure: true", a.Address)
	}
	return a
}

func (w Web) complete(d *strict.Document, r resolver) Web {
	w.TLSCertFile, w.TLSKeyFile = r.path("web.tlsCertFile", w.TLSCertFile), r.path("web.tlsKeyFile", w.TLSKeyFile)
	w.ClientCAFile = r.path("web.clientCAFile", w.ClientCAFile)
	checkTLS(d, "web", w.TLSCertFile, w.TLSKeyFile, w.ClientCAFile)
	exclusive(d, field{"web.tlsCertFile", w.TLSCertFile != ""}, field{"web.insecure", w.Insecure})
	checkAddress(d, "web.address", w.Address)
	return w
}

// checkTLS checks which files of a server's TLS are set.
func checkTLS(d *strict.Document, section, cert, key, clientCA string) {
	pair(d, field{section + ".tlsCertFile", cert != ""}, field{section + ".tlsKeyFile", key != ""})
	if clientCA != "" && cert == "" {
		d.Problemf(section+".clientCAFile", "asks clients for certificates, which needs %[1]s.tlsCertFile and %[1]s.tlsKeyFile", section)
	}
}

func checkAddress(d *strict.Document, field, address string) (host string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		d.Problemf(field, "expected host:port, found %q", address)
		return "", false
	}
	return host, true
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

func (g Git) complete(d *strict.Document, r resolver) Git {
	exclusive(d, field{"git.sshKeyFile", g.SSHKeyFile != ""}, field{"git.sshKeyData", !g.SSHKeyData.IsEmpty()},
		field{"git.password", !g.Password.IsEmpty()}, field{"git.passwordFile", g.PasswordFile != ""})
	if !g.Password.IsEmpty() && g.Username == "" {
		d.Problemf("git.password", "needs git.username too")
	}
	if g.PasswordFile != "" && g.Username == "" {
		d.Problemf("git.passwordFile", "needs git.username too")
	}
	g.Password = base64Secret(d, "git.password", g.Password)
	g.SSHKeyData = base64Secret(d, "git.sshKeyData", g.SSHKeyData)
	if g.Username == "" {
		g.Username = "piped"
	}
	if g.HostName == "" {
		g.HostName = g.Host
	}
	for i, host := range g.RemoteHosts {
		u, err := url.Parse("//" + strings.TrimPrefix(host, "http://"))
		if err != nil || u.Hostname() == "" || u.User != nil || strings.HasSuffix(u.Host, ":") || u.Host != strings.TrimPrefix(host, "http://") {
			d.Problemf(fmt.Sprintf("git.remoteHosts[%d]", i), "expected a host such as github.com or git.example.com:8443, found %q", host)
		}
	}
	g.SSHKeyFile, g.KnownHostsFile = r.path("git.sshKeyFile", g.SSHKeyFile), r.path("git.knownHostsFile", g.KnownHostsFile)
	g.PasswordFile = r.path("git.passwordFile", g.PasswordFile)
	return g
}

func completeRepositories(repos []Repository, d *strict.Document, r resolver) []Repository {
	seen := names{d: d}
	for i := range repos {
		repo, at := &repos[i], fmt.Sprintf("repositories[%d]", i)
		seen.add(at, "repoId", repo.RepoID)
		required(d, at+".remote", repo.Remote)
		required(d, at+".branch", repo.Branch)
		if u, err := url.Parse(repo.Remote); err == nil && u.User != nil {
			if _, has := u.User.Password(); has {
				d.Problemf(at+".remote", "holds a password, which would be shown to others; use git.username and git.password")
			}
		}
		if strings.HasPrefix(repo.Remote, "./") || strings.HasPrefix(repo.Remote, "../") || strings.HasPrefix(repo.Remote, "~/") {
			repo.Remote = r.path(at+".remote", repo.Remote)
		}
	}
	return repos
}

// resolver turns paths of the configuration into ones that can be opened.
type resolver struct {
	d      *strict.Document
	folder string // of the configuration file
	home   string // "" when unknown
}

// path expands a leading ~ and joins relative paths to the file's folder.
func (r resolver) path(field, p string) string {
	if p == "~" || strings.HasPrefix(p, "~/") {
		if r.home == "" {
			r.d.Problemf(field, "%q needs the home directory, and HOME is not set; write an absolute path", p)
			return p
		}
		return filepath.Join(r.home, p[1:])
	}
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(r.folder, p)
}
