package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// The supported kinds of workload.
const (
	KindDeployment  = "Deployment"
	KindStatefulSet = "StatefulSet"
	KindDaemonSet   = "DaemonSet"
)

// The annotations by which any tool can name the commit that a workload was made of.
const (
	AnnotationRepository = "pipecd.dev/repository"
	AnnotationCommit     = "pipecd.dev/commit"
)

// Source is the commit that the annotations of a workload or its pod template name. Anyone who may
// write the workload can set them.
type Source struct {
	Repository string `json:"repository,omitempty"`
	Commit     string `json:"commit,omitempty"`
}

// sourceIn returns the Source that annotations name.
func sourceIn(annotations map[string]string) Source {
	return Source{annotations[AnnotationRepository], annotations[AnnotationCommit]}
}

// over returns s completed by other. The annotations of a pod template go before those of its
// workload, because they are of the same revision as the images.
func (s Source) over(other Source) Source {
	return Source{cmp.Or(s.Repository, other.Repository), cmp.Or(s.Commit, other.Commit)}
}

// RevisionAnnotation is the annotation of a ReplicaSet with its revision number.
const RevisionAnnotation = "deployment.kubernetes.io/revision"

// Condition is one condition of a workload or ReplicaSet. The zero value means that the
// object has no such condition.
type Condition struct {
	Status  string    `json:"status,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Updated time.Time `json:"updated,omitzero"` // lastUpdateTime, else lastTransitionTime
}

// Workload contains what rollout detection needs of a Deployment, StatefulSet or DaemonSet.
// The counts are those of its status.
type Workload struct {
	Kind               string    `json:"kind"`
	Name               string    `json:"name"`
	UID                string    `json:"uid"`
	Created            time.Time `json:"created,omitzero"`
	Generation         int64     `json:"generation"`
	ObservedGeneration int64     `json:"observedGeneration"`
	Deleting           bool      `json:"deleting,omitempty"`
	Paused             bool      `json:"paused,omitempty"`
	OwnPaused          bool      `json:"ownPaused,omitempty"` // the agent applied spec.paused
	Template           Template  `json:"template"`
	Images             string    `json:"images,omitempty"` // see deploy.Rollout
	Source             Source    `json:"source,omitzero"`
	Selector           string    `json:"selector,omitempty"`

	// Annotations contains the annotations of the template with a hash of each value.
	// OwnAnnotations names those that the agent applied.
	Annotations    map[string]string `json:"annotations,omitempty"`
	OwnAnnotations []string          `json:"ownAnnotations,omitempty"`

	// TemplateManager is the field manager that last wrote the template, at
	// TemplateManagedAt (cluster's time). ManagedAt is the time of the last write by any
	// manager.
	TemplateManager   string    `json:"templateManager,omitempty"`
	TemplateManagedAt time.Time `json:"templateManagedAt,omitzero"`
	ManagedAt         time.Time `json:"managedAt,omitzero"`
	// ScaledBy is the field manager that last wrote the number of replicas, at ScaledAt
	// (cluster's time; zero if unknown).
	ScaledBy string    `json:"scaledBy,omitempty"`
	ScaledAt time.Time `json:"scaledAt,omitzero"`

	Replicas  int32         `json:"replicas"` // desired; for a DaemonSet desiredNumberScheduled
	Strategy  string        `json:"strategy,omitempty"`
	Partition int32         `json:"partition,omitempty"`
	Ordered   bool          `json:"ordered,omitempty"`  // a StatefulSet that replaces one pod at a time
	Deadline  time.Duration `json:"deadline,omitempty"` // 0: the workload has none
	MinReady  time.Duration `json:"minReady,omitempty"`

	Total       int32 `json:"total,omitempty"`
	Updated     int32 `json:"updated,omitempty"`
	Ready       int32 `json:"ready,omitempty"`
	Available   int32 `json:"available,omitempty"`
	Terminating int32 `json:"terminating,omitempty"`
	// Uncounted reports that the cluster does not count terminating pods.
	Uncounted bool `json:"uncounted,omitempty"`

	// CurrentRevision and UpdateRevision are the names of a StatefulSet's revisions. For a
	// DaemonSet UpdateRevision is its template generation. They are "" for a Deployment.
	CurrentRevision string `json:"currentRevision,omitempty"`
	UpdateRevision  string `json:"updateRevision,omitempty"`

	Progressing Condition `json:"progressing,omitzero"`
	Failure     Condition `json:"failure,omitzero"` // ReplicaFailure
	// Unavailable reports that the condition Available of a Deployment is false: fewer pods
	// are available than its strategy requires.
	Unavailable bool `json:"unavailable,omitempty"`
}

// Revision contains what rollout detection needs of a ReplicaSet. A ControllerRevision of a
// StatefulSet or DaemonSet has only the fields up to Template.
type Revision struct {
	UID                string    `json:"uid"`
	Name               string    `json:"name"`
	OwnerUID           string    `json:"ownerUID"`
	Number             int64     `json:"number"` // 0 when the annotation is missing
	Created            time.Time `json:"created,omitzero"`
	Template           Template  `json:"template"`
	Generation         int64     `json:"generation"`
	ObservedGeneration int64     `json:"observedGeneration"`
	Deleting           bool      `json:"deleting,omitempty"`

	// Images are as Workload.Images. Source is that of the pod template alone. Both are set only by RevisionFrom and
	// ControllerRevisionFrom.
	Images    string    `json:"images,omitempty"`
	Source    Source    `json:"source,omitzero"`
	Desired   int32     `json:"desired"` // spec.replicas
	Total     int32     `json:"total,omitempty"`
	Ready     int32     `json:"ready,omitempty"`
	Available int32     `json:"available,omitempty"`
	Failure   Condition `json:"failure,omitzero"` // ReplicaFailure
}

// FromDeployment converts a Deployment.
func FromDeployment(d *appsv1.Deployment) Workload { return FromDeploymentAfter(d, Workload{}) }

// FromDeploymentAfter is FromDeployment for a caller that has converted an older state of d
// before. It computes no digests if UID and generation are unchanged.
func FromDeploymentAfter(d *appsv1.Deployment, before Workload) Workload {
	w := fromMeta(KindDeployment, &d.ObjectMeta, d.Spec.Selector)
	w.Template, w.Images, w.Annotations = before.Template, before.Images, before.Annotations
	if before.UID != w.UID || before.Generation != w.Generation {
		w.readTemplate(&d.Spec.Template)
	}
	w.Source = sourceIn(d.Spec.Template.Annotations).over(w.Source)
	w.ObservedGeneration = d.Status.ObservedGeneration
	w.Paused = d.Spec.Paused
	w.Replicas = orOne(d.Spec.Replicas)
	w.Strategy = string(d.Spec.Strategy.Type)
	if s := d.Spec.ProgressDeadlineSeconds; s != nil && *s != math.MaxInt32 {
		w.Deadline = seconds(*s)
	}
	w.MinReady = seconds(d.Spec.MinReadySeconds)
	w.Total, w.Updated = d.Status.Replicas, d.Status.UpdatedReplicas
	w.Ready, w.Available = d.Status.ReadyReplicas, d.Status.AvailableReplicas
	w.Uncounted = d.Status.TerminatingReplicas == nil
	if !w.Uncounted {
		w.Terminating = *d.Status.TerminatingReplicas
	}
	for _, c := range d.Status.Conditions {
		found := Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Updated: c.LastUpdateTime.Time}
		switch c.Type {
		case appsv1.DeploymentProgressing:
			w.Progressing = found
		case appsv1.DeploymentReplicaFailure:
			w.Failure = found
		case appsv1.DeploymentAvailable:
			w.Unavailable = c.Status == corev1.ConditionFalse
		}
	}
	return w
}

// FromStatefulSet converts a StatefulSet.
func FromStatefulSet(s *appsv1.StatefulSet) Workload {
	w := fromMeta(KindStatefulSet, &s.ObjectMeta, s.Spec.Selector)
	w.readTemplate(&s.Spec.Template)
	w.ObservedGeneration = s.Status.ObservedGeneration
	w.Replicas = orOne(s.Spec.Replicas)
	w.Strategy = string(s.Spec.UpdateStrategy.Type)
	w.Ordered = s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement
	if r := s.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		w.Partition = *r.Partition
	}
	w.MinReady = seconds(s.Spec.MinReadySeconds)
	w.Total, w.Updated = s.Status.Replicas, s.Status.UpdatedReplicas
	w.Ready, w.Available = s.Status.ReadyReplicas, s.Status.AvailableReplicas
	w.CurrentRevision, w.UpdateRevision = s.Status.CurrentRevision, s.Status.UpdateRevision
	return w
}

// FromDaemonSet converts a DaemonSet.
func FromDaemonSet(d *appsv1.DaemonSet) Workload {
	w := fromMeta(KindDaemonSet, &d.ObjectMeta, d.Spec.Selector)
	w.readTemplate(&d.Spec.Template)
	w.ObservedGeneration = d.Status.ObservedGeneration
	w.Replicas = d.Status.DesiredNumberScheduled
	w.Strategy = string(d.Spec.UpdateStrategy.Type)
	w.MinReady = seconds(d.Spec.MinReadySeconds)
	w.Total, w.Updated = d.Status.CurrentNumberScheduled, d.Status.UpdatedNumberScheduled
	w.Ready, w.Available = d.Status.NumberReady, d.Status.NumberAvailable
	w.UpdateRevision = d.Annotations[appsv1.DeprecatedTemplateGeneration]
	return w
}

// FromReplicaSet converts a ReplicaSet.
func FromReplicaSet(rs *appsv1.ReplicaSet) Revision { return FromReplicaSetAfter(rs, Revision{}) }

// FromReplicaSetAfter is FromReplicaSet for a caller that has converted an older state of rs
// before. It computes no digests if UID and generation are unchanged.
func FromReplicaSetAfter(rs *appsv1.ReplicaSet, before Revision) Revision {
	template := before.Template
	if before.UID != string(rs.UID) || before.Generation != rs.Generation {
		template = templateOf(&rs.Spec.Template)
	}
	r := Revision{
		UID: string(rs.UID), Name: rs.Name, Created: rs.CreationTimestamp.Time, Template: template,
		Generation: rs.Generation, ObservedGeneration: rs.Status.ObservedGeneration, Deleting: rs.DeletionTimestamp != nil,
		Desired: orOne(rs.Spec.Replicas), Total: rs.Status.Replicas,
		Ready: rs.Status.ReadyReplicas, Available: rs.Status.AvailableReplicas,
	}
	if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
		r.OwnerUID = string(owner.UID)
	}
	if n, err := strconv.ParseInt(rs.Annotations[RevisionAnnotation], 10, 64); err == nil {
		r.Number = n
	}
	for _, c := range rs.Status.Conditions {
		if c.Type == appsv1.ReplicaSetReplicaFailure {
			r.Failure = Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Updated: c.LastTransitionTime.Time}
		}
	}
	return r
}

// WorkloadFrom converts a Deployment, StatefulSet or DaemonSet as the API server returned
// it. The template's identity includes fields that are unknown to the Go types. Any other
// kind is an error.
func WorkloadFrom(u *unstructured.Unstructured) (Workload, error) {
	var w Workload
	var err error
	switch u.GetKind() {
	case KindDeployment:
		w, err = convert(u, FromDeployment)
	case KindStatefulSet:
		w, err = convert(u, FromStatefulSet)
	case KindDaemonSet:
		w, err = convert(u, FromDaemonSet)
	default:
		return Workload{}, fmt.Errorf("%s %s has no rollout", u.GetKind(), u.GetName())
	}
	w.Template, w.Images = ObjectTemplate(u), imagesIn(u)
	annotations := templateAnnotations(u)
	w.Annotations, w.Source = hashes(annotations), sourceIn(annotations).over(w.Source)
	return w, err
}

// RevisionFrom converts a ReplicaSet as the API server returned it. The template's identity
// includes fields that are unknown to the Go types.
func RevisionFrom(u *unstructured.Unstructured) (Revision, error) {
	r, err := convert(u, FromReplicaSet)
	r.Template, r.Images, r.Source = ObjectTemplate(u), imagesIn(u), sourceIn(templateAnnotations(u))
	return r, err
}

// templateAnnotations returns the annotations of the pod template.
func templateAnnotations(u *unstructured.Unstructured) map[string]string {
	annotations, _, _ := unstructured.NestedStringMap(u.Object, "spec", "template", "metadata", "annotations")
	return annotations
}

// convert decodes u into T and applies read. It omits the pod template, which would be most
// of the work.
func convert[T, V any](u *unstructured.Unstructured, read func(*T) V) (V, error) {
	object := make(map[string]any, len(u.Object))
	for k, v := range u.Object {
		object[k] = v
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		slim := make(map[string]any, len(spec))
		for k, v := range spec {
			if k != "template" && k != "volumeClaimTemplates" {
				slim[k] = v
			}
		}
		object["spec"] = slim
	}
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &typed); err != nil {
		var none V
		return none, fmt.Errorf("read %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return read(&typed), nil
}

// fromMeta returns a Workload with the fields that are in an object's metadata and selector.
func fromMeta(kind string, m *metav1.ObjectMeta, selector *metav1.LabelSelector) Workload {
	w := Workload{
		Kind: kind, Name: m.Name, UID: string(m.UID), Generation: m.Generation, Created: m.CreationTimestamp.Time,
		Deleting: m.DeletionTimestamp != nil, Selector: metav1.FormatLabelSelector(selector),
		Source: sourceIn(m.Annotations),
	}
	for _, entry := range m.ManagedFields {
		var at time.Time // an entry of the scale subresource may have no time
		if entry.Time != nil {
			at = entry.Time.Time
		}
		template, replicas := owns(entry.FieldsV1)
		if replicas && !at.Before(w.ScaledAt) {
			w.ScaledBy, w.ScaledAt = entry.Manager, at
		}
		if at.After(w.ManagedAt) {
			w.ManagedAt = at
		}
		if entry.Manager == ownManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == "" {
			w.OwnAnnotations, w.OwnPaused = ownFields(entry.FieldsV1)
		}
		if template && entry.Time != nil && !at.Before(w.TemplateManagedAt) {
			w.TemplateManager, w.TemplateManagedAt = entry.Manager, at
		}
	}
	return w
}

// owns reports whether a managed fields set contains the pod template and the number of
// replicas.
func owns(fields *metav1.FieldsV1) (template, replicas bool) {
	if fields == nil {
		return false, false
	}
	var owned struct {
		Spec struct {
			Template json.RawMessage `json:"f:template"`
			Replicas json.RawMessage `json:"f:replicas"`
		} `json:"f:spec"`
	}
	if json.Unmarshal(fields.GetRawBytes(), &owned) != nil {
		return false, false
	}
	return owned.Spec.Template != nil, owned.Spec.Replicas != nil
}

// imagesOf returns the images of the template's containers in order, separated by spaces.
func imagesOf(t *corev1.PodTemplateSpec) string {
	images := make([]string, len(t.Spec.Containers))
	for i, c := range t.Spec.Containers {
		images[i] = c.Image
	}
	return strings.Join(images, " ")
}

// imagesIn is imagesOf for a workload or ReplicaSet as the API server returned it.
func imagesIn(u *unstructured.Unstructured) string {
	containers, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "template", "spec", "containers")
	list, _ := containers.([]any)
	images := make([]string, len(list))
	for i, c := range list {
		fields, _ := c.(map[string]any)
		images[i], _ = fields["image"].(string)
	}
	return strings.Join(images, " ")
}

// orOne returns *n, or the default of spec.replicas if n is nil.
func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
