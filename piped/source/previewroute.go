package source

import (
	"context"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
)

// RoutePreview describes the preview of one application of a pull request in the namespace of the
// application.
type RoutePreview struct {
	Name      string // of the preview, which is the value of Header
	Suffix    string // of the names of its objects
	Namespace string
	Header    string // "" for none
	Host      string // "" for none

	Workloads []kubernetes.Reference // to copy; empty: every Deployment that a Service selects
	Secrets   []string               // of the branch that the pods may read
}

// Routed is what a preview in the namespace of an application consists of.
type Routed struct {
	Objects   []manifest.Object
	ByHeader  bool     // requests with the header get the preview
	Hostnames []string // of requests with the header; nil: every host
	OwnHost   bool     // no other application may have the host
	Shared    []string // changes that it does not have, each with the reason
}

// previewed returns the objects of a preview, given those of the merge.
func (l *Loader) previewed(ctx context.Context, at deploy.GitPath, commit string, cfg *config.Application, merged []manifest.Object) (Routed, error) {
	if cfg.Preview.Mode != config.PreviewRoute {
		objects, err := l.previewObjects(merged, at, cfg)
		return Routed{Objects: objects}, err
	}
	branch, placed, err := l.onBranch(ctx, at, commit)
	if err != nil {
		return Routed{}, err
	}
	spec := kubernetes.SpecOf(cfg.Platform)
	if namespace := kubernetes.SpecOf(placed.Platform).Input.Namespace; namespace != spec.Input.Namespace {
		return Routed{}, deploy.Errorf(deploy.Invalid, "%s: the pull request changes spec.input.namespace from %q to %q, which counts when it is merged", at.ConfigPath(), namespace, spec.Input.Namespace)
	}
	host, err := cfg.Preview.HostOf(at.PullRequest)
	if err != nil {
		return Routed{}, err
	}
	return l.RoutePreview(RoutePreview{
		Name: config.PreviewName(at.RepoID, at.PullRequest), Suffix: fmt.Sprintf("pr-%d", at.PullRequest), Namespace: spec.Input.Namespace,
		Header: cfg.Preview.Header, Host: host, Workloads: spec.Workloads, Secrets: cfg.Preview.Secrets,
	}, branch, merged)
}

// onBranch returns the objects and the configuration of an application on the branch that a preview's
// commit merges into. Like those of the merge, they are rendered without secrets.
func (l *Loader) onBranch(ctx context.Context, at deploy.GitPath, commit string) ([]manifest.Object, *config.Application, error) {
	base, err := l.Base(at.RepoID, commit)
	if err != nil {
		return nil, nil, err
	}
	files, err := l.tree(ctx, at, base)
	if err != nil {
		return nil, nil, err
	}
	at.PullRequest = 0
	cfg, err := readConfig(files, at.ConfigPath(), l.Kinds)
	if deploy.IsKind(err, deploy.NotFound) {
		return nil, nil, deploy.Errorf(deploy.Invalid, "%s: a preview with mode route needs the application on the branch, which it shares everything else with: merge it first, or use mode: namespace in spec.preview", at.ConfigPath())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the application on the branch: %w", err)
	}
	var secrets *secret.Renderer // as for the merge
	tree, err := secrets.Tree(ctx, secrets.Decrypted(files), at.Dir, cfg.Encryption, cfg.Attachment)
	if err != nil {
		return nil, nil, fmt.Errorf("read the application on the branch: %w", err)
	}
	r, err := l.renderInTime(ctx, tree, at, cfg)
	if err == nil {
		err = check(r.Objects, at)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("render the application on the branch (%s): %w", deploy.ShortHash(base), err)
	}
	return r.Objects, cfg, nil
}
