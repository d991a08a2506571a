package install

import (
	"cmp"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/starter"
)

// Defaults of Options.
const (
	DefaultNamespace = "piped"
	DefaultBranch    = "main"
	DefaultPipedID   = "production"
	DefaultReplicas  = 3
	DefaultStorage   = "10Gi"
)

// Options select a variant. Repo and Image are required; what is "" or 0 has a default.
type Options struct {
	Namespace string // of the agent
	Image     string // the reference of the agent's image

	// Namespaces of the applications. Without them the agent has permissions in the whole
	// cluster.
	Namespaces []string

	Repo   string // an address over SSH or HTTP
	Branch string
	// GitUsername is the user for a repository over HTTP that is read with a password or token.
	GitUsername string
	Path        string // the directory of the repository with the applications; "" is all of it

	PipedID string // a part of the owner marks in the cluster

	StorageSize  string
	StorageClass string // "" is the cluster's default

	// Postgres is the address of the database, without a password. Without it the store is on a
	// volume.
	Postgres string
	Replicas int  // with Postgres
	Share    bool // with Postgres: the replicas share the work, and do not only stand by
}

// Variant contains the values of the manifests.
type Variant struct {
	Options
	RepoID     string
	RepoHost   string // with GitUsername: the host that gets the password
	SSH        bool   // the repository is read with the deploy key
	ReadsAs    bool   // the repository is read with the content of the Secret for Git
	Replicated bool   // the store is in PostgreSQL
	DSN        string // with Replicated: Postgres, and where the password is
}

// NewVariant completes and checks options. Errors are of kind deploy.Invalid.
func NewVariant(o Options) (v Variant, err error) {
	o.Namespace, o.Branch, o.PipedID = cmp.Or(o.Namespace, DefaultNamespace), cmp.Or(o.Branch, DefaultBranch), cmp.Or(o.PipedID, DefaultPipedID)
	o.StorageSize = cmp.Or(o.StorageSize, DefaultStorage)
	v = Variant{Options: o, RepoID: starter.RepoID(o.Repo), Replicated: o.Postgres != ""}
	for _, check := range []func() error{v.checkNames, v.checkRepository, v.checkImage, v.checkStore} {
		if err := check(); err != nil {
			return v, err
		}
	}
	return v, nil
}

// Scoped is the name of objects that are not in the agent's own namespace: it differs for each
// installation in a cluster.
func (v Variant) Scoped() string { return scoped(v.Namespace) }

// Scope says where the agent has permissions: in the whole cluster, or in some namespaces.
func (v Variant) Scope() string {
	if len(v.Namespaces) == 0 {
		return wholeCluster
	}
	return strings.Join(v.Namespaces, ",")
}

const (
	wholeCluster    = "*"
	annotationScope = "pipecd.dev/install-scope"
)

func scoped(namespace string) string {
	if namespace == DefaultNamespace {
		return "piped"
	}
	return "piped." + namespace
}

func (v *Variant) checkNames() error {
	for _, name := range append([]string{v.Namespace}, v.Namespaces...) {
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			return deploy.Errorf(deploy.Invalid, "the namespace %q: %s", name, problems[0])
		}
	}
	if len(v.Namespace) > maxNamespace {
		return deploy.Errorf(deploy.Invalid, "--namespace %s has more than %d characters: names of roles and labels contain it", v.Namespace, maxNamespace)
	}
	v.Namespaces = slices.Compact(slices.Sorted(slices.Values(v.Namespaces)))
	if !pipedID.MatchString(v.PipedID) {
		return deploy.Errorf(deploy.Invalid, "--piped-id %q: use letters, digits, dots, dashes and underscores", v.PipedID)
	}
	return nil
}

// maxNamespace leaves a label with the name of the namespace within the limit of 63 characters.
const maxNamespace = 40

var pipedID = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)

// checkRepository completes what depends on the repository's address.
func (v *Variant) checkRepository() error {
	protocol, err := git.Protocol(v.Repo)
	switch {
	case v.Repo == "":
		return deploy.Errorf(deploy.Invalid, "--repo is missing: name the repository with the applications, such as git@host:team/apps.git")
	case err != nil:
		return deploy.Errorf(deploy.Invalid, "--repo: %w", err)
	case protocol == "file":
		return deploy.Errorf(deploy.Invalid, "--repo %s: a pod cannot read a directory of this machine: use an address over SSH or HTTP", v.Repo)
	case git.PublicRemote(v.Repo) != v.Repo:
		return deploy.Errorf(deploy.Invalid, "--repo has credentials, and the configuration is no secret: leave them out, and give --git-username and --git-password-file, or use the address over SSH, for which a deploy key is made")
	case v.GitUsername != "" && protocol == "ssh":
		return deploy.Errorf(deploy.Invalid, "--git-username and --git-password-file are for a repository over HTTP: %s is read with a deploy key, see --ssh-key-file", v.Repo)
	case strings.ContainsFunc(v.GitUsername, unicode.IsControl):
		return deploy.Errorf(deploy.Invalid, "--git-username %q: it contains control characters", v.GitUsername)
	}
	v.SSH = protocol == "ssh"
	v.ReadsAs = v.SSH || v.GitUsername != ""
	v.RepoHost = hostOf(v.Repo)
	clean := path.Clean("/" + v.Path)
	if strings.ContainsAny(clean, "*?[!") {
		return deploy.Errorf(deploy.Invalid, "--path %q: name a directory of the repository; patterns belong into discover.paths of the configuration", v.Path)
	}
	v.Path = strings.TrimPrefix(clean, "/")
	return nil
}

// hostOf returns the host of an address over HTTP.
func hostOf(remote string) string {
	u, err := url.Parse(remote)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

func (v *Variant) checkImage() error {
	if v.Image == "" || strings.ContainsAny(v.Image, " \t\n\"'") {
		return deploy.Errorf(deploy.Invalid, "--image %q is no reference of an image: write REGISTRY/NAME:TAG", v.Image)
	}
	return nil
}

// checkStore completes what depends on where the store is.
func (v *Variant) checkStore() error {
	if size, err := resource.ParseQuantity(v.StorageSize); err != nil || size.Sign() <= 0 {
		return deploy.Errorf(deploy.Invalid, "--storage-size %q: write a size such as 10Gi", v.StorageSize)
	}
	if !v.Replicated {
		if v.Share {
			return deploy.Errorf(deploy.Invalid, "replicas that share the work need a database: name it with --postgres")
		}
		if v.Replicas > 1 {
			return deploy.Errorf(deploy.Invalid, "%d replicas need a database that they share: name it with --postgres", v.Replicas)
		}
		v.Replicas = 1
		return nil
	}
	if v.Replicas = cmp.Or(v.Replicas, DefaultReplicas); v.Replicas < 1 {
		return deploy.Errorf(deploy.Invalid, "--replicas %d: at least one agent runs", v.Replicas)
	}
	dsn, err := url.Parse(v.Postgres)
	switch {
	case err != nil || dsn.Scheme != "postgres" && dsn.Scheme != "postgresql" || dsn.Hostname() == "" || dsn.User.Username() == "" || strings.Trim(dsn.Path, "/") == "": // the error contains the address, which may contain a password
		return deploy.Errorf(deploy.Invalid, "--postgres: write postgres://USER@HOST:5432/DATABASE?sslmode=require")
	case hasPassword(dsn):
		return deploy.Errorf(deploy.Invalid, "--postgres has a password, and the configuration is no secret: write it to a file, and name that with --postgres-password-file")
	}
	if dsn.Query().Has("passfile") {
		return deploy.Errorf(deploy.Invalid, "--postgres has a passfile: the password is in the Secret %s", StoreSecret)
	}
	if dsn.RawQuery += "&passfile=" + passFile; strings.HasPrefix(dsn.RawQuery, "&") {
		dsn.RawQuery = dsn.RawQuery[1:]
	}
	v.DSN = dsn.String()
	return nil
}

func hasPassword(dsn *url.URL) bool {
	_, has := dsn.User.Password()
	return has || dsn.Query().Has("password")
}

// passFile is where the pods have the password of the database.
const passFile = "/etc/piped-store/pgpass"
