package config

import (
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// KindPiped is the kind of the agent's own configuration.
const KindPiped = "Piped"

// Piped is the agent's configuration, complete and valid. Paths are absolute
// or relative to the working directory, never to the file.
type Piped struct {
	ProjectID string
	PipedID   string
	Name      string
	// DataDir is where the agent keeps its mirrors, keys and, by default, its store.
	DataDir string
	Store   Store
	API     API
	Web     Web
	// SyncInterval is how often the heads of the watched branches are asked for.
	SyncInterval time.Duration
	Git          Git
	Repositories []Repository
	Webhooks     []Webhook
	GitHosts     []GitHost
	Providers    []PlatformProvider
	Limits       Limits
	Tenancy      Tenancy
	Adopt        Adopt
	Scripts      Scripts
	// SecretManagement says how the secrets in Git are encrypted.
	SecretManagement SecretManagement
	// SOPS are the keys of SOPS files in Git.
	SOPS SOPS

	Charts            Charts
	ChartRepositories []ChartRepository
	ChartRegistries   []ChartRegistry
	AnalysisProviders []AnalysisProvider
	EventWatcher      EventWatcher
	PlanPreview       PlanPreview
	// Notifications say who is told what.
	Notifications Notifications
	RolloutExport RolloutExport
	Retention     Retention
	Telemetry     Telemetry
	Debug         Debug

	// AppSelector is in PipeCD the labels an application must have to be suggested for
	// registration. It is checked, and not used by this version.
	AppSelector map[string]string

	// Unread names what of the file is not read, one line each: unknown keys above all.
	Unread []string
}

// Store is spec.store.
type Store struct {
	// DSN is sqlite://<path> or postgres://...; it may hold a password.
	DSN strict.Secret `yaml:"dsn"`
}

// API is spec.api: where the control API listens.
type API struct {
	Address     string `yaml:"address"`
	TLSCertFile string `yaml:"tlsCertFile"`
	TLSKeyFile  string `yaml:"tlsKeyFile"`
	// ClientCAFile holds the authorities of the certificates that clients must show;
	// "" means that they need none.
	ClientCAFile string `yaml:"clientCAFile"`
	// Insecure permits listening beyond loopback without TLS.
	Insecure  bool      `yaml:"insecure"`
	RateLimit RateLimit `yaml:"rateLimit"`
	// AuditFile is where calls that change something are recorded beside the log.
	AuditFile string `yaml:"auditFile"`
}

// RateLimit is spec.api.rateLimit: how many calls may be made with one API key.
type RateLimit struct {
	PerSecond int `yaml:"perSecond"` // 0 is no limit
	Burst     int `yaml:"burst"`     // at once
}

// Web is spec.web: where webhooks and health are served.
type Web struct {
	Address     string `yaml:"address"`
	TLSCertFile string `yaml:"tlsCertFile"` // "": plain HTTP
	TLSKeyFile  string `yaml:"tlsKeyFile"`
	// ClientCAFile holds the authorities of the certificates that clients must show;
	// "" means that they need none.
	ClientCAFile string `yaml:"clientCAFile"`
}

// Git is spec.git. Secrets are decoded: what the file holds in base64 is plain
// here.
type Git struct {
	Username string `yaml:"username"`
	Email    string `yaml:"email"`
	// SSHKeyFile, SSHKeyData and Password exclude one another.
	SSHKeyFile string        `yaml:"sshKeyFile"`
	SSHKeyData strict.Secret `yaml:"sshKeyData"`
	Password   strict.Secret `yaml:"password"`
	// Host is the host of remotes for which the credentials are, "" for all of
	// them; HostName is where it is reached.
	Host     string `yaml:"host"`
	HostName string `yaml:"hostName"`
	// KnownHostsFile holds the SSH host keys; "" means the user's and the system's.
	KnownHostsFile string `yaml:"knownHostsFile"`
	// RemoteHosts are hosts that kustomizations and charts may refer to, beside
	// those of repositories and chart repositories: a name, or name:port for that
	// port alone; with http:// in front, unencrypted HTTP is allowed, too.
	RemoteHosts []string `yaml:"remoteHosts"`
}

// Repository is one watched branch.
type Repository struct {
	RepoID string `yaml:"repoId"`
	Remote string `yaml:"remote"`
	Branch string `yaml:"branch"`
	// Discover selects which candidates become applications; nil selects none.
	Discover *Discover `yaml:"discover"`
}

// Discover selects applications of a repository. Empty, it selects all.
type Discover struct {
	Paths  Patterns          `yaml:"paths"`  // of configuration files, combined: ! excludes
	Labels map[string]string `yaml:"labels"` // all must be equal
}

// Selects reports whether the application configured at configPath (from the
// repository's root) with the given labels belongs to this agent.
func (r Repository) Selects(configPath string, labels map[string]string) bool {
	if r.Discover == nil {
		return false
	}
	for k, v := range r.Discover.Labels {
		if have, ok := labels[k]; !ok || have != v {
			return false
		}
	}
	return len(r.Discover.Paths) == 0 || r.Discover.Paths.MatchCombined(configPath)
}

// Limits is spec.limits: how many deployments run at a time.
type Limits struct {
	Deployments int `yaml:"deployments"`
	// PerCluster is the limit for each platform provider; 0 means none of its own.
	PerCluster int `yaml:"perCluster"`
}

// Files returns every file that the configuration names and the agent reads,
// sorted: when one changes, the agent's configuration has changed. Files the
// agent looks for without being told, such as the user's known hosts, are not
// among them.
func (p *Piped) Files() []string {
	files := []string{p.API.TLSCertFile, p.API.TLSKeyFile, p.API.ClientCAFile, p.Web.TLSCertFile, p.Web.TLSKeyFile, p.Web.ClientCAFile, p.Git.SSHKeyFile, p.Git.KnownHostsFile}
	for _, provider := range p.Providers {
		files = append(files, provider.Kubernetes.KubeConfigPath)
	}
	for _, hook := range p.Webhooks {
		files = append(files, hook.SecretFile)
	}
	for _, host := range p.GitHosts {
		files = append(files, host.files()...)
	}
	for _, charts := range p.ChartRepositories {
		files = append(files, charts.SSHKeyFile)
	}
	files = append(files, p.Notifications.files()...)
	files = append(files, p.SecretManagement.files()...)
	files = append(files, p.SOPS.AgeIdentityFile, p.SOPS.PGPKeyFile, p.SOPS.PGPPassphraseFile)
	for _, rule := range p.Tenancy {
		files = append(files, rule.VerifyCommits.files()...)
	}
	files = slices.DeleteFunc(files, func(name string) bool { return name == "" })
	slices.Sort(files)
	return slices.Compact(files)
}

// SecretFiles returns those of Files that are not made to be public, as certificates and
// keys to verify signatures with are.
func (p *Piped) SecretFiles() []string {
	public := []string{p.API.TLSCertFile, p.API.ClientCAFile, p.Web.TLSCertFile, p.Web.ClientCAFile, p.Git.KnownHostsFile}
	if pair, ok := p.SecretManagement.Config.(*KeyPair); ok {
		public = append(public, pair.PublicKeyFile)
	}
	for _, rule := range p.Tenancy {
		public = append(public, rule.VerifyCommits.files()...)
	}
	return slices.DeleteFunc(p.Files(), func(name string) bool { return slices.Contains(public, name) })
}

// LoadPiped reads the agent's configuration from a file. See ParsePiped.
func LoadPiped(path string) (*Piped, []string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, deploy.Errorf(deploy.Invalid, "read the configuration: %w", err)
	}
	return ParsePiped(path, data)
}

// ParsePiped reads the agent's configuration; name is the file's path: it stands
// for the file in errors, and relative paths in the configuration are relative
// to its folder. The warnings name what is accepted but has no effect, one line
// each. Errors are of kind deploy.Invalid and name every problem, one a line.
func ParsePiped(name string, data []byte) (*Piped, []string, error) {
	d, err := strict.Parse(name, data, APIVersion)
	if err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	if d.Kind != KindPiped {
		return nil, nil, deploy.Errorf(deploy.Invalid, "%s:%d: kind: expected %s, found %q", name, d.KindLine, KindPiped, d.Kind)
	}
	spec := defaultPipedSpec()
	d.Decode(d.Spec, strict.Field{Base: "spec"}, &spec, pipedRules())
	home, _ := os.UserHomeDir() // asked for only by paths that begin with ~
	r := resolver{d: d, folder: filepath.Dir(name), home: home}
	p := spec.complete(d, r)
	p.checkScripts(d, name)
	if err := d.Err(); err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	p.Unread = d.Unread()
	return p, append(d.Warnings(), p.Unread...), nil
}
