package kustomize

import (
	"net/url"
	"path"
	"regexp"
	"strings"
)

// remoteRef is a reference to a directory of another repository.
type remoteRef struct {
	remote string // the Git remote
	ref    string // "" for the default branch
	dir    string // in the repository, slash-separated; "." for its root
}

var scpUser = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9-]*@`)

// isRemote reports whether Kustomize could interpret a path as remote: it has the prefix git::,
// a URL scheme, the form user@host:path, or begins with github.com.
func isRemote(entry string) bool {
	lower := strings.ToLower(entry)
	for _, prefix := range []string{"git::", "github.com/", "github.com:"} {
		if strings.HasPrefix(lower, prefix) {
			return true
		}
	}
	if scpUser.MatchString(entry) || strings.Contains(entry, "://") {
		return true
	}
	u, err := url.Parse(entry)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https")
}

// parseRemote parses a reference in one of Kustomize's formats:
//
//	https://host/org/repo//dir?ref=v1   https://host/org/repo.git/dir?ref=v1
//	https://host/org/repo/dir           ssh://git@host/org/repo//dir
//	git@host:org/repo//dir?ref=v1       github.com/org/repo/dir   git::<any of these>
//
// why is the reason why the reference is invalid, "" if it is valid.
func parseRemote(entry string) (r remoteRef, why string) {
	rest, query, _ := strings.Cut(trimFold(entry, "git::"), "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return r, "its query cannot be read; write ?ref=<branch, tag or commit>"
	}
	r.ref = values.Get("version")
	if ref := values.Get("ref"); ref != "" {
		r.ref = ref
	}
	host, rest, why := cutHost(rest)
	if why != "" {
		return r, why
	}
	repo, dir, ok := cutRepository(rest)
	if !ok {
		return r, "expected a repository as in https://host/org/repo//dir?ref=v1"
	}
	r.remote, r.dir = host+repo, path.Clean(strings.TrimPrefix(dir, "/"))
	switch ext := path.Ext(r.dir); {
	case r.dir == ".." || strings.HasPrefix(r.dir, "../"):
		return r, "it leads out of its repository"
	case ext == ".yaml" || ext == ".yml" || ext == ".json":
		return r, "single files of a Git repository are not fetched this way; use the address at which its host serves the file, or refer to a directory with a kustomization"
	}
	return r, ""
}

// cutHost splits a reference after the host. host includes scheme, user and the separator. why
// is as in parseRemote.
func cutHost(text string) (host, rest, why string) {
	for _, scheme := range []string{"https://", "http://", "ssh://"} {
		if after := trimFold(text, scheme); after != text {
			host, rest, ok := strings.Cut(after, "/")
			if !ok || host == "" {
				return "", "", "it names no repository"
			}
			if user, _, ok := strings.Cut(host, "@"); ok && strings.Contains(user, ":") {
				return "", "", "it holds a password, which everyone can read; use git.username and git.password of the agent"
			}
			return scheme + host + "/", rest, ""
		}
	}
	if strings.Contains(text, "://") {
		return "", "", "expected https, ssh or user@host:path"
	}
	for _, short := range []string{"github.com/", "github.com:"} {
		if after := trimFold(text, short); after != text {
			return "https://github.com/", after, ""
		}
	}
	host, rest, ok := strings.Cut(text, ":")
	if !ok || strings.Contains(host, "/") || rest == "" {
		return "", "", "expected https, ssh or user@host:path"
	}
	return host + ":", rest, ""
}

// cutRepository splits a path at the end of the repository: after _git/<name>, at //, after
// .git, or else after two elements.
func cutRepository(text string) (repo, dir string, ok bool) {
	if at := strings.Index(text, "_git/"); at >= 0 {
		name, dir, _ := strings.Cut(text[at+len("_git/"):], "/")
		return text[:at] + "_git/" + name, dir, name != ""
	}
	if repo, dir, ok := strings.Cut(text, "//"); ok {
		return repo, dir, repo != ""
	}
	if at := strings.Index(text, ".git"); at >= 0 {
		return text[:at+len(".git")], text[at+len(".git"):], at > 0
	}
	org, rest, ok := strings.Cut(text, "/")
	name, dir, _ := strings.Cut(rest, "/")
	return org + "/" + name, dir, ok && org != "" && name != ""
}

// trimFold removes a prefix, ignoring case.
func trimFold(text, prefix string) string {
	if len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix) {
		return text[len(prefix):]
	}
	return text
}

// isRemoteFile reports whether an entry is the address of a single file and not of a
// repository.
func isRemoteFile(entry string) bool {
	u, err := url.Parse(entry)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	ext := path.Ext(u.Path)
	return (ext == ".yaml" || ext == ".yml" || ext == ".json") && !strings.Contains(u.Path, "//") && !strings.Contains(u.Path, ".git/")
}
