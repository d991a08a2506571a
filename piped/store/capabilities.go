package store

import (
	"context"

	"github.com/c785c783/piped/piped/deploy"
)

// SaveCapabilities stores the capabilities of the cluster of a platform provider.
func (s *Store) SaveCapabilities(ctx context.Context, provider string, c deploy.Capabilities) error {
	versions, err := encode(c.APIVersions)
	if err == nil {
		err = s.write(ctx, func(t *tx) error {
			_, err := t.exec(ctx, `INSERT INTO capabilities (provider, kube_version, api_versions) VALUES (?, ?, ?)
				ON CONFLICT (provider) DO UPDATE SET kube_version = excluded.kube_version, api_versions = excluded.api_versions`,
				provider, c.KubeVersion, versions)
			return err
		})
	}
	return s.fail(err, "store what the cluster of platform provider "+provider+" serves")
}

// Capabilities returns the stored capabilities of the clusters, by platform provider.
func (s *Store) Capabilities(ctx context.Context) (map[string]deploy.Capabilities, error) {
	type row struct {
		provider string
		deploy.Capabilities
	}
	rows, err := all(ctx, s, func(sc scanner) (r row, err error) {
		var versions string
		if err := sc.Scan(&r.provider, &r.KubeVersion, &versions); err != nil {
			return r, err
		}
		return r, decode(versions, &r.APIVersions)
	}, "SELECT provider, kube_version, api_versions FROM capabilities")
	if err != nil {
		return nil, s.fail(err, "read what the clusters serve")
	}
	out := make(map[string]deploy.Capabilities, len(rows))
	for _, r := range rows {
		out[r.provider] = r.Capabilities
	}
	return out, nil
}
