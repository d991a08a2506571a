package live

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// annotationVariant is the default key of the annotation with the variant of an object.
const annotationVariant = "pipecd.dev/variant"

// Member is the metadata of one live object that carries the application label.
type Member struct {
	Object deploy.ObjectRef // in the watched version

	UID       string
	OwnedHash string // apply.OwnedHash; "" if the agent owns no field
	Mark      string // apply.Mark

	// ResourceVersion is that of the last change. For objects with a generation, it ignores
	// changes of the status alone.
	ResourceVersion string

	Application string // the value of the application label
	// Piped is the piped ID in the object's annotation. It is "" without one, or if the
	// annotations name another application than the label.
	Piped   string
	Variant string // the value of its annotation pipecd.dev/variant, "" without one

	Owned    bool // it has a controller
	Hook     bool // it is annotated with pipecd.dev/hook-run
	Ignored  bool // it is annotated with pipecd.dev/ignore-drift-detection
	Deleting bool // it is being deleted
}

// cachedMember is the cached form of an object. Strings that many objects share are
// interned.
type cachedMember struct {
	name, uid, version, seen       string // resource versions: the last one, and Member.ResourceVersion
	namespace                      unique.Handle[string]
	application                    unique.Handle[string]
	piped, variant                 unique.Handle[string]
	mark                           string
	generation                     int64
	fields                         [sha256.Size]byte // OwnedHash, zero for ""
	content                        uint64            // hash of its labels, annotations and finalizers
	owned, hook, ignored, deleting bool
}

// GetObjectMeta implements metav1.ObjectMetaAccessor, by which caches compute keys.
func (k *cachedMember) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: k.namespace.Value(), Name: k.name, UID: types.UID(k.uid), ResourceVersion: k.version}
}

// reduceMember is the Transform of the caches: it reduces an object's metadata to a
// cachedMember. before is the cached older state, nil without one.
func reduceMember(obj, before any) (any, error) {
	o, ok := obj.(*metav1.PartialObjectMetadata)
	if !ok {
		return obj, nil
	}
	application, annotations := o.Labels[manifest.LabelApplication], o.Annotations
	k := &cachedMember{
		name: o.Name, uid: string(o.UID), version: o.ResourceVersion, seen: o.ResourceVersion, mark: apply.Mark(o), generation: o.Generation, content: contentOfMeta(o),
		namespace: unique.Make(o.Namespace), application: unique.Make(application), variant: unique.Make(annotations[annotationVariant]),
		owned: metav1.GetControllerOfNoCopy(o) != nil, hook: annotations[manifest.AnnotationHookRun] != "",
		ignored: manifest.IgnoresDrift(annotations), deleting: o.DeletionTimestamp != nil,
	}
	piped := annotations[manifest.AnnotationPiped]
	if annotations[manifest.AnnotationApplication] != application {
		piped = ""
	}
	k.piped = unique.Make(piped)
	if owned := apply.OwnedHash(o.ManagedFields); owned != "" {
		if _, err := hex.Decode(k.fields[:], []byte(owned)); err != nil {
			return nil, fmt.Errorf("keep the fields that are ours: %w", err)
		}
	}
	if older, ok := before.(*cachedMember); ok && o.Generation != 0 && k.statusOnly(older) {
		k.seen = older.seen
	}
	return k, nil
}

// contentOfMeta returns a hash of labels, annotations and finalizers.
func contentOfMeta(o metav1.Object) uint64 {
	h := fnv.New64a()
	for _, texts := range []map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for _, key := range slices.Sorted(maps.Keys(texts)) {
			fmt.Fprintf(h, "%q%q", key, texts[key])
		}
		h.Write([]byte{0})
	}
	fmt.Fprintf(h, "%q", o.GetFinalizers())
	return h.Sum64()
}

// statusOnly reports whether only the status of the object differs from an older state. The
// object must have a generation.
func (k *cachedMember) statusOnly(older *cachedMember) bool {
	return k.uid == older.uid && k.mark == older.mark && k.generation == older.generation && k.fields == older.fields && k.content == older.content &&
		k.owned == older.owned && k.deleting == older.deleting
}

// member returns k as a Member of the given kind.
func (k *cachedMember) member(kind schema.GroupVersionKind) Member {
	m := Member{
		Object: deploy.ObjectRef{Group: kind.Group, Version: kind.Version, Kind: kind.Kind, Namespace: k.namespace.Value(), Name: k.name},
		UID:    k.uid, Mark: k.mark, ResourceVersion: k.seen,
		Application: k.application.Value(), Piped: k.piped.Value(), Variant: k.variant.Value(),
		Owned: k.owned, Hook: k.hook, Ignored: k.ignored, Deleting: k.deleting,
	}
	if k.fields != [sha256.Size]byte{} {
		m.OwnedHash = hex.EncodeToString(k.fields[:])
	}
	return m
}

// InSync reports whether the metadata of a live object proves that it is still as it was
// applied: it has the same UID, the agent owns the same fields, and it was not written
// since. If InSync returns false, the caller must compare the objects. An item that an
// earlier version of the agent recorded has an empty Mark, which is not compared.
func InSync(item deploy.InventoryItem, m Member) bool {
	return !m.Deleting && item.UID != "" && item.UID == m.UID &&
		item.OwnedHash != "" && item.OwnedHash == m.OwnedHash &&
		(item.Mark == "" || item.Mark == m.Mark)
}
