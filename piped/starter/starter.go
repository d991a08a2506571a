package starter

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
)

// Provider is the name of the platform provider. It is the one that PipeCD's quickstart and many
// of its examples use.
const Provider = "kubernetes-default"

// Options are what a user may say. Only Repo is required.
type Options struct {
	Repo   string // a path or an address
	Branch string // "" is what the HEAD of the repository refers to
	Path   string // a directory of the repository; "" is all of it

	Kubeconfig string // "" is what kubectl would use
	Context    string // "" is the current one

	DataDir                string // "" is the default
	APIAddress, WebAddress string // "" is the default

	GitUsername     string // "" is the default
	GitPasswordFile string // "" is no password
	SSHKeyFile      string // "" is the ssh agent, and the user's keys
}

// Configuration contains the values of a configuration.
type Configuration struct {
	RepoID, Remote, Branch, Path string
	Cluster                      Cluster
	DataDir                      string
	APIAddress, WebAddress       string
	GitUsername, GitPassword     string // the password is base64, as in the file
	SSHKeyFile                   string
}

// New completes the options. Errors are of kind deploy.Invalid, or Unavailable if the repository
// cannot be reached.
func New(ctx context.Context, o Options) (c Configuration, err error) {
	c = Configuration{Remote: o.Repo, Branch: o.Branch, APIAddress: o.APIAddress, WebAddress: o.WebAddress, GitUsername: o.GitUsername}
	if c.Path, err = directory(o.Path); err != nil {
		return c, err
	}
	if c.DataDir, err = absolute(o.DataDir); err != nil {
		return c, err
	}
	if c.SSHKeyFile, err = absolute(o.SSHKeyFile); err != nil {
		return c, err
	}
	if c.Cluster, err = FindCluster(o.Kubeconfig, o.Context); err != nil {
		return c, err
	}
	if _, err := os.Stat(o.Repo); err == nil {
		if c.Remote, err = absolute(o.Repo); err != nil {
			return c, err
		}
	}
	c.RepoID = RepoID(c.Remote)
	auth, err := o.auth()
	if err != nil {
		return c, err
	}
	if auth.Password != "" {
		c.GitPassword = base64.StdEncoding.EncodeToString([]byte(auth.Password))
	}
	if c.Branch == "" {
		c.Branch, err = git.DefaultBranch(ctx, c.Remote, auth)
	}
	return c, err
}

// auth returns the credentials for the repository.
func (o Options) auth() (auth git.Auth, err error) {
	auth.Username = cmp.Or(o.GitUsername, "piped")
	if auth.Password, err = secretIn("--git-password-file", o.GitPasswordFile); err != nil {
		return auth, err
	}
	auth.SSHKey, err = secretIn("--ssh-key-file", o.SSHKeyFile)
	return auth, err
}

// secretIn returns the secret in the file that a flag names, "" without a file.
func secretIn(flag, file string) (git.Secret, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%s: %w", flag, err)
	}
	return git.Secret(strings.TrimRight(string(data), "\r\n")), nil
}

// directory returns a directory of the repository in the form of patterns, "" for its root.
func directory(dir string) (string, error) {
	clean := path.Clean("/" + filepath.ToSlash(dir))
	if strings.ContainsAny(clean, "*?[!") {
		return "", deploy.Errorf(deploy.Invalid, "--path %q: name a directory of the repository; patterns belong into spec.repositories[].discover.paths of a configuration file", dir)
	}
	return strings.TrimPrefix(clean, "/"), nil
}

// absolute returns a path that does not depend on the working directory, "" for "".
func absolute(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	out, err := filepath.Abs(file)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "find %s: %w", file, err)
	}
	return out, nil
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// RepoID returns an ID for a repository: the last name in its address.
func RepoID(remote string) string {
	remote = strings.TrimSuffix(strings.TrimRight(remote, "/"), ".git")
	name := strings.Trim(unfit.ReplaceAllString(remote[strings.LastIndexAny(remote, "/:")+1:], "-"), "-.")
	return cmp.Or(name, "repository")
}

// Contains reports whether a directory of the repository is among those with the applications.
func (c Configuration) Contains(dir string) bool {
	return c.Path == "" || dir == c.Path || strings.HasPrefix(dir, c.Path+"/")
}

// String says in one line what is deployed from where to where.
func (c Configuration) String() string {
	from := fmt.Sprintf("branch %s of %s", c.Branch, git.ShownRemote(c.Remote))
	if c.Path != "" {
		from = fmt.Sprintf("%s in %s", c.Path, from)
	}
	return fmt.Sprintf("%s to %s", from, c.Cluster)
}
