package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/secret"
)

// set is everything a stage needs to apply an application's objects and to
// judge their rollouts. The last success's set is kept in the store, so that a
// rollback needs neither Git nor anything else but the cluster.
type set struct {
	Commit  string
	Spec    setSpec
	Objects []manifest.Object // resolved, not stamped

	Variant kubernetes.Variant // whose objects they are; "" is the primary
	Value   string             // of that variant's label
}

func (s set) variant() kubernetes.Variant { return cmp.Or(s.Variant, kubernetes.Primary) }

// value is what the variant annotation of the objects says.
func (s set) value() string { return cmp.Or(s.Value, s.Spec.PrimaryValue) }

// setSpec is what of the application's configuration concerns applying.
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
	Hooks               int      `json:"hooks,omitempty"` // how many the commit has; they are not kept

	HealthChecks []kubernetes.HealthCheck `json:"healthChecks,omitempty"`
	Drift        config.DriftDetection    `json:"drift,omitzero"` // what is no drift, or not applied at all

	Propagation *kubernetes.ConfigPropagation `json:"propagation,omitempty"` // nil: the defaults
}

func specOf(c *config.Application) setSpec {
	k := kubernetes.SpecOf(c.Platform)
	return setSpec{
		VariantKey: k.VariantLabel.Key, PrimaryValue: k.VariantLabel.PrimaryValue,
		AutoCreateNamespace: k.Input.AutoCreateNamespace, TakeOver: k.TakeOver,
		ReadyThreshold: int(k.ReadyThreshold), Strict: k.Strict, WaitTermination: k.WaitTermination, FailFast: k.FailFast,
		Prune: k.QuickSync.Prune, PruneKinds: k.PruneKinds, HealthChecks: k.HealthChecks, Drift: c.DriftDetection, Propagation: k.ConfigPropagation,
	}
}

// syncOptions returns the stage's own options, and for a stage without any those
// of the whole application.
func (w *work) syncOptions(k kubernetes.Spec) (kubernetes.SyncStageOptions, error) {
	o := kubernetes.SyncStageOptions{SyncOptions: k.QuickSync, ReadyThreshold: k.ReadyThreshold}
	if len(w.run.Stage.Options) == 0 {
		return o, nil
	}
	if err := json.Unmarshal(w.run.Stage.Options, &o); err != nil {
		return o, deploy.Errorf(deploy.Invalid, "read the options of stage %s: %w", w.run.Stage.ID, err)
	}
	return o, nil
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

// resolve makes the stage's set of a source.
// spec returns what the application has as one of Kubernetes.
func (w *work) spec() kubernetes.Spec { return *kubernetes.SpecOf(w.config.Platform) }

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

// splitHooks takes the hooks out of what the application consists of.
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

// storedSet is how a set is kept.
type storedSet struct {
	Spec    setSpec                      `json:"spec"`
	Objects []*unstructured.Unstructured `json:"objects"`
	// Secrets were decrypted for the objects: a rollback does not show them either.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// keep stores the set as the deployment's own: what later deployments return
// to if this one succeeds.
func keep(ctx context.Context, w *work) error {
	stored := storedSet{Spec: w.set.Spec, Secrets: w.hide.Secrets()}
	for _, o := range w.set.Objects {
		stored.Objects = append(stored.Objects, o.Unstructured)
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return fmt.Errorf("encode the applied set: %w", err)
	}
	return w.Store.SaveAppliedSet(ctx, deploy.AppliedSet{
		ApplicationID: w.run.Application.ID, DeploymentID: w.run.Deployment.ID, Commit: w.set.Commit, Objects: data,
	})
}

// restore loads the set of the last success. Where the store has none (its key
// was lost, or the success is older than this agent), Git is asked.
func restore(ctx context.Context, w *work) error {
	d := w.run.Deployment
	if d.RunningCommit == "" {
		return deploy.Errorf(deploy.Invalid, "there is no earlier success to roll back to")
	}
	kept, err := w.Store.AppliedSet(ctx, d.RunningDeploymentID)
	if err != nil {
		w.log.Infof("The applied set of commit %s cannot be used (%v); rendering it from Git instead", deploy.ShortHash(d.RunningCommit), err)
		return w.rerender(ctx)
	}
	var stored storedSet
	if err := json.Unmarshal(kept.Objects, &stored); err != nil {
		return fmt.Errorf("decode the applied set of commit %s: %w", deploy.ShortHash(kept.Commit), err)
	}
	w.set = set{Commit: kept.Commit, Spec: stored.Spec}
	w.hide = secret.NewRedactor(stored.Secrets)
	w.log = w.hide.Log(w.log)
	for _, u := range stored.Objects {
		w.set.Objects = append(w.set.Objects, manifest.Object{Unstructured: u, Origin: manifest.Origin{File: "commit " + deploy.ShortHash(kept.Commit)}})
	}
	return nil
}

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

// labelAsLive gives the workloads of the set the primary's label where they have it:
// which stage put it into their selectors, which cannot be changed, Git does not say.
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
