package manifest

import "k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

// Annotations that the agent sets on applied objects. The keys are PipeCD's.
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

// Annotations that users set on manifests. The keys are PipeCD's.
const (
	AnnotationIgnoreDrift        = "pipecd.dev/ignore-drift-detection" // "true"
	AnnotationSyncByReplace      = "pipecd.dev/sync-by-replace"        // "enabled"
	AnnotationForceSyncByReplace = "pipecd.dev/force-sync-by-replace"  // "enabled"
	AnnotationServerSideApply    = "pipecd.dev/server-side-apply"      // "true"
	AnnotationOrder              = "pipecd.dev/order"                  // an integer
)

// AnnotationConfigPropagation is set by users on a workload. It overrides the application's
// setting for the propagation of changed ConfigMaps and Secrets to running pods. The agent
// writes AnnotationConfigSync on a pod so that the kubelet refreshes the pod's volumes at
// once. PipeCD has neither key.
const (
	AnnotationConfigPropagation = "pipecd.dev/config-propagation"
	AnnotationConfigSync        = "pipecd.dev/config-sync"
)

// IgnoresDrift reports whether these annotations exclude an object from drift
// detection.
func IgnoresDrift(annotations map[string]string) bool {
	return annotations[AnnotationIgnoreDrift] == "true"
}

// AnnotationResourcePolicy is Helm's annotation. An object with the value ResourcePolicyKeep
// is not deleted when Git no longer contains it.
const (
	AnnotationResourcePolicy = "helm.sh/resource-policy"
	ResourcePolicyKeep       = "keep"
)

// LabelApplication is the key of a label on every applied object. Its value is the
// application's ID.
const LabelApplication = "pipecd.dev/application"

// ManagedBy is the value of AnnotationManagedBy.
const ManagedBy = "piped"

// Ownership identifies the owner of an applied object.
type Ownership struct {
	PipedID       string
	ApplicationID string
	CommitHash    string
	VariantKey    string // key of the variant annotation; "" for none
	Variant       string
}

// Annotate sets the ownership annotations and the application label of u. It preserves
// all others, and does not change selectors and pod templates.
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
