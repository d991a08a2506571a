package signin

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// maxPath limits the bytes of a path to return to.
const maxPath = 2048

// localPath returns a path of this server to which a browser may be sent, or "/" if the
// target could lead elsewhere.
func localPath(target string) string {
	u, err := url.Parse(target)
	switch {
	case err != nil, len(target) > maxPath, !strings.HasPrefix(target, "/"):
		return "/"
	case u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "":
		return "/"
	case strings.ContainsRune(target, ' '), strings.ContainsFunc(target+u.Path, unsafeInPath), strings.Contains(u.Path, "//"):
		return "/"
	}
	if u.RawQuery == "" {
		return u.EscapedPath()
	}
	return u.EscapedPath() + "?" + u.RawQuery
}

// unsafeInPath reports characters that browsers remove or read as a slash, and those that
// cannot stand in a header.
func unsafeInPath(r rune) bool { return r == '\\' || r < ' ' || r >= 0x7f && r < 0xa0 }

// address returns the host of a remote address.
func address(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	return host
}

// loopbackHost reports whether a Host header names this machine.
func loopbackHost(host string) bool {
	name := (&url.URL{Host: host}).Hostname()
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.IsLoopback()
}

// secure reports whether cookies are only for encrypted connections: always, but on plain HTTP
// to this machine.
func secure(externalURL string, r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(externalURL, "https://") || !loopbackHost(r.Host)
}
