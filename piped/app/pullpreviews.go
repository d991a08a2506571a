package app

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/pullpreview"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// addPullPreviews adds the component that deploys pull requests, if the configuration has it, and
// returns what wakes it.
func (a *App) addPullPreviews(cfg *config.Piped, o Options, st *store.Store, sources *source.Loader) (wake func()) {
	if cfg.Previews == nil {
		return func() {}
	}
	live := a.live
	p := pullpreview.New(pullpreview.Config{
		Store: st, Settings: *cfg.Previews, Kinds: o.kinds(), Metrics: a.metrics.previews, PodLines: podLines{live.platforms, live.platforms}.crashLines, Repositories: hostedRepositories{mergeable{live: live}},
		Namespaces: previewNamespaces{live.clusters, live.tenants, cfg.PipedID, cfg.Previews.NamespaceTemplate},
		Route: func(ctx context.Context, at deploy.GitPath, commit string) (pullpreview.Route, error) {
			src, err := sources.Load(ctx, at, commit)
			if err != nil {
				return pullpreview.Route{}, err
			}
			return pullpreview.Route{ByHeader: src.ByHeader, Hostnames: src.Hostnames, OwnHost: src.OwnHost, Shared: src.Shared}, nil
		},
		Page: func(deploymentID string) string {
			if page := live.page(); page != "" {
				return page + "/deployments/" + deploymentID
			}
			return ""
		},
		Agent: agentID(cfg), Logger: o.Logger.With("component", "previews"), Now: o.Now, NewID: o.NewID,
	})
	a.parts.add("previews", p.Run)
	return p.Wake
}

// hostedRepositories are the watched repositories whose Git host is configured.
type hostedRepositories struct{ mergeable }

// Hosted implements pullpreview.Repositories.
func (h hostedRepositories) Hosted() (out []pullpreview.Repository) {
	watched, _ := h.live.repositories.watchable()
	for _, r := range watched {
		if host := h.live.events.Load().host(r.Config.Remote); host != nil {
			out = append(out, pullpreview.Repository{
				ID: r.Config.RepoID, Remote: r.Config.Remote, Branch: r.Config.Branch, Git: r.Git, Host: host.api, Reports: host.config,
			})
		}
	}
	return out
}

// previewNamespaces creates and deletes the namespaces of previews with the agent's own account.
type previewNamespaces struct {
	clusters *clusters
	tenants  *tenants
	pipedID  string
	template string // file
}

// annotationPreview names the pull request whose preview a namespace is for.
const annotationPreview = "pipecd.dev/preview"

func previewID(app deploy.Application) string {
	return fmt.Sprintf("%s#%d", app.Git.RepoID, app.Git.PullRequest)
}

// Ensure implements pullpreview.Namespaces. It reads the template each time, so that a change of it
// applies to the next deployment.
func (n previewNamespaces) Ensure(ctx context.Context, app deploy.Application, name string) error {
	if rule := n.tenants.Tenant(app.Git).ForbidsNewNamespaces(); rule != "" {
		return deploy.Errorf(deploy.Invalid, "tenancy %q does not allow namespaces, and a preview needs one of its own: ask those who run the agent to change the rule", rule)
	}
	template, err := readPreviewTemplate(n.template)
	if err != nil {
		return err
	}
	held, release, err := n.clusters.Hold(app.Provider)
	if err != nil {
		return deploy.Errorf(deploy.Unavailable, "%w", err)
	}
	defer release()
	api := held.Typed().CoreV1().Namespaces()
	live, err := api.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		live, err = api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			manifest.AnnotationPiped: n.pipedID, annotationPreview: previewID(app),
		}}}, metav1.CreateOptions{FieldManager: cluster.FieldManager})
		if apierrors.IsAlreadyExists(err) {
			live, err = api.Get(ctx, name, metav1.GetOptions{})
		}
	}
	switch {
	case err != nil:
		return held.Classify(err)
	case !n.owns(live, app):
		return deploy.Errorf(deploy.Invalid, "namespace %q exists already and is not that of this preview: delete it, or change spec.previews.namespacePrefix of the agent", name)
	case live.DeletionTimestamp != nil:
		return deploy.Errorf(deploy.Unavailable, "namespace %q of the earlier preview is being deleted", name)
	}
	return template.apply(ctx, held.Cluster, name, live.UID)
}

// owns reports whether a namespace was created for the preview of an application.
func (n previewNamespaces) owns(live *corev1.Namespace, app deploy.Application) bool {
	return live.Annotations[manifest.AnnotationPiped] == n.pipedID && live.Annotations[annotationPreview] == previewID(app)
}

// Delete implements pullpreview.Namespaces.
func (n previewNamespaces) Delete(ctx context.Context, app deploy.Application, name string) (gone bool, err error) {
	held, release, err := n.clusters.Hold(app.Provider)
	if err != nil {
		return false, deploy.Errorf(deploy.Unavailable, "%w", err)
	}
	defer release()
	api := held.Typed().CoreV1().Namespaces()
	live, err := api.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, held.Classify(err)
	case !n.owns(live, app):
		return true, nil // that of the preview is gone
	case live.DeletionTimestamp != nil:
		return false, nil
	}
	err = api.Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(live.UID))})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // read again by the next attempt
		err = nil
	}
	if err != nil {
		return false, held.Classify(err)
	}
	return false, nil
}
