package app

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/trigger"
)

// lookTimeout bounds how long a cluster may take to tell what runs in it.
const lookTimeout = 10 * time.Second

// running tells what of an application runs in the cluster of its provider. It
// is the trigger's Live.
type running struct {
	sources  *source.Loader
	clusters *clusters
	tenants  *tenants
	pipedID  string
}

// RunningCommits returns the commits that the live objects of an application, as
// it is at the given commit, name as theirs. An application that cannot be
// rendered as it is in Git, or whose account may not look, has none: the deployment
// that follows says why, and no other application waits for it.
func (r running) RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) (commits []string, err error) {
	err = r.look(ctx, provider, git, commit, func(ctx context.Context, c *cluster.Cluster, src *source.Source) (err error) {
		commits, err = c.RunningCommits(ctx, src.Objects, kubeconfig.SpecOf(src.Config.Platform).Input.Namespace)
		return err
	})
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return nil, nil
	}
	return commits, err
}

// Foreign returns the live objects that stand where those of an application belong, as
// it is at the given commit, and are not its own. The error is Invalid or NotFound when
// the application cannot be rendered, or its account may not look: what is not seen may
// be anybody's.
func (r running) Foreign(ctx context.Context, provider string, app deploy.Application, commit string) (objects []deploy.AdoptedObject, err error) {
	err = r.look(ctx, provider, app.Git, commit, func(ctx context.Context, c *cluster.Cluster, src *source.Source) (err error) {
		label := kubeconfig.SpecOf(src.Config.Platform).VariantLabel
		objects, err = c.Foreign(ctx, cluster.ForeignRequest{
			ApplicationID: app.ID, PipedID: r.pipedID, VariantKey: label.Key, VariantValue: label.PrimaryValue,
			Objects: src.Objects, Namespace: kubeconfig.SpecOf(src.Config.Platform).Input.Namespace, Yield: cluster.Yielded(src.Config.DriftDetection),
			Propagation: propagationMode(src.Config),
		})
		return err
	})
	return objects, err
}

// look asks the cluster of a provider about an application, in the name of the
// application's account. The error is a *trigger.SourceError when the application
// cannot be rendered, Invalid or NotFound when the question cannot be asked of it, and
// Unavailable when the cluster does not answer.
func (r running) look(ctx context.Context, provider string, git deploy.GitPath, commit string, ask func(context.Context, *cluster.Cluster, *source.Source) error) error {
	src, err := r.load(ctx, git, commit)
	if err != nil {
		return &trigger.SourceError{Err: err}
	}
	held, release, err := r.clusters.Hold(provider)
	if err != nil {
		return deploy.Errorf(deploy.Unavailable, "%w", err)
	}
	defer release()
	account, err := r.tenants.Tenant(git).Account()
	if err != nil {
		return deploy.Errorf(deploy.Invalid, "%w", err)
	}
	if user := account.User(); user != "" {
		if held.Cluster, err = held.As(user); err != nil {
			return err
		}
	}
	limited, stop := context.WithTimeout(ctx, lookTimeout)
	defer stop()
	err = ask(limited, held.Cluster, src)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && !deploy.IsKind(err, deploy.Invalid) && !deploy.IsKind(err, deploy.Unavailable) {
		return deploy.Errorf(deploy.Unavailable, "%s does not answer within %s: %w", held, lookTimeout, err)
	}
	return err
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

// propagationMode is what an application says of changed ConfigMaps and Secrets, "" if
// nothing.
func propagationMode(c *config.Application) kubeconfig.PropagationMode {
	if p := kubeconfig.SpecOf(c.Platform).ConfigPropagation; p != nil {
		return p.Mode
	}
	return ""
}
