package apply

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Apply applies req.Objects by server-side apply. It does not send objects that are unchanged,
// in Git and in the cluster, since they were last applied. It writes the others in dependency
// order, concurrently within a level, with one PATCH each.
//
// Before the first write, Apply checks the ownership of all objects and dry-runs the changed
// ones. If one is refused, nothing is written, and the error is of kind Invalid and names the
// refused objects. Apply is idempotent: a repetition continues an interrupted run. It does
// not wait for rollouts. After an error, the Result contains what was applied so far.
//
// Objects are written in waves, by their annotation pipecd.dev/order; most sets have one wave.
// Namespaces and CustomResourceDefinitions are written before all waves.
func (c *Client) Apply(ctx context.Context, req Request) (Result, error) {
	r := newApplyRun(c, req)
	ctx = cluster.WithWarnings(ctx, r.warn)
	if err := r.plan(ctx); err != nil {
		return r.outcome(), err
	}
	for _, step := range []func(context.Context) error{r.claimObjects, r.begin, r.write} {
		if err := step(ctx); err != nil {
			return r.outcome(), err
		}
	}
	r.summarize()
	r.logUnreached()
	return r.outcome(), nil
}

// Check runs the checks and dry runs of Apply and returns their error. It writes nothing. It
// logs to req.Log only that it waits for the cluster.
func (c *Client) Check(ctx context.Context, req Request) error {
	r := newApplyRun(c, req)
	r.req.Log = quiet{}
	return r.plan(cluster.WithWarnings(ctx, r.warn))
}

// quiet discards a stage log.
type quiet struct{}

func (quiet) Infof(string, ...any)    {}
func (quiet) Successf(string, ...any) {}
func (quiet) Errorf(string, ...any)   {}

// plan runs the steps before the first write: it reads the live objects, decides which objects
// are sent and how, and dry-runs them.
func (r *applyRun) plan(ctx context.Context) error {
	if r.invalid != nil {
		return r.invalid
	}
	for _, step := range []func(context.Context) error{
		r.findResources, r.readLive, r.warnOfTools, r.checkOwners, r.selectChanged, r.findStalePods, r.findNamespaces, r.prepare, r.dryRun,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// applyRun is the state of one Apply.
type applyRun struct {
	cluster *Client
	req     Request
	targets []*target

	newNamespaces []string // created before the first object
	restarts      map[string]ConfigChange
	invalid       error                // why nothing can be applied; nil if all can
	scaled        map[scaleTarget]bool // what autoscalers in the set scale

	wait   func(error) // for Retry: logs once that the apply waits for the cluster
	mu     sync.Mutex
	warned map[string]bool // API server warnings that were logged
}

func newApplyRun(c *Client, req Request) *applyRun {
	if req.Journal == nil {
		req.Journal = NoJournal{}
	}
	r := &applyRun{cluster: c, req: req, wait: c.LogOnce(req.Log), warned: map[string]bool{}}
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
			whole: hasReplicas || IsWorkload(manifest.GroupKind(ref)) || len(r.ignoreRules(u)) > 0,
		})
		configs.add(ref, u)
	}
	for _, t := range r.targets {
		if t.isWorkload() {
			r.digestWorkload(t, configs)
			continue
		}
		if runsPods(manifest.GroupKind(t.ref)) && req.HookRun == "" {
			t.config = r.podConfig(t, configs)
		}
		t.digest = r.digestOf(t.desired)
		t.same = t.recorded != nil && t.recorded.DesiredDigest == t.digest
	}
	return r
}

// digestOf returns the digest of a desired object and of its ignore rules (Request.Yield).
func (r *applyRun) digestOf(desired *unstructured.Unstructured) string {
	digest := manifest.Digest(desired)
	if rules := r.ignoreRules(desired); len(rules) > 0 {
		return rulesDigest([]any{digest, rules}) // a change of the rules changes the digest
	}
	return digest
}

// each calls fn for every target, with limited concurrency. It returns one error, which may be
// nil, for each target. An error does not cancel the other calls.
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

// findResources sets how each object's kind is served. Kinds that the set itself defines need
// not be served yet.
func (r *applyRun) findResources(ctx context.Context) error {
	inSet := cluster.KindsDefinedBy(r.objects())
	for _, t := range r.targets {
		gvk := t.desired.GroupVersionKind()
		if res, ok := inSet[gvk]; ok {
			t.resource, t.crdInSet = res, true
			continue
		}
		res, err := r.cluster.KindOf(ctx, t.source, r.wait)
		if err != nil {
			return err
		}
		t.resource = res
	}
	return nil
}

// objects returns the desired objects of all targets.
func (r *applyRun) objects() []*unstructured.Unstructured {
	out := make([]*unstructured.Unstructured, len(r.targets))
	for i, t := range r.targets {
		out[i] = t.desired
	}
	return out
}

// prepare completes the desired state of the changed objects: it sets the commit, removes the
// fields not managed by Git, and decides on spec.replicas and the config-hash.
func (r *applyRun) prepare(ctx context.Context) error {
	r.scaled = scaledBySet(r.objects())
	for _, t := range r.changed() {
		setCommit(t.desired, r.commitOf(t))
		if t.liveObject() != nil {
			t.complete = t.desired.DeepCopy()
		}
		r.ignoreFields(t)
		err := r.cluster.Retry(ctx, r.wait, func(ctx context.Context) error {
			return r.cluster.decideReplicas(ctx, t.desired, t.liveObject(), r.scaled)
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
	return r.decideRestarts(ctx)
}

// commitOf returns the value of the commit annotation: the commit that last changed the object
// in Git. An object that is only restored to its applied state, or adopted, retains the live
// value.
func (r *applyRun) commitOf(t *target) string {
	back := t.same && (!t.restarts || len(t.stalePods) > 0)
	if t.live != nil && (back || r.req.Adopt) {
		if commit := t.live.GetAnnotations()[manifest.AnnotationCommitHash]; commit != "" {
			return commit
		}
	}
	return r.req.Commit
}

// begin records the intent of the apply in the journal.
func (r *applyRun) begin(ctx context.Context) error {
	intent := Intent{Restarts: r.restarts}
	if r.req.HookRun == "" {
		var err error
		if intent.Reach, err = r.reachBefore(ctx); err != nil {
			return err
		}
	}
	for _, t := range r.changed() {
		if t.live == nil {
			intent.Creates = append(intent.Creates, t.ref)
		}
	}
	return r.req.Journal.Begin(ctx, intent)
}

// outcome returns the result for the targets that are applied so far.
func (r *applyRun) outcome() Result {
	var done []*target
	var out Result
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

// liveWorkloads returns the workloads among targets as last returned by the API server.
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

// warn logs a warning of the API server, once per text.
func (r *applyRun) warn(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.warned[text] {
		r.warned[text] = true
		r.req.Log.Infof("the API server warns: %s", text)
	}
}
