package githost

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
)

// defaultPort returns the default port of a URL scheme; known is false for schemes without
// a host.
func defaultPort(scheme string) (port int, known bool) {
	switch scheme {
	case "https":
		return 443, true
	case "http":
		return 80, true
	case "ssh", "git+ssh", "ssh+git":
		return 22, true
	case "git":
		return 9418, true
	default:
		return 0, false
	}
}

// SameRepository reports whether two remotes, each a URL or of the form user@host:path,
// are addresses of the same repository. It compares the host (case-insensitive), a
// non-default port, and the path (case-sensitive). It ignores the scheme, the user,
// slashes around the path, a final .git, and the scm/ that Bitbucket Data Center puts
// before it over HTTP. A path without a host equals nothing.
func SameRepository(a, b string) bool {
	x, known := repository(a)
	if !known {
		return false
	}
	y, known := repository(b)
	return known && x == y
}

// repository returns the address of a repository as host/path without the parts that
// SameRepository ignores; ok is false if there is no host or no path.
func repository(remote string) (address string, ok bool) {
	// Parsed in the same way as in package git.
	e, err := transport.NewEndpoint(remote)
	if err != nil || e.Host == "" {
		return "", false
	}
	port, known := defaultPort(e.Protocol)
	if !known {
		return "", false
	}
	host := strings.ToLower(e.Host)
	if e.Port != 0 && e.Port != port {
		host += ":" + strconv.Itoa(e.Port)
	}
	path, _, _ := strings.Cut(e.Path, "?")
	path = strings.Trim(path, "/")
	if strings.HasPrefix(e.Protocol, "http") {
		path = strings.TrimPrefix(path, "scm/")
	}
	path = strings.TrimSuffix(path, ".git")
	return host + "/" + path, path != ""
}

// plainPath is the path of a repository that an address of an API can contain unchanged: no part is
// "." or "..", or has a character with a meaning in URLs.
var plainPath = regexp.MustCompile(`^[\w-][\w.-]*(?:/[\w-][\w.-]*)+$`)

// Repository returns the path on the host of the repository that text names: a remote, or the host
// followed by the path. ok is false if it is on another host, or no path of a repository. The
// path is safe to use in calls also if the text is not trusted.
func (a *API) Repository(text string) (path string, ok bool) {
	remote := text
	if host, rest, _ := strings.Cut(text, "/"); strings.EqualFold(host, a.host) {
		remote = "https://" + a.host + "/" + rest
	}
	if path, ok = projectPath(remote); !ok || !a.Serves(remote) || !plainPath.MatchString(path) {
		return "", false
	}
	return path, true
}

// Remote returns the address of a repository, given by its path on the host.
func (a *API) Remote(path string) string { return "https://" + a.host + "/" + path }
