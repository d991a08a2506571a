package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// ApplyRequest is one set of objects to apply for one application.
type ApplyRequest struct {
	ApplicationID string
	PipedID       string
	DeploymentID  string
	Commit        string
	VariantKey    string // of the variant annotation; "" for none
	VariantValue  string // of the variant annotation
	Variant       string // InventoryItem.Variant: primary, canary or baseline

	Objects   []manifest.Object      // resolved (Cluster.Resolve)
	Inventory []deploy.InventoryItem // of the application, as stored
	// LastSuccess is when the application's last successful deployment ended, zero
	// without one: Jobs of the inventory that were applied before have finished.
	LastSuccess time.Time

	// HookRun says that the objects are hooks, and names their run; "" for none.
	// Those that run to their end (RunsToEnd) run once in it: one of an earlier run
	// is deleted and created anew, one of this run is left as it is. One that is in
	// Created and gone has run, but nobody knows how it ended: an error.
	HookRun string

	// TakeOver permits to apply objects that another application owns.
	TakeOver bool
	// Adopt permits to apply objects that PipeCD applied, whichever agent and
	// application they are of: those marked with its annotations and without
	// manifest.LabelApplication.
	Adopt               bool
	AutoCreateNamespace bool
	// Yield are the rules by which fields are left to others (Yielded). An object is
	// created with them; from then on they are sent no more than keeps them as they are.
	Yield []config.IgnoreRule

	// ApplicationExists tells whether an owner found on a live object still
	// exists among this agent's applications; what a removed application left
	// behind may be taken. Nil counts every owner as existing.
	ApplicationExists func(applicationID string) bool
	// Describe names an application of this agent for a person, with where it is
	// configured; "" when it is not known. Nil knows none.
	Describe func(applicationID string) string

	// Creating is called once before the first write with the objects that do
	// not exist yet, so that the intent to create them survives a crash: a
	// repeated run is handed them as Created, and knows that it was this
	// deployment that created what it now finds.
	Creating func(ctx context.Context, refs []deploy.ObjectRef) error
	Created  []deploy.ObjectRef

	// Restarting is called once before the first write with the workloads that get
	// another config-hash than they have, by key, because their configuration has
	// changed: a repeated run is handed them as Restarts, since what tells a change
	// from none may be written by then. Undo are those of the stages that a rollback
	// takes back.
	Restarting func(ctx context.Context, changes map[string]ConfigChange) error
	Restarts   map[string]ConfigChange
	Undo       map[string]ConfigChange

	// Propagation says how changed ConfigMaps and Secrets reach the pods of workloads
	// that do not say so themselves; "" is auto. Named are those that count although
	// they are not in the set.
	Propagation kubernetes.PropagationMode
	Named       []manifest.Reference
	// Reaching is called once before the first write with the configuration whose
	// changes the set's pods see while they run, as it is before (Reach.Configs). Of
	// Reached, the workloads for which that is known, nothing is read for it.
	Reaching func(ctx context.Context, before []Reach) error
	Reached  map[string]bool // by key of the workload

	// BeforeApply is called before each write of a workload. Live is the
	// workload as it is, nil when there is none; planned is what the API server
	// says it will be, nil when it could not be asked. An error keeps the
	// workload from being written.
	BeforeApply func(ctx context.Context, obj manifest.Object, live, planned *unstructured.Unstructured) error
	// Applied is called after each write, with the API server's answer if the
	// object is a workload, else with nil.
	// BeforeApply and Applied are called concurrently for different objects.
	Applied func(ctx context.Context, obj manifest.Object, result *unstructured.Unstructured, item deploy.InventoryItem) error

	// AfterWave is called after each wave but the last with its objects, without
	// those that have expired, and its live workloads (as in ApplyResult.Live): the next wave is written when it
	// returns. An error ends the apply.
	AfterWave func(ctx context.Context, wave []manifest.Object, live map[deploy.ObjectRef]*unstructured.Unstructured) error

	Log deploy.StageLog
}

// ApplyResult says what an apply did.
type ApplyResult struct {
	// Items is the inventory of the complete set, unchanged objects included;
	// after an error it holds what is known to be applied.
	Items []deploy.InventoryItem
	// Written counts the objects that were sent, Unchanged those that were not.
	Written, Unchanged int
	// Expired are the Jobs among Items that have finished and were deleted by
	// Kubernetes, as their ttlSecondsAfterFinished asks for; they were not sent.
	Expired []deploy.InventoryItem
	// Reach is the configuration whose changes the pods of the set's workloads see while
	// they run, as it is now, and Contents the hash of what the set's ConfigMaps and
	// Secrets that are written hold, by key.
	Reach    []Reach
	Contents map[string]Content
	// Live holds every workload of the set as the API server last returned it,
	// those that were not written as well.
	Live map[deploy.ObjectRef]*unstructured.Unstructured
}

// Apply makes the cluster hold req.Objects by server-side apply. Objects that
// nobody changed since they were last applied are not sent. The others are
// written in dependency order, in parallel inside a level, one PATCH each.
//
// Nothing is written unless all of it can be: ownership is checked and every
// changed object dry-run before the first write. An error then is Invalid and
// names the objects. Apply may be repeated at any time: it goes on where it was
// interrupted. It does not wait for rollouts.
//
// Objects are written in waves, by their annotation pipecd.dev/order; most sets are
// one wave. Namespaces and CustomResourceDefinitions are written before all waves.
func (c *Cluster) Apply(ctx context.Context, req ApplyRequest) (ApplyResult, error) {
	r := newApplyRun(c, req)
	ctx = withWarnings(ctx, r.warn)
	if err := r.plan(ctx); err != nil {
		return r.outcome(), err
	}
	for _, step := range []func(context.Context) error{r.announce, r.write} {
		if err := step(ctx); err != nil {
			return r.outcome(), err
		}
	}
	r.summarize()
	r.sayKept()
	return r.outcome(), nil
}

// Check returns the error for which Apply would not begin to write, and writes
// nothing. It says nothing to req.Log but that it waits for the cluster.
func (c *Cluster) Check(ctx context.Context, req ApplyRequest) error {
	r := newApplyRun(c, req)
	r.req.Log = quiet{}
	return r.plan(withWarnings(ctx, r.warn))
}

// quiet is a stage log that nobody reads.
type quiet struct{}

func (quiet) Infof(string, ...any)    {}
func (quiet) Successf(string, ...any) {}
func (quiet) Errorf(string, ...any)   {}

// plan is everything before the first write.
func (r *applyRun) plan(ctx context.Context) error {
	if r.invalid != nil {
		return r.invalid
	}
	for _, step := range []func(context.Context) error{
		r.findResources, r.readLive, r.checkOwners, r.selectChanged, r.findNamespaces, r.prepare, r.dryRun,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// target is one object of the set on its way to the cluster.
type target struct {
	source   manifest.Object
	ref      deploy.ObjectRef
	desired  *unstructured.Unstructured // what is sent
	complete *unstructured.Unstructured // desired with the fields that are left to others; nil if it is the same
	digest   string                     // of desired
	config   podConfig                  // of a workload
	same     bool                       // it is the object that was applied last; of a workload, whatever its configuration holds
	restarts bool                       // its configuration may be other than it was applied with last, in what its pods are restarted for
	resource ServedKind
	crdInSet bool // its definition is part of the set
	whole    bool // it is read whole: it rolls out, has replicas, or leaves fields to others

	recorded *deploy.InventoryItem // what the inventory says of it
	live     metav1.Object         // nil when absent; whole for workloads, else metadata
	changed  bool
	expired  bool   // it is not there because it has done its work
	untried  string // why it is not dry-run; "" when it is
	// recreated is why the live object is deleted first; "" when it is not.
	recreated string
	planned   *unstructured.Unstructured
	inTheWay  []collision   // live items that are removed for it, or that keep it from being applied
	result    metav1.Object // the API server's answer: a workload whole, of others what identifies it
	item      deploy.InventoryItem
	done      effect

	writtenAt time.Time // by the API server's clock, as the answer says; zero when it was not sent

	owned, mark, values string // OwnedHash, Mark and ValuesDigest of the answer
}

// effect is what applying an object did to it.
type effect string

const (
	created    effect = "created"
	configured effect = "configured"
	recreated  effect = "recreated"
	unchanged  effect = "unchanged"
)

// liveObject returns the live object if it was read whole.
func (t *target) liveObject() *unstructured.Unstructured {
	u, _ := t.live.(*unstructured.Unstructured)
	return u
}

func (t *target) isWorkload() bool { return isWorkload(groupKind(t.ref)) }

// isWorkload reports whether objects of the kind roll out.
func isWorkload(kind schema.GroupKind) bool {
	return kind.Group == "apps" && (kind.Kind == "Deployment" || kind.Kind == "StatefulSet" || kind.Kind == "DaemonSet")
}

// applyRun is one Apply as it goes on.
type applyRun struct {
	cluster *Cluster
	req     ApplyRequest
	targets []*target

	newNamespaces []string // to be created before the first object
	restarts      map[string]ConfigChange
	invalid       error                // why nothing can be applied
	scaled        map[scaleTarget]bool // by autoscalers of the set

	wait   func(error) // says once that the cluster keeps the apply waiting
	mu     sync.Mutex
	warned map[string]bool
}

func newApplyRun(c *Cluster, req ApplyRequest) *applyRun {
	r := &applyRun{cluster: c, req: req, wait: c.sayOnce(req.Log), warned: map[string]bool{}}
	recorded := map[string]*deploy.InventoryItem{}
	for i, item := range req.Inventory {
		recorded[item.Object.Key()] = &req.Inventory[i]
	}
	owner := manifest.Ownership{
		PipedID: req.PipedID, ApplicationID: req.ApplicationID, CommitHash: req.Commit, VariantKey: req.VariantKey, Variant: req.VariantValue,
	}
	configs := newConfigs()
	for _, obj := range req.Objects {
		u, ref := desired(obj, owner), manifest.Ref(obj.Unstructured)
		if req.HookRun != "" {
			u.SetAnnotations(merged(u.GetAnnotations(), manifest.AnnotationHookRun, req.HookRun))
		}
		_, hasReplicas, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "replicas")
		r.targets = append(r.targets, &target{
			source: obj, ref: ref, desired: u, recorded: recorded[ref.Key()],
			whole: hasReplicas || isWorkload(groupKind(ref)) || len(r.yields(u)) > 0,
		})
		configs.add(ref, u)
	}
	for _, t := range r.targets {
		if t.isWorkload() {
			r.digestWorkload(t, configs)
			continue
		}
		t.digest = r.digestOf(t.desired)
		t.same = t.recorded != nil && t.recorded.DesiredDigest == t.digest
	}
	return r
}

// digestOf names what is sent of an object.
func (r *applyRun) digestOf(desired *unstructured.Unstructured) string {
	digest := manifest.Digest(desired)
	if rules := r.yields(desired); len(rules) > 0 {
		return rulesDigest([]any{digest, rules}) // who leaves other fields to others sends it anew
	}
	return digest
}

// each calls fn for every target, limited in parallel, and returns the errors of
// all of them: one that fails does not interrupt the others.
func each(targets []*target, fn func(t *target) error) []error {
	errs := make([]error, len(targets))
	var g errgroup.Group
	g.SetLimit(concurrency)
	for i, t := range targets {
		g.Go(func() error {
			errs[i] = fn(t)
			return nil
		})
	}
	_ = g.Wait() // fn's errors are in errs
	return errs
}

// findResources settles how each object's kind is served.
func (r *applyRun) findResources(ctx context.Context) error {
	inSet := definedBy(r.objects())
	for _, t := range r.targets {
		gvk := t.desired.GroupVersionKind()
		if res, ok := inSet[gvk]; ok {
			t.resource, t.crdInSet = res, true
			continue
		}
		res, err := r.cluster.lookupFor(ctx, t.source, r.wait)
		if err != nil {
			return err
		}
		t.resource = res
	}
	return nil
}

func (r *applyRun) objects() []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(r.targets))
	for i, t := range r.targets {
		out[i] = t.desired
	}
	return out
}

// selectChanged decides which objects are sent: all but those whose desired digest, UID
// and owned fields are as they were recorded after the last apply, and that nobody has
// written since without leaving their values. A workload is not sent for what changes of
// its configuration unless its pods are restarted for that.
func (r *applyRun) selectChanged(context.Context) error {
	for _, t := range r.targets {
		if r.req.HookRun != "" && RunsToEnd(t.desired) {
			if err := r.selectHook(t); err != nil {
				return err
			}
			continue
		}
		if r.leaveExpired(t) {
			continue
		}
		t.changed = t.recorded == nil || t.live == nil || t.live.GetDeletionTimestamp() != nil ||
			!t.same || t.restarts || t.recorded.UID != string(t.live.GetUID()) ||
			t.recorded.OwnedHash != OwnedHash(t.live.GetManagedFields()) || t.rewritten()
		if !t.changed {
			t.item, t.done = *t.recorded, unchanged
			if t.isWorkload() && t.recorded.ConfigHash != "" {
				t.item.DesiredDigest, t.item.ConfigHash = t.digest, t.config.recorded()
			}
		}
	}
	return nil
}

// rewritten reports whether the live object may hold other values than were applied
// although the API server has taken none of them from us, as it does not for what an
// admission webhook changes, and for who writes in our name.
func (t *target) rewritten() bool {
	if t.recorded.Mark == "" || t.recorded.Mark == Mark(t.live) {
		return false
	}
	live := t.liveObject()
	return live == nil || ValuesDigest(live) != t.recorded.ValuesDigest
}

// selectHook decides whether a hook runs.
func (r *applyRun) selectHook(t *target) error {
	switch {
	case t.live == nil && slices.Contains(r.req.Created, t.ref):
		return deploy.Errorf(deploy.Invalid,
			"%s (%s) was begun by this deployment and is gone before its end was seen; it is not run twice: see what it did, and sync again", t.ref, t.source.Origin)
	case t.live == nil:
	case t.live.GetAnnotations()[manifest.AnnotationHookRun] == r.req.HookRun:
		t.item = deploy.InventoryItem{ApplicationID: r.req.ApplicationID, Cluster: r.cluster.name, Object: t.ref, UID: string(t.live.GetUID())}
		t.done = unchanged
		return nil
	default:
		t.recreated = "it ran before"
	}
	t.changed = true
	return nil
}

func (r *applyRun) changed() []*target {
	var out []*target
	for _, t := range r.targets {
		if t.changed {
			out = append(out, t)
		}
	}
	return out
}

// prepare settles what is sent: the commit, what is left to others, who decides
// spec.replicas, and the config-hash.
func (r *applyRun) prepare(ctx context.Context) error {
	r.scaled = scaledBySet(r.objects())
	for _, t := range r.changed() {
		setCommit(t.desired, r.commitOf(t))
		if t.liveObject() != nil {
			t.complete = t.desired.DeepCopy()
		}
		r.yieldFields(t)
		err := r.cluster.retry(ctx, r.wait, func(ctx context.Context) error {
			return r.cluster.yieldReplicas(ctx, t.desired, t.liveObject(), r.scaled)
		})
		if err != nil {
			return r.cluster.explain(t.source, "look for an autoscaler of", err)
		}
		if t.recreated != "" || t.live != nil && t.live.GetDeletionTimestamp() != nil {
			if err := r.sendComplete(ctx, t); err != nil {
				return err
			}
		}
	}
	return r.settleConfig(ctx)
}

// commitOf names the commit that last changed the object in Git. One that is
// only put back to what was applied, or taken over, keeps the commit it has.
func (r *applyRun) commitOf(t *target) string {
	back := t.same && !t.restarts
	if t.live != nil && (back || r.req.Adopt) {
		if commit := t.live.GetAnnotations()[manifest.AnnotationCommitHash]; commit != "" {
			return commit
		}
	}
	return r.req.Commit
}

// announce tells the caller what is about to be created, and to be restarted.
func (r *applyRun) announce(ctx context.Context) error {
	if len(r.restarts) > 0 && r.req.Restarting != nil {
		if err := r.req.Restarting(ctx, r.restarts); err != nil {
			return err
		}
	}
	if r.req.Reaching != nil {
		before, err := r.reachBefore(ctx)
		if err != nil {
			return err
		}
		if err := r.req.Reaching(ctx, before); err != nil {
			return err
		}
	}
	if r.req.Creating == nil {
		return nil
	}
	var refs []deploy.ObjectRef
	for _, t := range r.changed() {
		if t.live == nil {
			refs = append(refs, t.ref)
		}
	}
	if len(refs) == 0 {
		return nil
	}
	return r.req.Creating(ctx, refs)
}

// outcome collects what is applied so far.
func (r *applyRun) outcome() ApplyResult {
	var done []*target
	var out ApplyResult
	for _, t := range r.targets {
		switch {
		case t.done == "":
			continue
		case t.changed:
			out.Written++
		default:
			out.Unchanged++
		}
		out.Items = append(out.Items, t.item)
		if t.expired {
			out.Expired = append(out.Expired, t.item)
		}
		done = append(done, t)
	}
	out.Live = liveWorkloads(done)
	out.Reach, out.Contents = r.reach(done)
	return out
}

// liveWorkloads returns the workloads among targets as the API server last returned
// them.
func liveWorkloads(targets []*target) map[deploy.ObjectRef]*unstructured.Unstructured {
	live := map[deploy.ObjectRef]*unstructured.Unstructured{}
	for _, t := range targets {
		switch {
		case !t.isWorkload():
		case t.result != nil:
			live[t.ref], _ = t.result.(*unstructured.Unstructured)
		default:
			live[t.ref] = t.liveObject()
		}
	}
	return live
}

func (r *applyRun) summarize() {
	count := map[effect]int{}
	for _, t := range r.targets {
		count[t.done]++
	}
	noun := "objects"
	if len(r.targets) == 1 {
		noun = "object"
	}
	again := ""
	if n := count[recreated]; n > 0 {
		again = fmt.Sprintf(" %d recreated,", n)
	}
	r.req.Log.Successf("%d %s: %d created, %d configured,%s %d unchanged", len(r.targets), noun, count[created], count[configured], again, count[unchanged])
}

// warn hands a warning of the API server on, once.
func (r *applyRun) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.warned[text] {
		r.warned[text] = true
		r.req.Log.Infof("the API server warns: %s", text)
	}
}
