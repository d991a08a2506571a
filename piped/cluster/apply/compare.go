package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// compareRetryFor is the RetryFor of comparisons. It is short, because the next event or sweep
// repeats a comparison anyway.
const compareRetryFor = 5 * time.Second

// CompareRequest describes which objects of one application are compared with the cluster.
type CompareRequest struct {
	ApplicationID string
	PipedID       string
	Commit        string // of Objects
	VariantKey    string // as in Request
	VariantValue  string

	Objects   []manifest.Object      // the complete set in Git, resolved (Cluster.Resolve)
	Inventory []deploy.InventoryItem // of the application in this cluster
	// Only limits the comparison to these of Objects; nil compares all.
	Only []deploy.ObjectRef

	// Ignore are the fields whose differences are not drift. Fields that an apply leaves to
	// other managers (Yielded) are compared as the apply would leave them.
	Ignore config.DriftDetection
	// Conceal redacts decrypted secrets in texts, and values that contain them. Nil
	// redacts nothing.
	Conceal Concealer
	Diff    bool // fill ObjectDrift.Diff
	// Confirm dry-runs every object, even if its metadata and values show no change.
	Confirm bool
}

// Concealer redacts secrets: Text returns s with each secret replaced.
type Concealer interface{ Text(string) string }

// Compared is the result for one object. UID, OwnedHash, Mark, ValuesDigest and
// ResourceVersion are those of the live object, "" without one.
type Compared struct {
	Object          deploy.ObjectRef
	UID             string
	OwnedHash       string
	Mark            string
	ValuesDigest    string
	ResourceVersion string

	// Drift is the difference; nil when the object is in sync or could not be evaluated.
	Drift *deploy.ObjectDrift
	// Problem explains why the object could not be evaluated; "" when it was.
	Problem string
	// Missing reports that the object does not exist or is being deleted. Compare leaves it
	// false for an applied Job that Kubernetes deletes after its end (Expires).
	Missing bool
	// Ignored reports that an annotation in Git or on the live object excludes it from
	// comparisons.
	Ignored bool
	// DryRun reports that an apply of the object was dry-run.
	DryRun bool
	// Unchanged reports that an apply would change no value and no owner of a field, so
	// that the inventory's item may be updated from the live object. Otherwise only the
	// Mark of the item may be updated, if the object is in sync.
	Unchanged bool
}

// InSync reports whether the object was evaluated and does not differ from Git.
func (c Compared) InSync() bool { return c.Drift == nil && c.Problem == "" && !c.Ignored }

// Compare returns how the requested objects differ from the live ones, in the order of
// req.Objects. It writes nothing.
//
// Compare reads each object once. An object is in sync if the agent still owns the same
// fields and their values are those after the last apply. Otherwise Compare dry-runs an
// apply; a difference in a field that the agent would own is drift. The rate of these dry
// runs is limited per cluster. If a dry run is refused, Compare evaluates the difference
// between the object in Git and the live one, and the Note of the drift contains the refusal.
//
// An object that cannot be evaluated has a Problem. The error is of kind Unavailable when the
// cluster cannot be reached; when ctx ends, it is its cause.
func (c *Client) Compare(ctx context.Context, req CompareRequest) ([]Compared, error) {
	run := newComparison(c.brief(), req)
	ctx = cluster.WithWarnings(ctx, func(string) {})
	errs := each(run.asked, func(t *target) error { return run.object(ctx, t, run.results[t]) })
	if err := together(errs); err != nil {
		return nil, c.endOf(ctx, err)
	}
	out := make([]Compared, len(run.asked))
	for i, t := range run.asked {
		out[i] = *run.results[t]
	}
	return out, nil
}

// brief returns a Client of the same cluster that retries for compareRetryFor only.
func (c *Client) brief() *Client {
	return &Client{c.WithRetryFor(compareRetryFor), c.dryRuns}
}

// endOf returns the error of Compare for err: the cause of ctx if that has ended, else the
// classified error of the first object, because the cluster's errors are all alike.
func (c *Client) endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var all several
	if errors.As(err, &all) {
		err = all[0]
	}
	return c.Classify(err)
}

// comparison is the state of one Compare.
type comparison struct {
	*applyRun
	compare CompareRequest
	asked   []*target                                      // the targets to compare
	inSet   map[schema.GroupVersionKind]cluster.ServedKind // kinds that the set defines
	results map[*target]*Compared                          // of asked
}

func newComparison(c *Client, req CompareRequest) *comparison {
	r := &comparison{compare: req, results: map[*target]*Compared{}, applyRun: newApplyRun(c, Request{
		ApplicationID: req.ApplicationID, PipedID: req.PipedID, Commit: req.Commit,
		VariantKey: req.VariantKey, VariantValue: req.VariantValue,
		Objects: req.Objects, Inventory: req.Inventory, Yield: Yielded(req.Ignore), Log: quiet{},
	})}
	r.inSet, r.scaled = cluster.KindsDefinedBy(r.objects()), scaledBySet(r.objects())
	only := map[string]bool{}
	for _, ref := range req.Only {
		only[ref.Key()] = true
	}
	for _, t := range r.targets {
		if req.Only == nil || only[t.ref.Key()] {
			r.asked = append(r.asked, t)
			r.results[t] = &Compared{Object: t.ref}
		}
	}
	return r
}

// object compares one object and records the result in out. It returns only errors that are
// not specific to the object.
func (r *comparison) object(ctx context.Context, t *target, out *Compared) error {
	if manifest.IgnoresDrift(t.desired.GetAnnotations()) {
		out.Ignored = true
		return nil
	}
	live, err := r.readWhole(ctx, t)
	switch {
	case errors.Is(err, cluster.ErrUnknownKind):
		r.missing(out, t, "the cluster does not know its kind any more")
		return nil
	case apierrors.IsNotFound(err):
		r.gone(out, t, "")
		return nil
	case err != nil:
		return r.problem(ctx, out, r.cluster.explain(t.source, "read", err), err)
	case manifest.IgnoresDrift(live.GetAnnotations()):
		out.Ignored = true
		return nil
	case live.GetDeletionTimestamp() != nil:
		r.gone(out, t, deletionNote(live))
		return nil
	}
	out.UID, out.ResourceVersion = string(live.GetUID()), live.GetResourceVersion()
	out.OwnedHash, out.Mark, out.ValuesDigest = baselineOf(live)
	if !r.compare.Confirm && r.asApplied(t, out) {
		out.Unchanged = true
		return nil
	}
	return r.evaluate(ctx, t, live, out)
}

// readWhole sets how t's kind is served, and reads the live object. The error is unclassified.
func (r *comparison) readWhole(ctx context.Context, t *target) (live *unstructured.Unstructured, err error) {
	err = r.cluster.Retry(ctx, nil, func(ctx context.Context) (err error) {
		if t.resource, err = r.served(ctx, t); err != nil {
			return err
		}
		live, err = r.cluster.ResourceClient(t.resource, t.ref.Namespace).Get(ctx, t.ref.Name, metav1.GetOptions{})
		return err
	})
	return live, err
}

// served returns how t's kind is served. The kind may be defined in the set.
func (r *comparison) served(ctx context.Context, t *target) (cluster.ServedKind, error) {
	gvk := t.desired.GroupVersionKind()
	if res, ok := r.inSet[gvk]; ok {
		return res, nil
	}
	return r.cluster.Lookup(ctx, gvk)
}

// problem records in out why an object cannot be evaluated. It returns err if that is not
// specific to the object: the cluster cannot be reached, or ctx has ended.
func (r *comparison) problem(ctx context.Context, out *Compared, explained, err error) error {
	if ctx.Err() != nil || cluster.Unreachable(err) {
		return err
	}
	out.Problem = explained.Error()
	return nil
}

// asApplied reports whether Git and the live object are unchanged since the last apply: the
// applied object is the one in Git, the agent owns the same fields, and their values are
// those of the API server's answer to that apply.
func (r *comparison) asApplied(t *target, live *Compared) bool {
	return t.recorded != nil && t.recorded.UID == live.UID && t.same &&
		t.recorded.OwnedHash == live.OwnedHash && live.OwnedHash != "" &&
		t.recorded.ValuesDigest == live.ValuesDigest && live.ValuesDigest != ""
}

// missing records in out that the object does not exist. Note is the text of the drift.
func (r *comparison) missing(out *Compared, t *target, note string) {
	out.Missing = true
	out.Drift = &deploy.ObjectDrift{Object: t.ref, Cluster: r.cluster.Name(), Kind: deploy.DriftMissing, Note: note}
	if r.compare.Diff {
		out.Drift.Diff = describer{conceal: r.compare.Conceal}.diff(t.desired, nil, nil)
	}
}

// gone is missing, but records nothing for an applied Job that Kubernetes deletes after its
// end (Expires).
func (r *comparison) gone(out *Compared, t *target, note string) {
	if _, ends := Expires(t.desired); !ends || t.recorded == nil {
		r.missing(out, t, note)
	}
}

// deletionNote returns the note of the drift of an object that is being deleted.
func deletionNote(live metav1.Object) string {
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		return fmt.Sprintf("it is being deleted and waits for its finalizers %q", finalizers)
	}
	return "it is being deleted"
}

// evaluate records in out, by a dry run, what an apply would change in a live object. It sends
// no dry run if the cache shows that this version of the object is in sync.
func (r *comparison) evaluate(ctx context.Context, t *target, live *unstructured.Unstructured, out *Compared) error {
	against := r.against(t)
	if !r.compare.Confirm && r.cluster.dryRuns.known(out.UID, out.ResourceVersion, against) {
		return nil
	}
	if err := r.completeDesired(ctx, t, live); err != nil {
		return r.problem(ctx, out, r.cluster.explain(t.source, "look for an autoscaler of", err), err)
	}
	if err := r.cluster.dryRuns.wait(ctx); err != nil {
		if ctx.Err() != nil {
			return err
		}
		out.Problem = fmt.Sprintf("%s is compared later: more objects than can be at once have been changed", t.ref)
		return nil
	}
	out.DryRun = true
	planned, err := r.dryRunWhole(ctx, t)
	var found difference
	switch {
	case apierrors.IsNotFound(err):
		r.missing(out, t, "") // deleted meanwhile
		return nil
	case err != nil && (ctx.Err() != nil || cluster.Transient(err) || cluster.Unreachable(err)):
		return r.problem(ctx, out, r.cluster.explain(t.source, "compare", err), err)
	case err != nil && r.asApplied(t, out): // in sync, whatever the cause of the refusal
		out.Unchanged = true
		return nil
	case err != nil:
		found = r.unconfirmed(t, live, err)
	default:
		if found, err = r.confirmed(t, planned, live); err != nil {
			return r.problem(ctx, out, r.cluster.explain(t.source, "compare", err), err)
		}
		out.Unchanged = len(found.changes) == 0 && OwnedHash(planned.GetManagedFields()) == out.OwnedHash
	}
	if len(found.changes) == 0 {
		r.cluster.dryRuns.remember(out.UID, out.ResourceVersion, against)
		return nil
	}
	out.Drift = r.drift(t, live, found)
	return nil
}

// completeDesired completes the desired state of t, as prepare does, but with the live commit
// and config-hash: differences in these are not drift.
func (r *comparison) completeDesired(ctx context.Context, t *target, live *unstructured.Unstructured) error {
	t.live = live
	commit := live.GetAnnotations()[manifest.AnnotationCommitHash]
	if commit == "" {
		commit = r.req.Commit
	}
	setCommit(t.desired, commit)
	if t.isWorkload() {
		setConfigHash(t.desired, configHash(live))
	}
	r.ignoreFields(t)
	return r.cluster.Retry(ctx, nil, func(ctx context.Context) error {
		return r.cluster.decideReplicas(ctx, t.desired, live, r.scaled)
	})
}

// dryRunWhole returns the result of applying the object, by a dry run. It leaves out colliding
// live items, because an apply removes them. The error is unclassified.
func (r *comparison) dryRunWhole(ctx context.Context, t *target) (planned *unstructured.Unstructured, err error) {
	err = r.cluster.Retry(ctx, nil, func(ctx context.Context) error {
		planned, err = r.cluster.serverSideApply(ctx, t, t.desired, metav1.DryRunAll)
		return err
	})
	found := collisionsOf(t.desired, t.liveObject(), err)
	if len(found) == 0 || len(appliedByOthers(found)) > 0 || r.cluster.dryRuns.wait(ctx) != nil {
		return planned, err
	}
	if apart, refusal := r.cluster.dryRunWithout(ctx, t, found); refusal == nil {
		return apart, nil
	}
	return nil, err
}

// against returns a digest of the object in Git and of the ignore rules.
func (r *comparison) against(t *target) string {
	return t.digest + rulesDigest(r.compare.Ignore)
}
