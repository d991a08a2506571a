package helm

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/c785c783/piped/piped/deploy"
)

// Media types of a chart's layer in a registry, and the maximum size of a manifest. Helm before
// 3.7 wrote the legacy type.
const (
	chartLayer       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	legacyChartLayer = "application/tar+gzip"

	maxManifest = 1 << 20
)

// fetchOCI returns the archive of a chart in a registry and its label for messages. name has no
// scheme. version is an exact version, a constraint, or the digest of the chart's manifest.
func (r *rendering) fetchOCI(ctx context.Context, name, version string) ([]byte, string, error) {
	digest := strings.HasPrefix(version, "sha256:")
	if !exact(version) && !digest {
		chosen, err := r.newest(ctx, name, version)
		if err != nil {
			return nil, "", err
		}
		version = chosen
	}
	if data, ok := r.cache.get(ociScheme+name, version); ok {
		return data, ociScheme + name + ":" + version, nil
	}
	reference := name + ":" + strings.ReplaceAll(version, "+", "_") // tags cannot contain a plus sign
	if digest {
		reference = name + "@" + version
	}
	data, err := r.pull(ctx, reference)
	if err != nil {
		return nil, "", err
	}
	r.cache.put(data, ociScheme+name, version)
	return data, ociScheme + reference, nil
}

// repositoryOf returns a client for the repository of a reference, with the configured
// credentials. It uses plain HTTP for loopback addresses.
func (r *rendering) repositoryOf(reference string) (*remote.Repository, error) {
	repo, err := remote.NewRepository(reference)
	if err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s%s: not the name of a chart in a registry: %w", ociScheme, reference, err)
	}
	how := r.remotes.registry(reference)
	repo.PlainHTTP = isLoopback(repo.Reference.Registry)
	repo.Client = &auth.Client{
		Client:     r.remotes.client.secure,
		Cache:      auth.NewCache(),
		Credential: auth.StaticCredential(repo.Reference.Registry, auth.Credential{Username: how.username, Password: how.password}),
	}
	return repo, nil
}

// pull downloads the archive of the chart with a reference that has a tag or digest.
func (r *rendering) pull(ctx context.Context, reference string) ([]byte, error) {
	defer r.wait(ctx, "chart "+ociScheme+reference)()
	repo, err := r.repositoryOf(reference)
	if err != nil {
		return nil, err
	}
	shown := ociScheme + reference
	about, body, err := repo.Manifests().FetchReference(ctx, repo.Reference.Reference)
	if err != nil {
		return nil, registryError(ctx, shown, err)
	}
	defer body.Close()
	if about.Size > maxManifest {
		return nil, deploy.Errorf(deploy.Invalid, "%s has a manifest of %d bytes; expected at most %d", shown, about.Size, maxManifest)
	}
	data, err := content.ReadAll(body, about) // checks size and digest
	if err != nil {
		return nil, registryError(ctx, shown, err)
	}
	var m ocispec.Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, deploy.Errorf(deploy.Invalid, "%s has no valid manifest: %w", shown, err)
	}
	at := slices.IndexFunc(m.Layers, func(l ocispec.Descriptor) bool { return l.MediaType == chartLayer || l.MediaType == legacyChartLayer })
	if at < 0 {
		return nil, deploy.Errorf(deploy.Invalid, "%s is no Helm chart: it has no layer of type %s", shown, chartLayer)
	}
	layer := m.Layers[at]
	if layer.Size > r.limits.Archive {
		return nil, deploy.Errorf(deploy.Invalid, "%s has %d bytes; expected at most %d", shown, layer.Size, r.limits.Archive)
	}
	data, err = content.FetchAll(ctx, repo, layer) // checks size and digest
	if err != nil {
		return nil, registryError(ctx, shown, err)
	}
	return data, nil
}

// newest returns the highest version of a chart that satisfies a constraint.
func (r *rendering) newest(ctx context.Context, name, want string) (string, error) {
	defer r.wait(ctx, "chart "+ociScheme+name)()
	repo, err := r.repositoryOf(name)
	if err != nil {
		return "", err
	}
	var versions []string
	err = repo.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			versions = append(versions, strings.ReplaceAll(tag, "_", "+"))
		}
		if len(versions) > r.limits.Files {
			return deploy.Errorf(deploy.Invalid, "it has more than %d tags; name an exact version", r.limits.Files)
		}
		return nil
	})
	if err != nil {
		return "", registryError(ctx, ociScheme+name, err)
	}
	at, err := choose(versions, want)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%s%s: %w", ociScheme, name, err)
	}
	return versions[at], nil
}

// registryError converts an error of the registry client to one with a kind.
func registryError(ctx context.Context, shown string, err error) error {
	var answer *errcode.ErrorResponse
	switch {
	case errors.As(err, &answer):
		return refused(shown, answer.StatusCode)
	case errors.Is(err, errdef.ErrNotFound):
		return deploy.Errorf(deploy.Invalid, "%s does not exist", shown)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return refused(shown, 401)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrInvalidDescriptorSize), errors.Is(err, content.ErrTrailingData):
		return deploy.Errorf(deploy.Invalid, "%s is not what its digest says: %w", shown, err)
	case deploy.IsKind(err, deploy.Invalid):
		return deploy.Errorf(deploy.Invalid, "%s: %w", shown, err)
	}
	return unreachable(ctx, shown, err)
}
