package apply

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/propagate"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// ConfigChange is the decision to change the config-hash annotation of a workload's pod
// template, which restarts its pods.
type ConfigChange struct {
	Send string `json:"send"`          // the new value
	Was  string `json:"was,omitempty"` // the old value, "" for none
	// Config is InventoryItem.ConfigHash before the change: the hash of the content that Was
	// represents; "" when unknown.
	Config string `json:"config,omitempty"`
}

// configs are the ConfigMaps and Secrets of a set, by ConfigRef.
type configs map[deploy.ObjectRef]*unstructured.Unstructured

func newConfigs() configs { return configs{} }

// add adds an object if it is a ConfigMap or Secret.
func (c configs) add(ref deploy.ObjectRef, u *unstructured.Unstructured) {
	if isConfig(ref) {
		c[ConfigRef(ref.Kind, ref.Namespace, ref.Name)] = u
	}
}

// ConfigRef returns the reference of a ConfigMap or Secret. It has no version, so that it can
// be a map key.
func ConfigRef(kind, namespace, name string) deploy.ObjectRef {
	return deploy.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

// podConfig is the configuration of the pods of an object: the ConfigMaps and Secrets that
// they reference, and how changes of these reach running pods.
type podConfig struct {
	mode      kubernetes.PropagationMode
	decisions []propagate.Decision // also for objects that are not in the set
	refs      []deploy.ObjectRef   // the referenced objects in the set
	fixed     []deploy.ObjectRef   // those of refs whose changes running pods do not see
	all       string               // hash of the content of refs
	hash      string               // hash of the content of fixed
}

// of returns the configuration of the pods of an object. Named are the objects outside of the
// set that it includes.
func (c configs) of(workload *unstructured.Unstructured, mode kubernetes.PropagationMode, named []manifest.Reference) podConfig {
	p := podConfig{mode: mode}
	p.decisions = propagate.Plan(mode, workload, func(r manifest.Reference) (propagate.Object, bool) {
		u := c[ConfigRef(r.Kind, workload.GetNamespace(), r.Name)]
		if u == nil {
			return propagate.Object{External: true}, slices.Contains(named, r)
		}
		immutable, _, _ := unstructured.NestedBool(u.Object, "immutable")
		return propagate.Object{Immutable: immutable}, true
	})
	for _, d := range p.decisions {
		if d.External {
			continue
		}
		ref := ConfigRef(d.Config.Kind, workload.GetNamespace(), d.Config.Name)
		p.refs = append(p.refs, ref)
		if !d.Follows {
			p.fixed = append(p.fixed, ref)
		}
	}
	p.all, p.hash = c.hash(p.refs), c.hash(p.fixed)
	return p
}

// hash returns the hash of the content of these objects of the set.
func (c configs) hash(refs []deploy.ObjectRef) string {
	type content struct {
		Ref  deploy.ObjectRef
		Data map[string]any
	}
	var all []content
	for _, ref := range refs {
		all = append(all, content{ref, contentOf(c[ref])})
	}
	return hashOf(all)
}

// hashOf returns the hash, in hex, of a JSON value.
func hashOf(content any) string {
	text, err := json.Marshal(content) // sorts keys
	if err != nil {
		// Unreachable for parsed objects: they hold only what JSON holds.
		panic("kubernetes: hash of a configuration that is no JSON: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// restarting returns the objects whose changes restart the pods of a workload.
func (p podConfig) restarting() []deploy.ObjectRef {
	switch p.mode {
	case kubernetes.PropagateRestart:
		return p.refs
	case kubernetes.PropagateAuto:
		return p.fixed
	}
	return nil
}

// annotation returns the config-hash annotation: the shortened hash of the objects of
// restarting, "" if there are none.
func (p podConfig) annotation() string {
	switch {
	case len(p.restarting()) == 0:
		return ""
	case p.mode == kubernetes.PropagateRestart:
		return p.all[:configHashLength]
	}
	return p.hash[:configHashLength]
}

// recorded returns InventoryItem.ConfigHash: "all:hash", or "all" if fixed contains all refs.
// Items of earlier agents, which restarted pods for every change, have only "all".
func (p podConfig) recorded() string {
	if len(p.fixed) == len(p.refs) {
		return p.all
	}
	return p.all + ":" + p.hash
}

// sameFor reports whether the objects of restarting are unchanged since an
// InventoryItem.ConfigHash was recorded. Sure is false when nothing was recorded.
func (p podConfig) sameFor(recorded string) (same, sure bool) {
	all, hash, split := strings.Cut(recorded, ":")
	switch {
	case all == p.all, len(p.restarting()) == 0:
		return true, true
	case recorded == "":
		return false, false
	case p.mode == kubernetes.PropagateRestart, len(p.fixed) == len(p.refs), !split:
		// A hash without a colon does not show which part has changed. A deployment that
		// failed before its end may have recorded it.
		return false, true
	}
	return hash == p.hash, true
}

// stampOf returns the config-hash annotation that DesiredDigest includes for a podConfig.all
// or InventoryItem.ConfigHash; "" if the configuration is unknown or empty.
func stampOf(recorded string) string {
	all, _, _ := strings.Cut(recorded, ":")
	if len(all) < configHashLength || all == newConfigs().hash(nil) {
		return ""
	}
	return all[:configHashLength]
}

// digestWorkload sets a workload's config, digest, same and restarts, and the config-hash
// annotation of its desired object. Same ignores the content of the configuration. The digest
// includes the whole configuration in every mode, so that a change of only the mode writes
// nothing.
func (r *applyRun) digestWorkload(t *target, set configs) {
	t.config = r.podConfig(t, set)
	t.digest = r.digestOf(stamped(t.desired, stampOf(t.config.all)))
	t.same = t.recorded != nil && t.recorded.DesiredDigest == t.digest
	if t.recorded != nil && t.recorded.ConfigHash != "" {
		t.same = t.same || t.recorded.DesiredDigest == r.digestOf(stamped(t.desired, stampOf(t.recorded.ConfigHash)))
		same, _ := t.config.sameFor(t.recorded.ConfigHash)
		t.restarts = !same
	}
	t.desired = stamped(t.desired, t.config.annotation())
}

// podConfig returns the configuration of the pods of a target. It sets r.invalid if the
// target's annotation of the propagation mode is invalid.
func (r *applyRun) podConfig(t *target, set configs) podConfig {
	mode, err := propagate.Mode(t.desired, r.req.Propagation)
	if err != nil && r.invalid == nil {
		r.invalid = deploy.Errorf(deploy.Invalid, "%s: %w", t.source.Origin, err)
	}
	return set.of(t.desired, mode, r.req.Named)
}

// stamped returns a copy of a workload with this config-hash annotation, or the workload
// itself if hash is "".
func stamped(workload *unstructured.Unstructured, hash string) *unstructured.Unstructured {
	if hash == "" {
		return workload
	}
	workload = workload.DeepCopy()
	setConfigHash(workload, hash)
	return workload
}

// configHashLength is the length of the config-hash annotation, as in PipeCD.
const configHashLength = 10

// contentOf returns data and binaryData of a ConfigMap or Secret, decoded, without empty
// fields.
func contentOf(u *unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for _, field := range []string{"data", "binaryData"} {
		data, ok := u.Object[field].(map[string]any)
		if !ok || len(data) == 0 {
			continue
		}
		if field == "binaryData" || u.GetKind() == "Secret" {
			data = decoded(data)
		}
		out[field] = data
	}
	return out
}

// decoded returns a copy of data with its base64 values decoded, because base64 has several
// encodings of one value. Invalid base64 remains unchanged: the API server refuses it.
func decoded(data map[string]any) map[string]any {
	out := make(map[string]any, len(data))
	for key, value := range data {
		out[key] = value
		if text, ok := value.(string); ok {
			if raw, err := base64.StdEncoding.DecodeString(text); err == nil {
				out[key] = raw
			}
		}
	}
	return out
}

// setConfigHash sets the config-hash annotation of a workload's pod template; "" removes it.
func setConfigHash(workload *unstructured.Unstructured, hash string) {
	path := []string{"spec", "template", "metadata", "annotations"}
	annotations, _, err := unstructured.NestedMap(workload.Object, path...)
	if err != nil {
		return // the API server refuses it with a better message
	}
	if annotations == nil {
		annotations = map[string]any{}
	}
	if hash == "" {
		delete(annotations, manifest.AnnotationConfigHash)
	} else {
		annotations[manifest.AnnotationConfigHash] = hash
	}
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(workload.Object, path...)
		return
	}
	// It fails on a malformed template, which the API server refuses.
	_ = unstructured.SetNestedMap(workload.Object, annotations, path...)
}

// configHash returns the config-hash annotation of a workload's pod template, "" for none.
func configHash(workload *unstructured.Unstructured) string {
	hash, _, _ := unstructured.NestedString(workload.Object, "spec", "template", "metadata", "annotations", manifest.AnnotationConfigHash)
	return hash
}

// decideRestarts sets the config-hash annotation of each changed workload that exists. It
// retains the live one unless the configuration of the pods has changed since the last apply;
// if the inventory does not show that, it compares the live content. It records the changed
// annotations in r.restarts.
func (r *applyRun) decideRestarts(ctx context.Context) error {
	live := map[deploy.ObjectRef]*target{}
	for _, t := range r.targets {
		live[ConfigRef(t.ref.Kind, t.ref.Namespace, t.ref.Name)] = t
	}
	r.restarts = maps.Clone(r.req.Restarts)
	for _, t := range r.changed() {
		workload := t.liveObject()
		if !t.isWorkload() || workload == nil {
			continue
		}
		was, wanted, known := configHash(workload), configHash(t.desired), ""
		if t.recorded != nil {
			known = t.recorded.ConfigHash
		}
		send := was
		undo, undone := r.req.Undo[t.ref.Key()]
		same, sure := t.config.sameFor(known)
		back, backSure := t.config.sameFor(undo.Config)
		switch decided, ok := r.req.Restarts[t.ref.Key()]; {
		case ok:
			send = decided.Send
		case undone && back && backSure:
			send = undo.Was
		case len(t.stalePods) > 0:
			send = restartedFor(wanted, t.stalePods)
		case same:
		case sure:
			send = wanted
		default:
			changed, err := r.configChanged(ctx, t.config.restarting(), live)
			if err != nil {
				return err
			}
			if changed {
				send = wanted
			}
		}
		setConfigHash(t.desired, send)
		if send != was && r.restarts[t.ref.Key()] == (ConfigChange{}) {
			if r.restarts == nil {
				r.restarts = map[string]ConfigChange{}
			}
			r.restarts[t.ref.Key()] = ConfigChange{Send: send, Was: was, Config: known}
		}
	}
	return nil
}

// configChanged reports whether the live content of one of these ConfigMaps and Secrets
// differs from the content that is about to be applied.
func (r *applyRun) configChanged(ctx context.Context, refs []deploy.ObjectRef, targets map[deploy.ObjectRef]*target) (bool, error) {
	for _, ref := range refs {
		t := targets[ref]
		if t.live == nil {
			return true, nil
		}
		var live *unstructured.Unstructured
		err := r.cluster.Retry(ctx, r.wait, func(ctx context.Context) (err error) {
			live, err = r.cluster.ResourceClient(t.resource, ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
			return err
		})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, r.cluster.explain(t.source, "read the content of", err)
		}
		if !reflect.DeepEqual(contentOf(live), contentOf(t.desired)) {
			return true, nil
		}
	}
	return false, nil
}
