package kubernetes

import (
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// TestConfined: a preview has no object outside of its namespace, neither in another one nor in none.
func TestConfined(t *testing.T) {
	object := func(kind, namespace string) manifest.Object {
		objects, err := manifest.Parse("app.yaml", []byte("apiVersion: v1\nkind: "+kind+"\nmetadata: {name: web, namespace: \""+namespace+"\"}\n"))
		if err != nil || len(objects) != 1 {
			t.Fatalf("%d objects, %v", len(objects), err)
		}
		return objects[0]
	}
	mine := object("ConfigMap", "preview-7")
	if err := confined([]manifest.Object{mine, object("Service", "preview-7")}, "preview-7"); err != nil {
		t.Errorf("objects of the namespace: %v", err)
	}
	for name, c := range map[string]struct {
		object    manifest.Object
		namespace string
	}{
		"another namespace":    {object("ConfigMap", "shop"), "preview-7"},
		"no namespace":         {object("PersistentVolume", ""), "preview-7"},
		"a preview without it": {object("PersistentVolume", ""), ""},
	} {
		err := confined([]manifest.Object{c.object}, c.namespace)
		if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "app.yaml") || !strings.Contains(err.Error(), c.object.GetKind()) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
