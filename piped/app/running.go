package app

import (
	"context"
	"time"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/config"
	kubeconfig "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/trigger"
)

// liveTimeout bounds the requests to a cluster for the live state of an application.
const liveTimeout = 10 * time.Second

// running reads what runs of an application in the cluster of its provider. It implements
// trigger.Live here, because it joins sources with the cluster connections and tenancy rules
// of this package.
type running struct {
	sources  *source.Loader
	clusters *clusters
	tenants  *tenants
	pipedID  string
}

// RunningCommits returns the commits in the annotations of the live objects of an application,
// as it is at the given commit. An application that cannot be rendered, or whose account may
// not read, has none: the deployment that follows reports why, and no other application waits
// for it.
func (r running) RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) (commits []string, err error) {
	err = r.read(ctx, provider, git, commit, func(ctx context.Context, c *apply.Client, src *source.Source) (err error) {
		commits, err = c.RunningCommits(ctx, src.Objects, kubeconfig.SpecOf(src.Config.Platform).Input.Namespace)
		return err
	})
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		return nil, nil
	}
	return commits, err
}

// Foreign returns the live objects at the names of an application's objects, as it is at the
// given commit, that do not belong to it. The error is Invalid or NotFound if the application
// cannot be rendered or its account may not read: unknown objects may be foreign.
func (r running) Foreign(ctx context.Context, provider string, app deploy.Application, commit string) (objects []deploy.AdoptedObject, err error) {
	err = r.read(ctx, provider, app.Git, commit, func(ctx context.Context, c *apply.Client, src *source.Source) (err error) {
		label := kubeconfig.SpecOf(src.Config.Platform).VariantLabel
		objects, err = c.Foreign(ctx, apply.ForeignRequest{
			ApplicationID: app.ID, PipedID: r.pipedID, VariantKey: label.Key, VariantValue: label.PrimaryValue,
			Objects: src.Objects, Namespace: kubeconfig.SpecOf(src.Config.Platform).Input.Namespace, Yield: apply.Yielded(src.Config.DriftDetection),
			Propagation: propagationMode(src.Config),
		})
		return err
	})
	return objects, err
}

// read calls ask with the cluster of a provider, with the account of the application. The error
// is a *trigger.SourceError if the application cannot be rendered, Invalid or NotFound if the
// request is not possible, and Unavailable if the cluster does not answer.
func (r running) read(ctx context.Context, provider string, git deploy.GitPath, commit string, ask func(context.Context, *apply.Client, *source.Source) error) error {
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
		if held.Client, err = held.As(user); err != nil {
			return err
		}
	}
	limited, stop := context.WithTimeout(ctx, liveTimeout)
	defer stop()
	err = ask(limited, held.Client, src)
	if err != nil && limited.Err() != nil && ctx.Err() == nil && !deploy.IsKind(err, deploy.Invalid) && !deploy.IsKind(err, deploy.Unavailable) {
		return deploy.Errorf(deploy.Unavailable, "%s does not answer within %s: %w", held, liveTimeout, err)
	}
	return err
}

// load loads the application. It recovers from a panic caused by the content of a commit: the
// planner does so, too, and the deployment reports it.
func (r running) load(ctx context.Context, git deploy.GitPath, commit string) (src *source.Source, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = deploy.Errorf(deploy.Invalid, "load %s at commit %s: internal error: %v", git.ConfigPath(), deploy.ShortHash(commit), cause)
		}
	}()
	return r.sources.Load(ctx, git, commit)
}

// propagationMode returns the mode of an application for changed ConfigMaps and Secrets, "" for
// the default.
func propagationMode(c *config.Application) kubeconfig.PropagationMode {
	if p := kubeconfig.SpecOf(c.Platform).ConfigPropagation; p != nil {
		return p.Mode
	}
	return ""
}
