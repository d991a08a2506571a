package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// Access is spec.access: how users sign in, and what users and API keys may do.
type Access struct {
	// ExternalURL is the address at which browsers reach the web server: `https://`, or `http://`
	// on a loopback address. It has no path. Slack messages, commit statuses and comments link to
	// the page there. Issuers send users back to `<externalURL>/sign-in/<issuer>/callback`.
	// Required with `issuers`. Type: URL.
	ExternalURL string `yaml:"externalURL"`
	// Roles are the permissions of users and API keys. Without roles a user may do nothing. API
	// keys can have the built-in roles, too.
	// Default: none.
	Roles []AccessRole `yaml:"roles"`
	// Issuers are the services at which users sign in. Without issuers users sign in with API keys.
	// Default: none.
	Issuers []Issuer `yaml:"issuers"`
	// Sessions limits how long users stay signed in.
	Sessions Sessions `yaml:"sessions"`
}

// AccessRole is one role: who has it, in which applications, and what it permits.
type AccessRole struct {
	// Name is the unique name that API keys, messages and the audit log use for the role. A role
	// named like a built-in one replaces it.
	// Required.
	Name string `yaml:"name"`
	// Groups are groups as the issuer names them. Users in one of them have the role. GitHub's are
	// `org/team`.
	// Default: none.
	Groups []string `yaml:"groups"`
	// Subjects are users who have the role: e-mail addresses or logins, or `*` for every user who
	// is signed in.
	// Default: none.
	Subjects []string `yaml:"subjects"`
	// Applications restricts the role to some applications: those that satisfy each condition.
	// Default: all.
	Applications AccessApplications `yaml:"applications"`
	// Permissions are what the role permits: permissions, and built-in roles, which stand for
	// their permissions.
	// Required, except for a role named like a built-in one.
	Permissions []AccessPermission `yaml:"permissions"`

	// Position is the file and line of the role.
	Position string `yaml:"-"`
}

// AccessApplications selects applications.
type AccessApplications struct {
	// Labels are labels that the application must have.
	// Default: any.
	Labels map[string]string `yaml:"labels"`
	// Names are names of applications, or patterns in which `*` stands for any text.
	// Default: any.
	Names []string `yaml:"names"`
	// Repositories are the `repoId`s of the applications.
	// Default: any.
	Repositories []string `yaml:"repositories"`
}

// AccessPermission is a permission, or a built-in role that stands for its permissions.
type AccessPermission string

// builtInRoles returns the roles that are known without configuration.
func builtInRoles() []string { return []string{"viewer", "deployer", "approver", "admin"} }

// Values implements strict.Enum.
func (AccessPermission) Values() []string {
	var values []string
	for _, p := range deploy.Permissions() {
		values = append(values, string(p))
	}
	return append(values, builtInRoles()...)
}

// Granted returns the permissions of the role, each once: those of built-in roles are listed
// one by one.
func (r AccessRole) Granted() []deploy.Permission {
	names := r.Permissions
	if len(names) == 0 {
		names = []AccessPermission{AccessPermission(r.Name)}
	}
	var granted []deploy.Permission
	for _, name := range names {
		of, builtIn := deploy.BuiltInRole(string(name))
		if !builtIn {
			of = []deploy.Permission{deploy.Permission(name)}
		}
		for _, p := range of {
			if !slices.Contains(granted, p) {
				granted = append(granted, p)
			}
		}
	}
	return granted
}

// Selector returns the applications of the role.
func (r AccessRole) Selector() deploy.Selector { return deploy.Selector(r.Applications) }

// Issuer is a service at which users sign in.
type Issuer struct {
	// Name is the last part of the sign-in address, `/sign-in/<name>`, and names the issuer in the
	// audit log. A unique DNS label.
	// Required.
	Name string `yaml:"name"`
	// Type is the protocol: OpenID Connect, or GitHub with an OAuth app.
	Type IssuerType `yaml:"type"`
	// Issuer is the issuer's URL, exactly as the issuer writes it: `https://`, or `http://` on a
	// loopback address.
	// Required for `OIDC`. Type: URL.
	Issuer string `yaml:"issuer"`
	// ClientID is the ID that the issuer gave to this agent.
	// Required.
	ClientID string `yaml:"clientID"`
	// ClientSecretFile is the file of the secret that belongs to the client ID. Without it the
	// agent is a public client, which GitHub does not have.
	// Required for `GITHUB`. Type: path.
	ClientSecretFile string `yaml:"clientSecretFile"`
	// Scopes are what the agent asks for. `openid` is always added, and `offline_access` where the
	// issuer has it.
	// Default: `openid`, `email`, `profile`; for `GITHUB` `read:org`.
	Scopes []string `yaml:"scopes"`
	// GroupsClaim is the claim that lists the user's groups, of the ID token or else of the
	// userinfo endpoint. Only for `OIDC`.
	// Default: `groups`.
	GroupsClaim string `yaml:"groupsClaim"`
	// SubjectClaim is the claim that names the user in roles and in the audit log. An `email`
	// counts only if the issuer says that it is verified. Only for `OIDC`.
	// Default: `email`.
	SubjectClaim string `yaml:"subjectClaim"`
	// AllowedDomains are the domains of verified e-mail addresses with which users may sign in.
	// Only for `OIDC`.
	// Default: any user of the issuer.
	AllowedDomains []string `yaml:"allowedDomains"`
	// APIURL is the address of GitHub's API, such as `https://github.example.com/api/v3`. Only for
	// `GITHUB`.
	// Default: `https://api.github.com`. Type: URL.
	APIURL string `yaml:"apiURL"`
	// Teams are the teams, `org/team`, whose members may sign in. Only for `GITHUB`.
	// Default: any user of GitHub.
	Teams []string `yaml:"teams"`
}

// Default sets the type.
func (i *Issuer) Default() { i.Type = IssuerOIDC }

// IssuerType is the protocol of an issuer.
type IssuerType string

// The types of issuers.
const (
	IssuerOIDC   IssuerType = "OIDC"
	IssuerGitHub IssuerType = "GITHUB"
)

// Values implements strict.Enum.
func (IssuerType) Values() []string { return []string{string(IssuerOIDC), string(IssuerGitHub)} }

// Load returns the client secret, which is empty only for a public client. Errors are of kind
// deploy.Invalid and do not show the content.
func (i Issuer) Load() (strict.Secret, error) {
	if i.ClientSecretFile == "" {
		return strict.Secret{}, nil
	}
	return readSecret(i.ClientSecretFile, strings.TrimSpace, "the client secret of issuer "+i.Name, "write the secret into it that the issuer gave with the client ID")
}

// Sessions is spec.access.sessions.
type Sessions struct {
	// IdleTimeout ends a session that was not used for this time; `5m` or more.
	IdleTimeout time.Duration `yaml:"idleTimeout"`
	// MaxAge ends a session this time after the sign-in. It is not less than `idleTimeout`.
	MaxAge time.Duration `yaml:"maxAge"`
	// GroupsInterval is the time between two reads of a user's groups at the issuer; `1m` or more.
	GroupsInterval time.Duration `yaml:"groupsInterval"`
}

func defaultAccess() Access {
	return Access{Sessions: Sessions{IdleTimeout: 12 * time.Hour, MaxAge: 7 * 24 * time.Hour, GroupsInterval: 15 * time.Minute}}
}

// Limits of sessions: their last use is stored once a minute.
const (
	leastIdleTimeout    = 5 * time.Minute
	leastGroupsInterval = time.Minute
)

func (a Access) complete(d *strict.Document, r resolver, repositories []Repository) Access {
	completeRoles(a.Roles, d, repositories)
	completeIssuers(a.Issuers, d, r)
	a.Sessions.complete(d)
	switch {
	case a.ExternalURL != "":
		a.ExternalURL = strings.TrimSuffix(a.ExternalURL, "/")
		if u, ok := checkSecureURL(d, "access.externalURL", a.ExternalURL); ok && u.Path != "" {
			d.Problemf("access.externalURL", "expected a URL without a path, such as https://piped.example.com, found %q", a.ExternalURL)
		}
	case len(a.Issuers) > 0:
		d.Problemf("access.externalURL", "required with issuers, which send users back to it")
	}
	return a
}

// checkSecureURL checks that a URL is https, or http on a loopback address.
func checkSecureURL(d *strict.Document, field, text string) (u *url.URL, ok bool) {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		d.Problemf(field, "holds a user name or password, which would be shown to others; remove it")
		return nil, false
	case err != nil || u.Host == "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		d.Problemf(field, "expected a URL such as https://example.com, found %q", text)
		return nil, false
	case u.Scheme == "http" && !loopback(u.Hostname()):
		d.Problemf(field, "%s would send secrets unencrypted over the network; use https://", text)
		return nil, false
	}
	return u, true
}

func completeRoles(roles []AccessRole, d *strict.Document, repositories []Repository) {
	seen := names{d: d}
	for i := range roles {
		role, at := &roles[i], fmt.Sprintf("access.roles[%d]", i)
		role.Position = d.Position(at)
		seen.add(at, "name", role.Name)
		if role.Name == string(deploy.ReadOnly) || role.Name == string(deploy.ReadWrite) {
			d.Problemf(at+".name", "%s is a role of PipeCD's API keys, which cannot be replaced; choose another name", role.Name)
		}
		checkTexts(d, at+".groups", role.Groups)
		checkTexts(d, at+".subjects", role.Subjects)
		checkTexts(d, at+".applications.names", role.Applications.Names)
		checkTexts(d, at+".applications.repositories", role.Applications.Repositories)
		for j, id := range role.Applications.Repositories {
			if !slices.ContainsFunc(repositories, func(known Repository) bool { return known.RepoID == id }) {
				d.Problemf(fmt.Sprintf("%s.applications.repositories[%d]", at, j), "no repository %q is configured", id)
			}
		}
		role.checkPermissions(d, at)
	}
}

// checkTexts reports a list that is written and empty, and empty texts in it.
func checkTexts(d *strict.Document, list string, texts []string) {
	if d.Has(list) && !d.Has(list+"[0]") {
		d.Problemf(list, "is empty: name at least one, or leave the key out")
	}
	for i, text := range texts {
		required(d, fmt.Sprintf("%s[%d]", list, i), text)
	}
}

// checkPermissions reports a role without permissions, and one that is restricted to some
// applications and has permissions that are not about applications.
func (r AccessRole) checkPermissions(d *strict.Document, at string) {
	if len(r.Permissions) == 0 && !slices.Contains(builtInRoles(), r.Name) {
		d.Problemf(at+".permissions", "required; expected permissions, or built-in roles: %s", strict.Alternatives(builtInRoles()))
		return
	}
	if r.Selector().Empty() {
		return
	}
	var ofAgent []string
	for _, p := range r.Granted() {
		if !p.OfApplications() && p != deploy.PermEncrypt {
			ofAgent = append(ofAgent, string(p))
		}
	}
	if len(ofAgent) > 0 {
		d.Problemf(at+".applications", "restricts the role to some applications, and %s cannot be restricted; grant what concerns the agent in another role", strings.Join(ofAgent, " and "))
	}
}

func completeIssuers(issuers []Issuer, d *strict.Document, r resolver) {
	seen := names{d: d}
	for i := range issuers {
		issuer, at := &issuers[i], fmt.Sprintf("access.issuers[%d]", i)
		seen.add(at, "name", issuer.Name)
		if why := validation.IsDNS1123Label(issuer.Name); issuer.Name != "" && len(why) > 0 {
			d.Problemf(at+".name", "%q cannot be a part of a URL: %s", issuer.Name, why[0])
		}
		required(d, at+".clientID", issuer.ClientID)
		issuer.ClientSecretFile = r.path(at+".clientSecretFile", issuer.ClientSecretFile)
		checkTexts(d, at+".scopes", issuer.Scopes)
		checkTexts(d, at+".allowedDomains", issuer.AllowedDomains)
		checkTexts(d, at+".teams", issuer.Teams)
		switch issuer.Type {
		case IssuerGitHub:
			issuer.completeGitHub(d, at)
		default:
			issuer.completeOIDC(d, at)
		}
	}
}

func (i *Issuer) completeOIDC(d *strict.Document, at string) {
	unfit(d, "type "+string(IssuerOIDC), field{at + ".apiURL", d.Has(at + ".apiURL")}, field{at + ".teams", d.Has(at + ".teams")})
	if required(d, at+".issuer", i.Issuer); i.Issuer != "" {
		checkSecureURL(d, at+".issuer", i.Issuer)
	}
	if len(i.Scopes) == 0 {
		i.Scopes = []string{"openid", "email", "profile"}
	}
	if i.GroupsClaim == "" {
		i.GroupsClaim = "groups"
	}
	if i.SubjectClaim == "" {
		i.SubjectClaim = "email"
	}
}

func (i *Issuer) completeGitHub(d *strict.Document, at string) {
	unfit(d, "type "+string(IssuerGitHub), field{at + ".issuer", d.Has(at + ".issuer")}, field{at + ".groupsClaim", d.Has(at + ".groupsClaim")},
		field{at + ".subjectClaim", d.Has(at + ".subjectClaim")}, field{at + ".allowedDomains", d.Has(at + ".allowedDomains")})
	required(d, at+".clientSecretFile", i.ClientSecretFile)
	if i.APIURL = strings.TrimRight(i.APIURL, "/"); i.APIURL == "" {
		i.APIURL = "https://api.github.com"
	}
	checkSecureURL(d, at+".apiURL", i.APIURL)
	for j, team := range i.Teams {
		if org, slug, ok := strings.Cut(team, "/"); !ok || org == "" || slug == "" || strings.Contains(slug, "/") {
			d.Problemf(fmt.Sprintf("%s.teams[%d]", at, j), "expected org/team, found %q", team)
		}
	}
	if len(i.Scopes) == 0 {
		i.Scopes = []string{"read:org"}
	}
}

// complete sets what is left out or 0 to its default.
func (s *Sessions) complete(d *strict.Document) {
	otherwise := defaultAccess().Sessions
	atLeastZero(d, "access.sessions.idleTimeout", &s.IdleTimeout, otherwise.IdleTimeout)
	atLeastZero(d, "access.sessions.maxAge", &s.MaxAge, otherwise.MaxAge)
	atLeastZero(d, "access.sessions.groupsInterval", &s.GroupsInterval, otherwise.GroupsInterval)
	if s.IdleTimeout > 0 && s.IdleTimeout < leastIdleTimeout {
		d.Problemf("access.sessions.idleTimeout", "expected %s or more, found %s", leastIdleTimeout, s.IdleTimeout)
	}
	if s.GroupsInterval > 0 && s.GroupsInterval < leastGroupsInterval {
		d.Problemf("access.sessions.groupsInterval", "expected %s or more, found %s", leastGroupsInterval, s.GroupsInterval)
	}
	if s.MaxAge > 0 && s.MaxAge < s.IdleTimeout {
		d.Problemf("access.sessions.maxAge", "expected no less than idleTimeout, which is %s, found %s", s.IdleTimeout, s.MaxAge)
	}
}

// files returns the files that the issuers name.
func (a Access) files() []string {
	var files []string
	for _, issuer := range a.Issuers {
		files = append(files, issuer.ClientSecretFile)
	}
	return files
}
