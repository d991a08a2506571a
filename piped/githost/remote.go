package githost

import (
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
)

// defaultPort returns the port of a scheme that need not be written. Schemes
// whose addresses name no host are not known.
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

// SameRepository reports whether two remotes, each a URL or of the form
// user@host:path, are addresses of one repository. What tells them apart is
// the host without regard to case, a port that is not the default of its
// scheme, and the path with regard to case. The scheme, the user, slashes around
// the path, .git at its end, and the scm/ that Bitbucket Data Center puts before
// it over HTTP do not. A path without a host is never the same as anything.
func SameRepository(a, b string) bool {
	x, known := repository(a)
	if !known {
		return false
	}
	y, known := repository(b)
	return known && x == y
}

// repository returns the text that all addresses of one repository have in
// common.
func repository(remote string) (string, bool) {
	// Parsed as package git does, which fetches from it.
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
