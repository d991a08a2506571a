package variant

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Labels of the pods of a preview. Selectors of other applications can name them: a NetworkPolicy that
// admits pods by their labels admits previews by LabelPreview.
const (
	LabelPreview         = "pipecd.dev/preview"          // the name of the preview
	LabelPreviewWorkload = "pipecd.dev/preview-workload" // the name of the workload of the preview
)

// Preview describes the copies that a pull request gets in the namespace of an application. All of its
// applications have the same Name and Suffix.
type Preview struct {
	Name      string // of the preview: the value of Header and of LabelPreview
	Suffix    string // of the names and label values of the copies
	Namespace string // of the application, for objects that name none
	Header    string // of the requests that the copies get; "": none
	Host      string // whose requests the copies get; "": none

	Workloads []kubernetes.Reference // to copy; empty: every Deployment that a Service selects
	Secrets   []string               // of the branch that the pods may read
}

// Previewed is what Preview.Make returns.
type Previewed struct {
	Objects   []manifest.Object
	ByHeader  bool     // requests with the header get copies
	Hostnames []string // of requests with the header; empty: every host of the gateway
	// OwnHost is that no other application may have the host, because the order of their rules would not
	// be defined.
	OwnHost bool
	// Shared are the changes of the pull request that the preview does not have, each with the reason.
	Shared []string
}

// Make returns the copies for the merge of a pull request, given the objects of the branch and those of
// the merge: workloads, Services that select them, the ConfigMaps and Secrets that they use and that
// the pull request changes, NetworkPolicies that select their pods, and a route for each HTTPRoute,
// GRPCRoute and VirtualService to the Services. No selector of the branch selects a copy, because all of their label
// values differ. Errors are of kind deploy.Invalid.
func (p Preview) Make(branch, merged []manifest.Object) (Previewed, error) {
	c := &copier{Preview: p, branch: p.placed(branch), merged: p.placed(merged), copied: map[string]bool{}}
	c.keys = selectorKeys(slices.Concat(c.branch, c.merged))
	var err error
	if c.workloads, err = c.selectWorkloads(); err != nil {
		return Previewed{}, err
	}
	c.services = c.selectedServices()
	for _, step := range []func() error{c.checkAccess, c.addConfigs, c.addServices, c.addWorkloads, c.addPolicies, c.addRoutes, c.addDestinationRules, c.addVirtualServices, c.checkEntry} {
		if err := step(); err != nil {
			return Previewed{}, err
		}
	}
	return Previewed{
		Objects: c.out, ByHeader: len(c.routes) > 0, Hostnames: c.hostnames(), OwnHost: slices.ContainsFunc(c.out, isVirtualService), Shared: c.shared(),
	}, c.checkFree()
}

// copier makes the copies of one application.
type copier struct {
	Preview
	branch, merged      []manifest.Object
	workloads, services []manifest.Object // of merged, to copy
	configs             []manifest.Object
	routes              []manifest.Object          // of the branch, whose copies have the header
	keys                map[string]bool            // of labels in selectors
	copied              map[string]bool            // keys of the references of the originals
	subsets             map[string]map[string]bool // by Service: subsets of its DestinationRules that select pods
	out                 []manifest.Object
}

// placed returns clones of the objects of kinds that can be copied, or of all kinds, with the namespace
// of the application where they have none. Objects without a namespace of other kinds are not copied,
// so that theirs does not matter.
func (p Preview) placed(objects []manifest.Object) []manifest.Object {
	out := manifest.Clone(objects)
	for _, o := range out {
		if o.GetNamespace() == "" {
			o.SetNamespace(p.Namespace)
		}
	}
	return out
}

// selectWorkloads returns the workloads to copy.
func (c *copier) selectWorkloads() ([]manifest.Object, error) {
	candidates := slices.DeleteFunc(slices.Clone(c.merged), func(o manifest.Object) bool { return o.Hook.Phase != manifest.HookNone })
	found, err := Workloads(candidates, c.Preview.Workloads)
	if err != nil {
		return nil, err
	}
	if len(c.Preview.Workloads) == 0 {
		found = slices.DeleteFunc(found, func(w manifest.Object) bool {
			return !slices.ContainsFunc(c.merged, func(o manifest.Object) bool { return isService(o) && selects(o, w, "") })
		})
	}
	if len(found) == 0 {
		return nil, deploy.Errorf(deploy.Invalid, "no Service of the application selects the pods of a Deployment, so that a preview with mode route would get no requests: add a Service, or use mode: namespace in spec.preview")
	}
	for _, w := range found {
		if w.GetNamespace() != c.Namespace {
			return nil, deploy.Errorf(deploy.Invalid, "%s: %s %s is in namespace %s, and a preview with mode route has only objects of spec.input.namespace (%s): set that, or use mode: namespace in spec.preview",
				w.Origin, w.GetKind(), w.GetName(), w.GetNamespace(), c.Namespace)
		}
	}
	return found, nil
}

// selectedServices returns the Services that select pods of the workloads.
func (c *copier) selectedServices() (out []manifest.Object) {
	for _, o := range c.merged {
		if isService(o) && slices.ContainsFunc(c.workloads, func(w manifest.Object) bool { return selects(o, w, "") }) {
			out = append(out, o)
		}
	}
	return out
}

// make returns a copy with the names and labels of the preview, and adds it to the result.
func (c *copier) make(o manifest.Object, name string) manifest.Object {
	made := c.rename(o)
	made.SetName(name)
	labels := c.relabel(made.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	labels[LabelPreview] = c.Name
	made.SetLabels(labels)
	annotations := made.GetAnnotations()
	for key := range annotations {
		if strings.HasPrefix(key, "external-dns.alpha.kubernetes.io/") {
			delete(annotations, key)
		}
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	made.SetAnnotations(annotations)
	c.copied[manifest.Ref(o.Unstructured).Key()] = true
	c.out = append(c.out, made)
	return made
}

// rename clones an object without what retains it after its deletion from Git.
func (c *copier) rename(o manifest.Object) manifest.Object {
	return Variant{Suffix: c.Suffix}.rename(o)
}

// name returns the name of the copy of an object of a kind.
func (c *copier) name(kind, of string) string {
	return Bounded(of, c.Suffix, min(limit(kind), validation.DNS1123LabelMaxLength))
}

// digits is how many digits of a digest replace the end of a text that is too long.
const digits = 8

// Bounded returns a text with a suffix after a dash. If that is longer than limit, a digest replaces the
// end of the text, so that two texts have different results.
func Bounded(of, suffix string, limit int) string {
	if of == "" {
		return suffix
	}
	whole := of + "-" + suffix
	if len(whole) <= limit {
		return whole
	}
	sum := sha256.Sum256([]byte(of))
	begin := strings.TrimRight(of[:max(0, limit-len(suffix)-digits-2)], "-._")
	return begin + "-" + hex.EncodeToString(sum[:])[:digits] + "-" + suffix
}

// addConfigs copies the ConfigMaps and Secrets that the workloads use and that differ from the branch.
func (c *copier) addConfigs() error {
	for _, o := range usedConfigs(c.merged, c.workloads) {
		if o.Hook.Phase == manifest.HookNone && !c.unchanged(o) {
			c.configs = append(c.configs, o)
			c.make(o, c.name(o.GetKind(), o.GetName()))
		}
	}
	return nil
}

// unchanged reports whether the branch has the same object.
func (c *copier) unchanged(o manifest.Object) bool {
	was := find(c.branch, o)
	return was != nil && manifest.Digest(was.Unstructured) == manifest.Digest(o.Unstructured)
}

// find returns the object of a list with the reference of another one, nil if there is none.
func find(objects []manifest.Object, like manifest.Object) *manifest.Object {
	key := manifest.Ref(like.Unstructured).Key()
	i := slices.IndexFunc(objects, func(o manifest.Object) bool { return manifest.Ref(o.Unstructured).Key() == key })
	if i < 0 {
		return nil
	}
	return &objects[i]
}

// addServices copies the Services.
func (c *copier) addServices() error {
	for _, o := range c.services {
		made := c.make(o, c.name(o.GetKind(), o.GetName()))
		if err := private(made, Label{LabelPreview, c.Name}); err != nil {
			return err
		}
		selector := c.relabel(selectorOf(made))
		selector[LabelPreview] = c.Name
		if err := setField(made, anys(selector), "spec", "selector"); err != nil {
			return err
		}
	}
	return nil
}

// addWorkloads copies the workloads.
func (c *copier) addWorkloads() error {
	for _, o := range c.workloads {
		made := c.make(o, c.name(o.GetKind(), o.GetName()))
		c.renameUsed(made)
		if err := errors.Join(c.relabelWorkload(made, o), ownVolumes(made)); err != nil {
			return err
		}
	}
	return nil
}

// renameUsed changes the references in a workload's copy to the copies of other objects.
func (c *copier) renameUsed(made manifest.Object) {
	copied := func(kind, name string) bool {
		return slices.ContainsFunc(slices.Concat(c.configs, c.services), func(o manifest.Object) bool { return o.GetKind() == kind && o.GetName() == name })
	}
	manifest.RenameReferences(made.Unstructured, func(r manifest.Reference) string {
		if copied(r.Kind, r.Name) {
			return c.name(r.Kind, r.Name)
		}
		return r.Name
	})
	spec, _ := made.Object["spec"].(map[string]any)
	if name, _ := spec["serviceName"].(string); made.GetKind() == "StatefulSet" && copied("Service", name) {
		spec["serviceName"] = c.name("Service", name)
	}
}

// checkFree returns an error for each copy that has the name of another copy or of an object of the
// application, which it would replace.
func (c *copier) checkFree() error {
	var problems []error
	seen := map[string]bool{}
	for _, o := range slices.Concat(c.branch, c.merged) {
		seen[manifest.Ref(o.Unstructured).Key()] = true
	}
	for _, o := range c.out {
		key := manifest.Ref(o.Unstructured).Key()
		if seen[key] {
			problems = append(problems, deploy.Errorf(deploy.Invalid, "%s: the preview needs the name %s for a %s, which another one has: choose another name", o.Origin, o.GetName(), o.GetKind()))
		}
		seen[key] = true
	}
	return errors.Join(problems...)
}

// checkAccess returns an error if the pods of the preview would read or write what is not the pull
// request's: Secrets that spec.preview does not name, volumes of the branch, and the rights of service
// accounts that the branch does not use.
func (c *copier) checkAccess() error {
	accounts := []string{"", "default"}
	for _, o := range c.branch {
		accounts = append(accounts, account(o))
	}
	var problems []error
	for _, w := range c.workloads {
		refuse := func(format string, args ...any) {
			problems = append(problems, deploy.Errorf(deploy.Invalid, "%s: %s %s %s", w.Origin, w.GetKind(), w.GetName(), fmt.Sprintf(format, args...)))
		}
		for _, r := range manifest.ConfigReferences(w.Unstructured) {
			if r.Kind == "Secret" && !slices.Contains(c.Secrets, r.Name) && !c.changes(r) {
				refuse("uses Secret %s of the branch: name it in spec.preview.secrets on the branch if the pods of pull requests may read it", r.Name)
			}
		}
		for _, claim := range claims(w) {
			refuse("uses PersistentVolumeClaim %s, and a preview with mode route would write into the data of the branch: make the volume readOnly, or use mode: namespace in spec.preview", claim)
		}
		if name := account(w); !slices.Contains(accounts, name) {
			refuse("uses ServiceAccount %s, which the branch does not use: merge that first", name)
		}
	}
	return errors.Join(problems...)
}

// changes reports whether the pull request adds or changes a ConfigMap or Secret, so that the preview
// has its own.
func (c *copier) changes(r manifest.Reference) bool {
	return slices.ContainsFunc(c.merged, func(o manifest.Object) bool {
		return o.GetAPIVersion() == "v1" && o.GetKind() == r.Kind && o.GetName() == r.Name && o.GetNamespace() == c.Namespace && o.Hook.Phase == manifest.HookNone && !c.unchanged(o)
	})
}

// account returns the service account of the pods of an object, "" for the default one.
func account(o manifest.Object) string {
	spec := manifest.PodSpec(o.Unstructured)
	if name, _ := spec["serviceAccountName"].(string); name != "" {
		return name
	}
	name, _ := spec["serviceAccount"].(string)
	return name
}

// claims returns the claims that the pods of a workload can write to. Those that are made for each pod
// are not among them.
func claims(o manifest.Object) (names []string) {
	volumes, _ := manifest.PodSpec(o.Unstructured)["volumes"].([]any)
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		claim, _ := volume["persistentVolumeClaim"].(map[string]any)
		if readOnly, _ := claim["readOnly"].(bool); claim != nil && !readOnly {
			name, _ := claim["claimName"].(string)
			names = append(names, name)
		}
	}
	return names
}
