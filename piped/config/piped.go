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
	Access       Access
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
	Previews          *Previews // nil: no pull request is deployed
	// Notifications configure which receivers get which events.
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
	// InFile has the fields that the file contains, by path of the spec. It is read-only.
	InFile map[string]bool
}

// Store is spec.store.
type Store struct {
	// DSN is the database: `sqlite://<path>` or `postgres://user:password@host/db`. One agent uses
	// a database. Replicas of it on PostgreSQL stand by; any other agent does not start and names
	// the first.
	// Default: `sqlite://<dataDir>/piped.db`. Type: DSN.
	DSN strict.Secret `yaml:"dsn"`
	// KeyFile is a file with the key that encrypts states to roll back to and sessions in the
	// database: 32 bytes, as such or in base64. All replicas of an agent need the same.
	// Default: `store.key` in `dataDir`, which the first start creates.
	KeyFile string `yaml:"keyFile"`
	// Replicas is what replicas of the agent on PostgreSQL do: with `standby` one works and the others
	// wait, with `share` those plan and run deployments, too. All replicas need the same.
	Replicas Replicas `yaml:"replicas"`
}

// API is spec.api: where the control API listens.
type API struct {
	// Address is the host:port on which the control API is served. Beyond loopback it needs TLS or
	// `api.insecure`.
	// Type: host:port.
	Address string `yaml:"address"`
	// TLSCertFile is the PEM certificate of the control API. The agent reads it again when it
	// changes.
	TLSCertFile string `yaml:"tlsCertFile"`
	// TLSKeyFile is the private key of that certificate.
	TLSKeyFile string `yaml:"tlsKeyFile"`
	// ClientCAFile turns on mutual TLS: PEM certificates of the authorities that sign the clients'
	// certificates. Clients still need an API key.
	ClientCAFile string `yaml:"clientCAFile"`
	// Insecure permits plaintext beyond loopback, in place of TLS.
	Insecure bool `yaml:"insecure"`
	// RateLimit limits the calls of each API key.
	RateLimit RateLimit `yaml:"rateLimit"`
	// AuditFile is a file to which the agent appends one line of JSON for each call that changes
	// something. Without it these records are in the log.
	AuditFile string `yaml:"auditFile"`
}

// RateLimit is spec.api.rateLimit: how many calls may be made with one API key.
type RateLimit struct {
	// PerSecond is how many calls per second one API key may make; a stream counts once. 0 is no
	// limit.
	PerSecond int `yaml:"perSecond"`
	// Burst is how many of these calls may come at once.
	Burst int `yaml:"burst"`
}

// Web is spec.web: where webhooks and health are served.
type Web struct {
	// Address is the host:port of the HTTP server.
	// Type: host:port.
	Address string `yaml:"address"`
	// TLSCertFile is the PEM certificate for TLS 1.2 or later, in place of plain HTTP. Probes then
	// need `scheme: HTTPS`, and Prometheus and webhooks `https://`.
	TLSCertFile string `yaml:"tlsCertFile"`
	// TLSKeyFile is the private key of that certificate.
	TLSKeyFile string `yaml:"tlsKeyFile"`
	// ClientCAFile turns on mutual TLS for every client: probes, Prometheus and Git hosts need a
	// certificate that one of these authorities (PEM) signed.
	ClientCAFile string `yaml:"clientCAFile"`
	// Insecure permits calls of the HTTP API in plaintext from other machines, such as a proxy
	// with TLS.
	Insecure bool `yaml:"insecure"`
}

// Git is spec.git. Secrets are decoded: what the file holds in base64 is plain
// here.
type Git struct {
	// Username is for basic authentication over HTTP, and the author of the commits that the agent
	// makes.
	// Default: `piped`.
	Username string `yaml:"username"`
	// Email is the address of the author of the commits that the agent makes.
	Email string `yaml:"email"`
	// SSHKeyFile is the private key for SSH. Without it and `sshKeyData` the agent uses the ssh
	// agent and the user's keys. Set one of `password`, `passwordFile`, `sshKeyFile` and `sshKeyData`.
	SSHKeyFile string `yaml:"sshKeyFile"`
	// SSHKeyData is the private key for SSH, in place of `sshKeyFile`.
	SSHKeyData strict.Secret `yaml:"sshKeyData"`
	// Password is the password or token that belongs to `username`.
	// Type: base64.
	Password strict.Secret `yaml:"password"`
	// PasswordFile is the file of the password or token, in place of `password`. Line breaks at its end
	// do not count. Not in PipeCD.
	PasswordFile string `yaml:"passwordFile"`
	// Host is the host that the credentials are for.
	// Default: every remote.
	Host string `yaml:"host"`
	// HostName is the name or address at which `host` is reached.
	// Default: `git.host`.
	HostName string `yaml:"hostName"`
	// KnownHostsFile holds the SSH host keys. An unknown host is refused, with the line to add.
	// Default: the user's and the system's files. Not in PipeCD.
	KnownHostsFile string `yaml:"knownHostsFile"`
	// RemoteHosts are further hosts from which kustomizations may take bases and single files, and
	// applications charts in Git: `github.com`, or `host:port`. `http://host` permits unencrypted
	// HTTP; loopback addresses need no permission. The hosts of `repositories` and
	// `chartRepositories` are always permitted. These hosts get no credentials unless `git.host`
	// names them.
	// Not in PipeCD.
	RemoteHosts []string `yaml:"remoteHosts"`
}

// Repository is one watched branch.
type Repository struct {
	// RepoID is the unique ID of the repository.
	// Required.
	RepoID string `yaml:"repoId"`
	// Remote is a path, `file://`, `http(s)://`, `ssh://` or `user@host:path`, without a password.
	// Required. Type: address.
	Remote string `yaml:"remote"`
	// Branch is the branch to watch.
	// Required.
	Branch string `yaml:"branch"`
	// Discover selects the configuration files that become applications without being added by
	// hand. `{}` selects all of the repository.
	// Default: none. Not in PipeCD.
	Discover *Discover `yaml:"discover"`
}

// Discover selects applications of a repository. Empty, it selects all.
type Discover struct {
	// Paths are patterns of configuration files; `!` excludes.
	// Default: all.
	Paths Patterns `yaml:"paths"`
	// Labels are labels that the application must have, all of them.
	// Default: all.
	Labels map[string]string `yaml:"labels"`
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
	// Deployments is how many deployments run at once.
	Deployments int `yaml:"deployments"`
	// PerCluster is the same limit for each platform provider. 0 is no limit of its own.
	// Default: `0`.
	PerCluster int `yaml:"perCluster"`
}

// Files returns every file that the configuration names and the agent reads,
// sorted: when one changes, the agent's configuration has changed. Files that
// the agent reads by default, such as the user's known hosts, are not among them.
func (p *Piped) Files() []string {
	files := []string{p.API.TLSCertFile, p.API.TLSKeyFile, p.API.ClientCAFile, p.Web.TLSCertFile, p.Web.TLSKeyFile, p.Web.ClientCAFile, p.Git.SSHKeyFile, p.Git.PasswordFile, p.Git.KnownHostsFile, p.Store.KeyFile}
	for _, provider := range p.Providers {
		files = append(files, provider.Config.Files()...)
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
	files = append(files, p.Access.files()...)
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
func (ks Kinds) LoadPiped(path string) (*Piped, []string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, deploy.Errorf(deploy.Invalid, "read the configuration: %w", err)
	}
	return ks.ParsePiped(path, data)
}

// ParsePiped reads the agent's configuration; name is the file's path: it stands
// for the file in errors, and relative paths in the configuration are relative
// to its folder. The warnings name what is accepted but has no effect, one line
// each. Errors are of kind deploy.Invalid and name every problem, one a line.
func (ks Kinds) ParsePiped(name string, data []byte) (*Piped, []string, error) {
	d, err := strict.Parse(name, data, APIVersion)
	if err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	if d.Kind != KindPiped {
		return nil, nil, deploy.Errorf(deploy.Invalid, "%s:%d: kind: expected %s, found %q", name, d.KindLine, KindPiped, d.Kind)
	}
	spec := defaultPipedSpec()
	d.Decode(d.Spec, strict.Field{Base: "spec"}, &spec, ks.pipedRules())
	home, _ := os.UserHomeDir() // asked for only by paths that begin with ~
	r := resolver{d: d, folder: filepath.Dir(name), home: home}
	p := spec.complete(d, r, ks)
	p.checkScripts(d, name)
	if err := d.Err(); err != nil {
		return nil, nil, &deploy.Error{Kind: deploy.Invalid, Err: err}
	}
	p.Unread, p.InFile = d.Unread(), d.Fields()
	return p, append(d.Warnings(), p.Unread...), nil
}
