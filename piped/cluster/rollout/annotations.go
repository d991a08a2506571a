package rollout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/deploy"
)

// ownManager is the agent's field manager.
const ownManager = "piped"

// readTemplate sets the template digests, the images and the hashed template annotations of
// w.
func (w *Workload) readTemplate(t *corev1.PodTemplateSpec) {
	w.Template, w.Images, w.Annotations = templateOf(t), imagesOf(t), hashes(t.Annotations)
	w.Source = sourceIn(t.Annotations).over(w.Source)
}

// hashes returns annotations with each value replaced by a hash, because values may be long
// or secret. It returns nil for no annotations.
func hashes(annotations map[string]string) map[string]string {
	if len(annotations) == 0 {
		return nil
	}
	hashed := make(map[string]string, len(annotations))
	for name, value := range annotations {
		sum := sha256.Sum256([]byte(value))
		hashed[name] = hex.EncodeToString(sum[:8])
	}
	return hashed
}

// ownFields returns the pod template annotations in a managed fields set, sorted by name,
// and whether the set contains spec.paused. A malformed set counts as empty.
func ownFields(fields *metav1.FieldsV1) (names []string, paused bool) {
	if fields == nil {
		return nil, false
	}
	var owned struct {
		Spec struct {
			Paused   json.RawMessage `json:"f:paused"`
			Template struct {
				Metadata struct {
					Annotations map[string]json.RawMessage `json:"f:annotations"`
				} `json:"f:metadata"`
			} `json:"f:template"`
		} `json:"f:spec"`
	}
	if json.Unmarshal(fields.GetRawBytes(), &owned) != nil {
		return nil, false
	}
	for field := range owned.Spec.Template.Metadata.Annotations {
		if name, ok := strings.CutPrefix(field, "f:"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, owned.Spec.Paused != nil
}

// appliedAnnotations returns deploy.Rollout.TemplateAnnotations of a workload that was just
// applied: a JSON object with the hash of each template annotation that the agent owns, ""
// if it owns none.
func appliedAnnotations(w Workload) string {
	own := map[string]string{}
	for _, name := range w.OwnAnnotations {
		if hash, ok := w.Annotations[name]; ok {
			own[name] = hash
		}
	}
	if len(own) == 0 {
		return ""
	}
	text, err := json.Marshal(own) // keys sorted
	if err != nil {
		return "" // cannot happen: a map of strings can always be encoded
	}
	return string(text)
}

// changedAnnotations returns the names of the applied template annotations that are missing
// from w or have another value there, sorted.
func changedAnnotations(rec deploy.Rollout, w *Workload) []string {
	own := map[string]string{}
	if rec.TemplateAnnotations != "" && json.Unmarshal([]byte(rec.TemplateAnnotations), &own) != nil {
		return nil
	}
	maps.DeleteFunc(own, func(name, hash string) bool { return w.Annotations[name] == hash })
	return slices.Sorted(maps.Keys(own))
}

// restarted reports whether the template of w may result from a restart of the applied one,
// such as kubectl rollout restart: it differs at most in annotations that the agent did not
// apply. The template from before the apply does not count, because restoring it undoes the
// apply.
func restarted(rec deploy.Rollout, w *Workload) bool {
	undone := rec.LiveBefore != rec.TemplateDigest && w.Template.Digest == rec.LiveBefore
	return w.Template.Base == rec.TemplateBase && !undone && len(changedAnnotations(rec, w)) == 0
}
