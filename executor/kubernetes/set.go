package kubernetes

import (
	"cmp"
	"context"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// set contains everything that a stage needs to apply an application's objects and to
// evaluate their rollouts. The set of the last success is in the store, so that a rollback
// needs nothing but the cluster.
type set struct {
	Commit  string
	Spec    setSpec
	Objects []manifest.Object // resolved, not stamped

	Variant kubernetes.Variant // variant of the objects; "" is the primary
	Value   string             // value of the variant's label; "" is the primary's
}

func (s set) variant() kubernetes.Variant { return cmp.Or(s.Variant, kubernetes.Primary) }

// value returns the value of the objects' variant annotation.
func (s set) value() string { return cmp.Or(s.Value, s.Spec.PrimaryValue) }

// setSpec is the part of the application's configuration that concerns applying.
type setSpec struct {
	VariantKey          string   `json:"variantKey"`
	PrimaryValue        string   `json:"primaryValue"`
	AutoCreateNamespace bool     `json:"autoCreateNamespace,omitempty"`
	TakeOver            bool     `json:"takeOver,omitempty"`
	ReadyThreshold      int      `json:"readyThreshold"`
	Strict              bool     `json:"strict,omitempty"`
	WaitTermination     bool     `json:"waitTermination,omitempty"`
	FailFast            bool     `json:"failFast"`
	Prune               bool     `json:"prune,omitempty"`
	PruneKinds          []string `json:"pruneKinds,omitempty"`
	Hooks               int      `json:"hooks,omitempty"` // number of hooks of the commit, which are not stored

	HealthChecks []kubernetes.HealthCheck `json:"healthChecks,omitempty"`
	Drift        config.DriftDetection    `json:"drift,omitzero"` // fields that are not drift, or that are not applied

	Propagation *kubernetes.ConfigPropagation `json:"propagation,omitempty"` // nil: the defaults
}

// specOf returns the setSpec of a configuration, with the options of spec.quickSync and
// without the number of hooks.
func specOf(c *config.Application) setSpec {
	k := kubernetes.SpecOf(c.Platform)
	return setSpec{
		VariantKey: k.VariantLabel.Key, PrimaryValue: k.VariantLabel.PrimaryValue,
		AutoCreateNamespace: k.Input.AutoCreateNamespace, TakeOver: k.TakeOver,
		ReadyThreshold: int(k.ReadyThreshold), Strict: k.Strict, WaitTermination: k.WaitTermination, FailFast: k.FailFast,
		Prune: k.QuickSync.Prune, PruneKinds: k.PruneKinds, HealthChecks: k.HealthChecks, Drift: c.DriftDetection, Propagation: k.ConfigPropagation,
	}
}

// syncOptions returns the stage's own options, or those of spec.quickSync if it has
// none.
func (w *work) syncOptions(k kubernetes.Spec) (kubernetes.SyncStageOptions, error) {
	o := kubernetes.SyncStageOptions{SyncOptions: k.QuickSync, ReadyThreshold: k.ReadyThreshold}
	if len(w.run.Stage.Options) == 0 {
		return o, nil
	}
	return o, readOptions(w.run.Stage, &o)
}

// render loads the deployment's commit and resolves its objects on the cluster.
func render(ctx context.Context, w *work) error {
	d := w.run.Deployment
	w.log.Infof("Loading %s at commit %s", d.Git.ConfigPath(), d.Trigger.Commit.Short())
	src, err := w.Sources.Load(ctx, d.Git, d.Trigger.Commit.Hash)
	if err != nil {
		return err
	}
	return w.resolve(ctx, src)
}

// spec returns the application's configuration for Kubernetes.
func (w *work) spec() kubernetes.Spec { return *kubernetes.SpecOf(w.config.Platform) }

// resolve sets the stage's configuration, set and hooks from a rendered source. From then
// on the log redacts the source's secrets. The error is of kind Invalid if the source has
// no objects.
func (w *work) resolve(ctx context.Context, src *source.Source) error {
	w.hide, w.log = src.Redactor, src.Redactor.Log(w.log)
	for _, warning := range src.Warnings {
		w.log.Infof("Warning: %s", warning)
	}
	w.config = src.Config
	cfg := *kubernetes.SpecOf(src.Config.Platform)
	options, err := w.syncOptions(cfg)
	if err != nil {
		return err
	}
	if options.AddVariantLabelToSelector {
		for _, o := range src.Objects {
			if err := primaryLabel(cfg.VariantLabel).Add(o); err != nil {
				return err
			}
		}
	}
	objects, err := w.cluster.Resolve(ctx, src.Objects, cfg.Input.Namespace, w.log)
	if err != nil {
		return err
	}
	if w.run.Deployment.Git.PullRequest != 0 {
		if err := confined(objects, cfg.Input.Namespace); err != nil {
			return err
		}
	}
	objects, w.hooks = splitHooks(objects)
	if len(objects) == 0 {
		return deploy.Errorf(deploy.Invalid, "%s declares no objects: nothing is applied and nothing removed", w.run.Deployment.Git.Dir)
	}
	extra, err := w.primaryServices(objects)
	if err != nil {
		return w.refuse(err)
	}
	objects = append(objects, extra...)
	spec := specOf(src.Config)
	spec.ReadyThreshold, spec.Prune, spec.Hooks = int(options.ReadyThreshold), options.Prune, len(w.hooks)
	w.set = set{Commit: src.Commit, Spec: spec, Objects: objects}
	return nil
}

// confined returns an error unless all objects of a preview are in its namespace: a pull request
// must not change anything that it shares with others.
func confined(objects []manifest.Object, namespace string) error {
	for _, o := range objects {
		if o.GetNamespace() != namespace || namespace == "" {
			return deploy.Errorf(deploy.Invalid, "%s %q (%s) is not in the namespace of the preview (%s), and a preview has no other objects: take it out of the application, or remove spec.preview",
				o.GetKind(), o.GetName(), o.Origin, namespace)
		}
	}
	return nil
}

// splitHooks separates the hooks from the objects that the application consists of.
func splitHooks(all []manifest.Object) (objects, hooks []manifest.Object) {
	for _, o := range all {
		if o.Hook.Phase == manifest.HookNone {
			objects = append(objects, o)
		} else {
			hooks = append(hooks, o)
		}
	}
	return objects, hooks
}

// rerender makes the set of the last success from Git.
func (w *work) rerender(ctx context.Context) error {
	src, err := w.Sources.Load(ctx, w.run.Deployment.RunningGit(), w.run.Deployment.RunningCommit)
	if err != nil {
		return err
	}
	if err := w.resolve(ctx, src); err != nil {
		return err
	}
	return w.labelAsLive(ctx)
}

// labelAsLive adds the primary's label to those workloads of the set that have it in the
// cluster. A stage may have added it to their selectors, which are immutable, without a
// change in Git.
func (w *work) labelAsLive(ctx context.Context) error {
	label := primaryLabel(w.spec().VariantLabel)
	live, err := w.cluster.Workloads(ctx, w.set.Objects)
	if err != nil {
		return err
	}
	for _, o := range w.set.Objects {
		if found := live[manifest.Ref(o.Unstructured).Key()]; found == nil || !label.Has(manifest.Object{Unstructured: found}) {
			continue
		}
		if err := label.Add(o); err != nil {
			return err
		}
	}
	return nil
}
