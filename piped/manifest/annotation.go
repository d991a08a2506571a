package manifest

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Annotations the agent sets on what it applies. The keys are PipeCD's.
const (
	AnnotationManagedBy          = "pipecd.dev/managed-by" // ManagedBy
	AnnotationPiped              = "pipecd.dev/piped"
	AnnotationApplication        = "pipecd.dev/application"
	AnnotationOriginalAPIVersion = "pipecd.dev/original-api-version"
	AnnotationResourceKey        = "pipecd.dev/resource-key"
	AnnotationCommitHash         = "pipecd.dev/commit-hash" // the commit that last changed the object
	AnnotationConfigHash         = "pipecd.dev/config-hash" // on pod templates
	AnnotationHookRun            = "pipecd.dev/hook-run"    // on hooks: the deployment and the phase that ran it
)

// Annotations people set on their manifests. The keys are PipeCD's.
const (
	AnnotationIgnoreDrift        = "pipecd.dev/ignore-drift-detection" // "true"
	AnnotationSyncByReplace      = "pipecd.dev/sync-by-replace"        // "enabled"
	AnnotationForceSyncByReplace = "pipecd.dev/force-sync-by-replace"  // "enabled"
	AnnotationServerSideApply    = "pipecd.dev/server-side-apply"      // "true"
	AnnotationOrder              = "pipecd.dev/order"                  // an integer
)

// AnnotationConfigPropagation is set by people on a workload: how changed ConfigMaps and
// Secrets reach its pods, in place of what the application says.
// AnnotationConfigSync is what the agent writes on a pod to have the kubelet look at its
// volumes at once. Both are keys of our own.
const (
	AnnotationConfigPropagation = "pipecd.dev/config-propagation"
	AnnotationConfigSync        = "pipecd.dev/config-sync"
)

// IgnoresDrift reports whether an object with these annotations asks not to be compared
// with Git.
func IgnoresDrift(annotations map[string]string) bool {
	return annotations[AnnotationIgnoreDrift] == "true"
}

// AnnotationResourcePolicy is Helm's: an object with the value ResourcePolicyKeep is
// not deleted when Git has it no more.
const (
	AnnotationResourcePolicy = "helm.sh/resource-policy"
	ResourcePolicyKeep       = "keep"
)

// LabelApplication is the label every applied object carries; its value is the
// application's ID.
const LabelApplication = "pipecd.dev/application"

// ManagedBy is the value of AnnotationManagedBy.
const ManagedBy = "piped"

// Ownership says whose an applied object is.
type Ownership struct {
	PipedID       string
	ApplicationID string
	CommitHash    string
	VariantKey    string // of the variant annotation; "" for none
	Variant       string
}

// Annotate marks u as owned: PipeCD's annotations, and the application label.
// It changes u. What else u carries stays; selectors and pod templates are not
// touched.
func Annotate(u *unstructured.Unstructured, o Ownership) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[AnnotationManagedBy] = ManagedBy
	annotations[AnnotationPiped] = o.PipedID
	annotations[AnnotationApplication] = o.ApplicationID
	annotations[AnnotationOriginalAPIVersion] = u.GetAPIVersion()
	annotations[AnnotationResourceKey] = ResourceKey(u)
	annotations[AnnotationCommitHash] = o.CommitHash
	if o.VariantKey != "" {
		annotations[o.VariantKey] = o.Variant
	}
	u.SetAnnotations(annotations)

	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelApplication] = o.ApplicationID
	u.SetLabels(labels)
}
