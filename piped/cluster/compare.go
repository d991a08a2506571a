package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// compareRetryFor is how long one object's comparison asks again while the cluster
// does not answer: the next event or sweep comes anyway.
const compareRetryFor = 5 * time.Second

// CompareRequest says which objects of one application are compared with the cluster.
type CompareRequest struct {
	ApplicationID string
	PipedID       string
	Commit        string // that the objects are of
	VariantKey    string // as in ApplyRequest
	VariantValue  string

	Objects   []manifest.Object      // the complete set that the cluster should hold, resolved
	Inventory []deploy.InventoryItem // of the application, on this cluster
	// Only are those of Objects that are compared; nil is all of them.
	Only []deploy.ObjectRef

	// Ignore says which differences are none; fields that it yields to others are
	// judged as an apply would leave them.
	Ignore config.DriftDetection
	// Conceal takes decrypted secrets out of a text; values it changes are masked. Nil
	// knows none.
	Conceal Concealer
	Diff    bool // fill ObjectDrift.Diff
	// Confirm asks the API server about every object, even if its metadata and values
	// tell that nothing has changed.
	Confirm bool
}

// Concealer takes secrets out of texts.
type Concealer interface{ Text(string) string }

// Compared says how one object compares with Git. UID, OwnedHash, Mark and
// ValuesDigest are of the live object as it was read, "" without one.
type Compared struct {
	Object          deploy.ObjectRef
	UID             string
	OwnedHash       string
	Mark            string
	ValuesDigest    string
	ResourceVersion string

	// Drift is how it differs; nil when it is as in Git or could not be judged.
	Drift *deploy.ObjectDrift
	// Problem is why it could not be judged, for a person; "" when it was.
	Problem string
	// Missing says that there is no such object, or one that is being deleted.
	Missing bool
	// Ignored says that an annotation in Git or on the live object keeps it from being
	// compared. Nothing else is known of it then.
	Ignored bool
	// DryRun says that the API server was asked what an apply would change.
	DryRun bool
	// Settled says that an apply would change neither a value nor who owns a field:
	// what is known of the live object may replace the inventory's item. Without it,
	// of an object in sync only the mark may be learned.
	Settled bool
}

// InSync reports whether the object was judged and is as in Git.
func (c Compared) InSync() bool { return c.Drift == nil && c.Problem == "" && !c.Ignored }

// Compare tells how the objects asked for differ from what is live, in the order of
// req.Objects. Nothing is written.
//
// An object is read, once. If nobody has taken a field from us and the values of ours
// are those that the last apply led to, it is in sync. Otherwise the API server is
// asked by a dry run what an apply would make of it, and only fields that would be ours
// count: a difference there is drift. Dry runs are limited for each cluster. One that
// is refused is replaced by a comparison of what Git declares with what is live, and
// the drift that shows is noted to be unconfirmed.
//
// What cannot be judged is said object by object. The error is Unavailable when the
// cluster cannot be reached at all; otherwise it is the end of ctx.
func (c *Cluster) Compare(ctx context.Context, req CompareRequest) ([]Compared, error) {
	run := newComparison(c.brief(), req)
	ctx = withWarnings(ctx, func(string) {})
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

// brief returns the cluster as one whose calls give up soon.
func (c *Cluster) brief() *Cluster {
	brief := *c
	brief.retryFor = min(c.retryFor, compareRetryFor)
	return &brief
}

// endOf returns why comparisons ended with err: the cause of ctx, or the first of
// several errors that say the same of the cluster.
func (c *Cluster) endOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var all several
	if errors.As(err, &all) {
		err = all[0]
	}
	return c.Classify(err)
}

// comparison is one Compare as it goes on.
type comparison struct {
	*applyRun
	compare CompareRequest
	asked   []*target
	inSet   map[schema.GroupVersionKind]ServedKind
	results map[*target]*Compared
}

func newComparison(c *Cluster, req CompareRequest) *comparison {
	r := &comparison{compare: req, results: map[*target]*Compared{}, applyRun: newApplyRun(c, ApplyRequest{
		ApplicationID: req.ApplicationID, PipedID: req.PipedID, Commit: req.Commit,
		VariantKey: req.VariantKey, VariantValue: req.VariantValue,
		Objects: req.Objects, Inventory: req.Inventory, Yield: Yielded(req.Ignore), Log: quiet{},
	})}
	r.inSet, r.scaled = definedBy(r.objects()), scaledBySet(r.objects())
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

// object compares one object. The error is one that all others would meet as well.
func (r *comparison) object(ctx context.Context, t *target, out *Compared) error {
	if manifest.IgnoresDrift(t.desired.GetAnnotations()) {
		out.Ignored = true
		return nil
	}
	live, err := r.readWhole(ctx, t)
	switch {
	case errors.Is(err, ErrUnknownKind):
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
		out.Settled = true
		return nil
	}
	return r.evaluate(ctx, t, live, out)
}

// readWhole reads an object. It sets the target's resource.
func (r *comparison) readWhole(ctx context.Context, t *target) (live *unstructured.Unstructured, err error) {
	err = r.cluster.retry(ctx, nil, func(ctx context.Context) (err error) {
		if t.resource, err = r.served(ctx, t); err != nil {
			return err
		}
		live, err = r.cluster.ResourceClient(t.resource, t.ref.Namespace).Get(ctx, t.ref.Name, metav1.GetOptions{})
		return err
	})
	return live, err
}

func (r *comparison) served(ctx context.Context, t *target) (ServedKind, error) {
	gvk := t.desired.GroupVersionKind()
	if res, ok := r.inSet[gvk]; ok {
		return res, nil
	}
	return r.cluster.discovery.lookup(ctx, gvk)
}

// problem says in out why an object cannot be judged; it returns err when it is no
// fault of the object: the cluster cannot be reached, or ctx has ended.
func (r *comparison) problem(ctx context.Context, out *Compared, explained, err error) error {
	if ctx.Err() != nil || Unreachable(err) {
		return err
	}
	out.Problem = explained.Error()
	return nil
}

// asApplied reports whether a live object is what the last apply led to: the object
// that was applied is the one that Git has, nobody took a field of it, and the values
// of our fields are those that the API server answered with.
func (r *comparison) asApplied(t *target, live *Compared) bool {
	return t.recorded != nil && t.recorded.UID == live.UID && t.same &&
		t.recorded.OwnedHash == live.OwnedHash && live.OwnedHash != "" &&
		t.recorded.ValuesDigest == live.ValuesDigest && live.ValuesDigest != ""
}

// missing says in out that there is no such object.
func (r *comparison) missing(out *Compared, t *target, note string) {
	out.Missing = true
	out.Drift = &deploy.ObjectDrift{Object: t.ref, Cluster: r.cluster.name, Kind: deploy.DriftMissing, Note: note}
	if r.compare.Diff {
		out.Drift.Diff = describer{conceal: r.compare.Conceal}.diff(t.desired, nil, nil)
	}
}

// gone is missing, unless Kubernetes removes what has done its work.
func (r *comparison) gone(out *Compared, t *target, note string) {
	if _, ends := Expires(t.desired); !ends || t.recorded == nil {
		r.missing(out, t, note)
	}
}

func deletionNote(live metav1.Object) string {
	if finalizers := live.GetFinalizers(); len(finalizers) > 0 {
		return fmt.Sprintf("it is being deleted and waits for its finalizers %q", finalizers)
	}
	return "it is being deleted"
}

// evaluate asks the API server what an apply would change of a live object.
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
	case err != nil && (ctx.Err() != nil || transient(err) || Unreachable(err)):
		return r.problem(ctx, out, r.cluster.explain(t.source, "compare", err), err)
	case err != nil && r.asApplied(t, out): // the refusal says nothing of the object
		out.Settled = true
		return nil
	case err != nil:
		found = r.unconfirmed(t, live, err)
	default:
		if found, err = r.confirmed(t, planned, live); err != nil {
			return r.problem(ctx, out, r.cluster.explain(t.source, "compare", err), err)
		}
		out.Settled = len(found.changes) == 0 && OwnedHash(planned.GetManagedFields()) == out.OwnedHash
	}
	if len(found.changes) == 0 {
		r.cluster.dryRuns.remember(out.UID, out.ResourceVersion, against)
		return nil
	}
	out.Drift = r.drift(t, live, found)
	return nil
}

// completeDesired completes what an apply over live would send: as prepare does, but
// with the commit and the config-hash that the live object has, which are no drift.
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
	return r.cluster.retry(ctx, nil, func(ctx context.Context) error {
		return r.cluster.decideReplicas(ctx, t.desired, live, r.scaled)
	})
}

// dryRunWhole asks the API server what applying the object would lead to, without the live
// items that an apply removes because it would be refused beside them.
func (r *comparison) dryRunWhole(ctx context.Context, t *target) (planned *unstructured.Unstructured, err error) {
	err = r.cluster.retry(ctx, nil, func(ctx context.Context) error {
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

// against names what an object is compared with: what Git has, and what is ignored.
func (r *comparison) against(t *target) string {
	return t.digest + rulesDigest(r.compare.Ignore)
}
