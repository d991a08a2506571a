package apply

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// compare compares the manifests with the live state. NS in the manifests is replaced by
// the namespace.
func (l *env) compare(t *testing.T, manifests string, change ...func(*CompareRequest)) []Compared {
	t.Helper()
	apply := l.request(t, l.named(manifests))
	req := CompareRequest{
		ApplicationID: apply.ApplicationID, PipedID: apply.PipedID, Commit: apply.Commit,
		VariantKey: apply.VariantKey, VariantValue: apply.VariantValue, Objects: apply.Objects, Inventory: apply.Inventory,
	}
	for _, f := range change {
		f(&req)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := l.Compare(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// named replaces NS by the namespace, to give cluster-scoped objects unique names.
func (l *env) named(manifests string) string { return strings.ReplaceAll(manifests, "NS", l.ns) }

// found describes the results in words, without the objects in sync.
func (l *env) found(results []Compared) []string {
	var out []string
	for _, c := range results {
		object := c.Object.Kind + " " + l.anonymous(c.Object.Name)
		switch {
		case c.Problem != "":
			out = append(out, object+" cannot be compared: "+l.anonymous(c.Problem))
		case c.Drift == nil:
		case c.Drift.Kind != deploy.DriftChanged:
			out = append(out, object+" "+string(c.Drift.Kind))
		default:
			for _, f := range c.Drift.Fields {
				by := ""
				if f.Manager != "" {
					by = " by " + f.Manager
				}
				out = append(out, fmt.Sprintf("%s %s: %s -> %s%s", object, f.Path, f.Git, f.Live, by))
			}
		}
	}
	return out
}

// otherManager is a client that writes with another field manager than the agent's.
type otherManager struct {
	env     *env
	manager string
}

func (l *env) as(manager string) otherManager { return otherManager{l, manager} }

// object returns the client of an object's kind.
func (s otherManager) object(t testing.TB, apiVersion, kind string) dynamic.ResourceInterface {
	t.Helper()
	cfg := s.env.RESTConfig()
	cfg.WrapTransport = nil
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	resource, err := s.env.Resource(context.Background(), u.GroupVersionKind())
	if err != nil {
		t.Fatal(err)
	}
	if !resource.Namespaced {
		return client.Resource(resource.GroupVersionResource)
	}
	return client.Resource(resource.GroupVersionResource).Namespace(s.env.ns)
}

// patch changes an object with a JSON patch or a merge patch.
func (s otherManager) patch(t testing.TB, apiVersion, kind, name, patch string, subresources ...string) {
	t.Helper()
	how := types.MergePatchType
	if strings.HasPrefix(patch, "[") {
		how = types.JSONPatchType
	}
	_, err := s.object(t, apiVersion, kind).Patch(context.Background(), s.env.named(name), how, []byte(patch),
		metav1.PatchOptions{FieldManager: s.manager}, subresources...)
	if err != nil {
		t.Fatal(err)
	}
}

// apply applies an object by server-side apply.
func (s otherManager) apply(t testing.TB, text string) {
	t.Helper()
	for _, obj := range parse(t, "somebody.yaml", text) {
		_, err := s.object(t, obj.GetAPIVersion(), obj.GetKind()).Apply(context.Background(), obj.GetName(), obj.Unstructured,
			metav1.ApplyOptions{FieldManager: s.manager, Force: true})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// removeAfter deletes the test's cluster-scoped objects when it ends.
func (l *env) removeAfter(t *testing.T, manifests string) {
	t.Helper()
	objs := parse(t, "app.yaml", l.named(manifests))
	t.Cleanup(func() {
		for _, obj := range objs {
			kind, err := l.Resource(context.Background(), obj.GroupVersionKind())
			if err == nil && !kind.Namespaced {
				_ = l.Dynamic().Resource(kind.GroupVersionResource).Delete(context.Background(), obj.GetName(), metav1.DeleteOptions{})
			}
		}
	})
}

// hider removes one text from others, as the redactor of a source does.
type hider string

func (h hider) Text(s string) string { return strings.ReplaceAll(s, string(h), "[redacted]") }

// confirmed requests a confirmation by the API server for every object.
func confirmed(r *CompareRequest) { r.Confirm = true }

// countDryRuns returns the number of dry runs and of all requests.
func (l *env) countDryRuns() (dry, all int) {
	for _, r := range l.requests.Take() {
		all++
		if strings.Contains(r, "dryRun") {
			dry++
		}
	}
	return dry, all
}

// declared returns the first object of manifests.
func declared(t *testing.T, manifests string) manifest.Object {
	t.Helper()
	return parse(t, "app.yaml", manifests)[0]
}

func createAs(manager string) metav1.CreateOptions {
	return metav1.CreateOptions{FieldManager: manager}
}
