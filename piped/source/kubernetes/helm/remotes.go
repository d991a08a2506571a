package helm

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// remotes holds the configured chart repositories (except those of type GIT) and registries.
type remotes struct {
	repositories []config.ChartRepository
	registries   []config.ChartRegistry
	client       *client
}

func newRemotes(repositories []config.ChartRepository, registries []config.ChartRegistry, c *client) *remotes {
	m := &remotes{client: c}
	for _, repo := range repositories {
		if repo.Type != config.ChartRepositoryGit {
			m.repositories = append(m.repositories, repo)
		}
	}
	for _, registry := range registries {
		registry.Address = strings.Trim(strings.TrimPrefix(registry.Address, ociScheme), "/")
		m.registries = append(m.registries, registry)
	}
	return m
}

const ociScheme = "oci://"

// access holds the credentials and the TLS setting for a server.
type access struct {
	host               string // the only host that they apply to
	username, password string
	insecure           bool // accept any certificate
}

// repository returns the address of a chart repository and the access to it. name is its
// configured name (with the prefix @ or alias: in Chart.yaml) or its address.
func (m *remotes) repository(name string) (string, access, error) {
	address, named := name, false
	for _, prefix := range []string{"@", "alias:"} {
		if rest, ok := strings.CutPrefix(name, prefix); ok {
			address, named = rest, true
		}
	}
	at := slices.IndexFunc(m.repositories, func(r config.ChartRepository) bool { return r.Name == address })
	if at < 0 && !named && isWeb(address) {
		at = slices.IndexFunc(m.repositories, func(r config.ChartRepository) bool {
			return strings.TrimSuffix(r.Address, "/") == strings.TrimSuffix(address, "/")
		})
		if at < 0 {
			return address, access{}, nil
		}
	}
	if at < 0 {
		return "", access{}, deploy.Errorf(deploy.Invalid,
			"there is no chart repository %q: add it to chartRepositories of the piped configuration, or use an address that begins with https:// or oci://", withoutSecrets(address))
	}
	repo := m.repositories[at]
	parsed, err := url.Parse(repo.Address)
	if err != nil {
		return "", access{}, deploy.Errorf(deploy.Invalid, "the address of chart repository %q is not valid; fix chartRepositories of the piped configuration", repo.Name)
	}
	return repo.Address, access{host: parsed.Host, username: repo.Username, password: repo.Password.Reveal(), insecure: repo.Insecure}, nil
}

// registry returns the access for a reference, which has no scheme. It has the credentials of
// the configured registry with the longest address that is a prefix of the reference.
func (m *remotes) registry(reference string) access {
	host, _, _ := strings.Cut(reference, "/")
	best := access{host: host}
	longest := 0
	for _, r := range m.registries {
		if (reference == r.Address || strings.HasPrefix(reference, r.Address+"/")) && len(r.Address) > longest {
			longest = len(r.Address)
			best.username, best.password = r.Username, r.Password.Reveal()
		}
	}
	return best
}

// fetch returns the archive of a chart and its label for messages. It needs no network for an
// exact version that is in the cache.
func (r *rendering) fetch(ctx context.Context, repository, name, version string) (data []byte, label string, err error) {
	if err := r.online(repository); err != nil {
		return nil, "", err
	}
	ctx, stop := context.WithTimeoutCause(ctx, r.limits.Download, deploy.Errorf(deploy.Unavailable, "it takes longer than %s", r.limits.Download))
	defer stop()
	if reference, ok := strings.CutPrefix(repository, ociScheme); ok {
		return r.fetchOCI(ctx, strings.TrimSuffix(reference, "/")+"/"+name, version)
	}
	address, how, err := r.remotes.repository(repository)
	if err != nil {
		return nil, "", err
	}
	if reference, ok := strings.CutPrefix(address, ociScheme); ok {
		return r.fetchOCI(ctx, strings.TrimSuffix(reference, "/")+"/"+name, version)
	}
	return r.fetchHTTP(ctx, address, how, name, version)
}

func (r *rendering) fetchHTTP(ctx context.Context, address string, how access, name, version string) ([]byte, string, error) {
	label := name + " %s of " + withoutSecrets(address)
	if exact(version) {
		if data, ok := r.cache.get(address, name, version); ok {
			return data, labeled(label, version), nil
		}
	}
	all, err := r.index(ctx, address, how, name)
	if err != nil {
		return nil, "", err
	}
	found, err := all.choose(version)
	if err != nil {
		return nil, "", deploy.Errorf(deploy.Invalid, "chart repository %s: chart %q: %w", withoutSecrets(address), name, err)
	}
	label = labeled(label, found.Version)
	data, ok := r.cache.get(address, name, found.Version)
	if !ok {
		if data, err = r.download(ctx, address, how, found); err != nil {
			return nil, "", err
		}
		r.cache.put(data, address, name, found.Version)
	}
	return data, label, nil
}

func labeled(label, version string) string { return strings.Replace(label, "%s", version, 1) }

// exact reports whether a version is a complete semantic version and not a constraint.
func exact(version string) bool {
	_, err := semver.StrictNewVersion(strings.TrimPrefix(version, "v"))
	return err == nil
}

// choose returns the index of the version that equals want, else of the highest version that
// satisfies the constraint want; "" is any version. Without a match it returns -1 and an error.
func choose(versions []string, want string) (int, error) {
	if at := slices.Index(versions, want); at >= 0 {
		return at, nil
	}
	if want == "" {
		want = "*"
	}
	constraint, err := semver.NewConstraint(want)
	if err != nil {
		return -1, deploy.Errorf(deploy.Invalid, "%q is neither a version nor a constraint of versions: %w", want, err)
	}
	best, highest := -1, (*semver.Version)(nil)
	for i, text := range versions {
		v, err := semver.NewVersion(text)
		if err == nil && constraint.Check(v) && (highest == nil || v.GreaterThan(highest)) {
			best, highest = i, v
		}
	}
	if best < 0 {
		return -1, deploy.Errorf(deploy.Invalid, "none of its %d versions is %s", len(versions), want)
	}
	return best, nil
}

// isLoopback reports whether a host, with or without a port, is localhost or a loopback
// address.
func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}

// withoutSecrets returns an address without user info, query and fragment, which may contain
// credentials.
func withoutSecrets(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "(an address that is not valid)"
	}
	parsed.User, parsed.RawQuery, parsed.Fragment = nil, "", ""
	return parsed.String()
}
