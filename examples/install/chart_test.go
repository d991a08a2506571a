package main

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	config "github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/install"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/kubernetes/helm"
)

// render renders the chart as the agent does.
func render(t *testing.T, namespace string, values map[string]any) ([]manifest.Object, error) {
	t.Helper()
	renderer, err := helm.New(helm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	result, err := renderer.Render(t.Context(), helm.Request{
		Tree: os.DirFS("."), Dir: ".", Chart: config.HelmChart{Path: "chart"}, ReleaseName: "piped", Namespace: namespace,
		Values: func([]byte) ([][]byte, error) { return [][]byte{text}, nil },
	})
	return result.Objects, err
}

// comparable returns objects by reference, in the form in which those of the chart and those of piped
// install are to be equal: who manages them differs, and the comments of the configuration.
func comparable(t *testing.T, objects []manifest.Object) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for _, o := range objects {
		labels := o.GetLabels()
		delete(labels, "app.kubernetes.io/managed-by")
		o.SetLabels(labels)
		if text, is, _ := unstructured.NestedString(o.Object, "data", "piped.yaml"); is {
			var cfg map[string]any
			if err := yaml.Unmarshal([]byte(text), &cfg); err != nil {
				t.Fatal(err)
			}
			o.Object["data"] = cfg
		}
		ref := manifest.Ref(o.Unstructured).String()
		if out[ref] != nil {
			t.Errorf("%s is there twice", ref)
		}
		out[ref] = o.Object
	}
	return out
}

// TestTheChartIsTheInstallation: each variant has the objects of piped install, field by field.
func TestTheChartIsTheInstallation(t *testing.T) {
	for name, c := range map[string]struct {
		options install.Options
		values  map[string]any
	}{
		"the whole cluster": {install.Options{}, map[string]any{}},
		"namespaces":        {install.Options{Namespaces: []string{"shop", "demo"}}, map[string]any{"namespaces": []string{"shop", "demo"}}},
		"replicas":          {install.Options{Postgres: "postgres://me@db.example.com:5432/piped?sslmode=require"}, map[string]any{"postgres": "postgres://me@db.example.com:5432/piped?sslmode=require"}},
		"replicas that share the work": {
			install.Options{Postgres: "postgres://me@db.example.com:5432/piped?sslmode=require", Share: true},
			map[string]any{"postgres": "postgres://me@db.example.com:5432/piped?sslmode=require", "share": true},
		},
		"replicas in namespaces, with everything": {
			install.Options{Namespace: "gitops", Postgres: "postgres://me@db/piped", Replicas: 2, Namespaces: []string{"demo"}, Repo: "ssh://git@git.example.com:2222/team/My~Apps.git/", Branch: "release", Path: "/clusters/one/", PipedID: "one", Image: "registry.example/piped@sha256:0123"},
			map[string]any{"postgres": "postgres://me@db/piped", "replicas": 2, "namespaces": []string{"demo"}, "repo": "ssh://git@git.example.com:2222/team/My~Apps.git/", "branch": "release", "path": "/clusters/one/", "pipedID": "one", "image": "registry.example/piped@sha256:0123"},
		},
		"over HTTP, with a class": {
			install.Options{Namespace: "agent", Repo: "https://git.example.com/apps", StorageClass: "fast", StorageSize: "1Gi"},
			map[string]any{"repo": "https://git.example.com/apps", "storage": map[string]any{"class": "fast", "size": "1Gi"}},
		},
		"over HTTP, with a password": {
			install.Options{Repo: "https://git.example.com:8443/team/apps.git", GitUsername: "dep: \"loy\""},
			map[string]any{"repo": "https://git.example.com:8443/team/apps.git", "gitUsername": "dep: \"loy\""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.options
			if o.Repo == "" {
				o.Repo = "git@git.example.com:team/apps.git"
			}
			if o.Image == "" {
				o.Image = "registry.example/team/piped:v1.0.0"
			}
			v, err := install.NewVariant(o)
			if err != nil {
				t.Fatal(err)
			}
			files, err := v.Files()
			if err != nil {
				t.Fatal(err)
			}
			var want []manifest.Object
			for _, f := range files {
				found, err := manifest.Parse(f.Name, []byte(f.Text))
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, found...)
			}
			values := maps.Clone(c.values)
			values["namespace"] = true
			got, err := render(t, v.Namespace, values)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(comparable(t, want), comparable(t, got)); diff != "" {
				t.Errorf("-piped install +chart:\n%s", diff)
			}
		})
	}
}

// TestTheChartWithoutPermissions is what the agent may deploy: no roles, no namespace.
func TestTheChartWithoutPermissions(t *testing.T) {
	objects, err := render(t, "piped", map[string]any{"permissions": false, "config": "kind: Piped\nspec: {pipedID: mine}"})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range objects {
		kinds = append(kinds, o.GetKind())
		if text, is, _ := unstructured.NestedString(o.Object, "data", "piped.yaml"); is && text != "kind: Piped\nspec: {pipedID: mine}\n" && text != "kind: Piped\nspec: {pipedID: mine}" {
			t.Errorf("the configuration is %q", text)
		}
	}
	slices.Sort(kinds)
	if want := []string{"ConfigMap", "Deployment", "NetworkPolicy", "PersistentVolumeClaim", "Service", "ServiceAccount"}; !slices.Equal(kinds, want) {
		t.Errorf("the kinds are %q, want %q", kinds, want)
	}
}

// TestTheSchemaRefusesWhatCannotWork, with the name of the value.
func TestTheSchemaRefusesWhatCannotWork(t *testing.T) {
	for want, values := range map[string]map[string]any{
		"imgae":       {"imgae": "typing error"},
		"image":       {"image": "two words"},
		"repo":        {"repo": "https://me:s3cret@git.example.com/apps"},
		"path":        {"path": "apps/*"},
		"gitUsername": {"gitUsername": "two\nlines"},
		"pipedID":     {"pipedID": "a b"},
		"namespaces":  {"namespaces": []string{"Upper"}},
		"storage":     {"storage": map[string]any{"size": "much"}},
		"replicas":    {"replicas": 0},
		"share":       {"share": "yes"},
		"postgres":    {"postgres": "postgres://me:s3cret@db/piped"},
	} {
		_, err := render(t, "piped", values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", values, err)
		}
	}
	for _, repo := range []string{"ssh://git:x@git.example.com/apps", "/srv/apps.git", "apps"} {
		if _, err := render(t, "piped", map[string]any{"repo": repo}); err == nil {
			t.Errorf("%s is accepted", repo)
		}
	}
	if _, err := render(t, "piped", map[string]any{"share": true}); err == nil || !strings.Contains(err.Error(), "postgres") {
		t.Errorf("replicas that share the work, without a database: %v", err)
	}
	for _, text := range []string{"postgres://me@db/piped?password=x", "mysql://me@db/piped", "postgres://db/piped"} {
		if _, err := render(t, "piped", map[string]any{"postgres": text}); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// TestTheVolumeOutlivesTheRelease: Helm deletes what a release has no more, but for objects that say
// otherwise, https://helm.sh/docs/howto/charts_tips_and_tricks/#tell-helm-not-to-uninstall-a-resource.
func TestTheVolumeOutlivesTheRelease(t *testing.T) {
	objects, err := render(t, "piped", map[string]any{"repo": "git@git.example.com:team/apps.git", "image": "registry.example/piped:v1"})
	if err != nil {
		t.Fatal(err)
	}
	claims := 0
	for _, o := range objects {
		if o.GetKind() == "PersistentVolumeClaim" {
			claims++
			if o.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
				t.Errorf("the volume has the annotations %v", o.GetAnnotations())
			}
		}
	}
	if claims != 1 {
		t.Errorf("%d claims", claims)
	}
}
