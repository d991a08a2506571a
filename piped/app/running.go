package app

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
)

// lookTimeout bounds how long a cluster may take to tell what runs in it.
const lookTimeout = 10 * time.Second

// running tells what of an application runs in the cluster of its provider. It
// is the trigger's Live.
type running struct {
	sources  *source.Loader
	clusters *clusters
	tenants  *tenants
}

// RunningCommits returns the commits that the live objects of an application, as
// it is at the given commit, name as theirs. An application that cannot be
// rendered, or whose account may not look, has none: the deployment that follows
// says why, and no other application waits for it.
func (r running) RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) ([]string, error) {
	src, err := r.load(ctx, git, commit)
	switch deploy.KindOf(err) {
	case deploy.Invalid, deploy.NotFound:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	cluster, release, err := r.clusters.Hold(provider)
	if err != nil {
		return nil, deploy.Errorf(deploy.Unavailable, "%w", err)
	}
	defer release()
	account, err := r.tenants.Tenant(git).Account()
	if err != nil {
		return nil, nil // the deployment that follows says why
	}
	if user := account.User(); user != "" {
		if cluster.Cluster, err = cluster.As(user); err != nil {
			return nil, err
		}
	}
	ctx, stop := context.WithTimeout(ctx, lookTimeout)
	defer stop()
	commits, err := cluster.RunningCommits(ctx, src.Objects, src.Config.Kubernetes.Input.Namespace)
	if deploy.IsKind(err, deploy.Invalid) {
		return nil, nil
	}
	return commits, err
}

// load loads the application. A panic on what a commit holds is not the end of
// the agent: the planner meets the same one, and the deployment says so.
func (r running) load(ctx context.Context, git deploy.GitPath, commit string) (src *source.Source, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = deploy.Errorf(deploy.Invalid, "load %s at commit %s: internal error: %v", git.ConfigPath(), deploy.ShortHash(commit), cause)
		}
	}()
	return r.sources.Load(ctx, git, commit)
}
