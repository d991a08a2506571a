package git

import (
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
)

// address is a parsed remote. The credentials of its URL are stored separately, so that
// endpoint and text contain no secret.
type address struct {
	endpoint *transport.Endpoint // without password; a user only over SSH
	user     string
	password Secret
	text     string // for messages
}

// parseAddress parses a path, a file, http, https or ssh URL, or the
// user@host:path form.
func parseAddress(remote string) (address, error) {
	ep, err := transport.NewEndpoint(remote)
	if err != nil {
		// The cause quotes the remote, which may hold a password.
		return address{}, fmt.Errorf("the remote is neither a path nor a URL such as https://host/path.git or git@host:path.git")
	}
	a := address{endpoint: ep, user: ep.User, password: Secret(ep.Password)}
	ep.Password = ""
	switch ep.Protocol {
	case "file":
		a.text = ep.Path
	case "http", "https":
		ep.User = ""
		ep.Path, _, _ = strings.Cut(ep.Path, "?")
		a.text = ep.String()
	case "ssh":
		if user, password, ok := strings.Cut(ep.User, ":"); ok { // user:password@host:path
			ep.User, a.user, a.password = user, user, Secret(password)
		}
		a.text = ep.String()
	default:
		return address{}, fmt.Errorf("scheme %q is not supported: use a path, http, https or ssh", ep.Protocol)
	}
	return a, nil
}

// PublicRemote returns a remote as it is configured if that contains no credentials, otherwise
// as ShownRemote does; "" for an invalid remote.
func PublicRemote(remote string) string {
	a, err := parseAddress(remote)
	if err != nil {
		return ""
	}
	overHTTP := strings.HasPrefix(a.endpoint.Protocol, "http")
	if a.password != "" || overHTTP && (a.user != "" || strings.Contains(remote, "?")) {
		return a.text
	}
	return remote
}

// commitURL returns the web page of the commit, "" if the remote is a path.
func (a address) commitURL(hash string) string {
	ep := *a.endpoint
	if ep.Protocol == "file" {
		return ""
	}
	if ep.Protocol == "ssh" {
		ep.Protocol, ep.User, ep.Port = "https", "", 0
	}
	section := "commit"
	if ep.Host == "bitbucket.org" {
		section = "commits"
	}
	ep.Path = "/" + strings.TrimSuffix(strings.Trim(ep.Path, "/"), ".git") + "/" + section + "/" + hash
	return ep.String()
}
