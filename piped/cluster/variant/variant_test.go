package variant

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"gopkg.in/yaml.v3"
	sigs "sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

var update = flag.Bool("update", false, "write what is wanted")

// options is a Variant in the format of the cases.
type options struct {
	Name          kubernetes.Variant     `yaml:"name"`
	Suffix        string                 `yaml:"suffix"`
	Workloads     []kubernetes.Reference `yaml:"workloads"`
	Replicas      kubernetes.Replicas    `yaml:"replicas"`
	Live          map[string]int32       `yaml:"live"`
	CreateService bool                   `yaml:"createService"`
	Service       string                 `yaml:"service"`
	Patches       []kubernetes.Patch     `yaml:"patches"`
}

// variant returns the Variant, with defaults for omitted fields.
func (o options) variant() Variant {
	return Variant{
		Name: o.Name, Suffix: o.Suffix, Label: Label{Key: "pipecd.dev/variant", Value: string(o.Name)},
		Workloads: o.Workloads, Replicas: o.Replicas, Live: o.Live, CreateService: o.CreateService, Service: o.Service, Patches: o.Patches,
	}
}

// TestMake: each file of testdata/make contains a variant, an application, and the
// resulting objects or error. The application's objects must not change.
func TestMake(t *testing.T) {
	files, err := filepath.Glob("testdata/make/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			o := options{Name: kubernetes.Canary, Suffix: "canary", Replicas: kubernetes.Replicas{Number: 1}}
			if err := yaml.Unmarshal(archive.Files[0].Data, &o); err != nil {
				t.Fatal(err)
			}
			objects := parse(t, archive.Files[1].Name, archive.Files[1].Data)
			before := manifest.Clone(objects)
			made, err := o.variant().Make(objects)
			if diff := cmp.Diff(before, objects); diff != "" {
				t.Errorf("the application's objects were changed (-before +after):\n%s", diff)
			}
			for _, m := range made {
				if m.Origin.File != "app.yaml" || m.Origin.Line == 0 {
					t.Errorf("%s comes from %q", m.GetName(), m.Origin)
				}
			}
			archive.Files = compare(t, archive.Files, outcome(t, made, err))
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// outcome returns the result of a case in the format of its last file.
func outcome(t *testing.T, made []manifest.Object, err error) txtar.File {
	t.Helper()
	if err != nil {
		if !deploy.IsKind(err, deploy.Invalid) {
			t.Errorf("the error is of kind %v", deploy.KindOf(err))
		}
		return txtar.File{Name: "error", Data: []byte(err.Error() + "\n")}
	}
	var b strings.Builder
	for _, m := range made {
		text, err := sigs.Marshal(m.Object)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("---\n" + string(text))
	}
	return txtar.File{Name: "want.yaml", Data: []byte(b.String())}
}

// compare compares the last file with the result, and returns the files with the result
// in its place.
func compare(t *testing.T, files []txtar.File, got txtar.File) []txtar.File {
	t.Helper()
	var want txtar.File
	if len(files) > 2 {
		want = files[2]
	}
	if diff := cmp.Diff(want.Name+"\n"+string(want.Data), got.Name+"\n"+string(got.Data)); diff != "" && !*update {
		t.Errorf("-want +got:\n%s", diff)
	}
	return append(files[:2:2], got)
}

func parse(t *testing.T, file string, text []byte) []manifest.Object {
	t.Helper()
	objects, err := manifest.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// TestServices: the extra Service of the primary is a copy that selects only its
// pods; no workload and no configuration is copied with it.
func TestServices(t *testing.T) {
	objects := parse(t, "app.yaml", []byte(`
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, envFrom: [{configMapRef: {name: web}}]}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}
---
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, nodePort: 30080}]}}
`))
	v := Variant{Name: kubernetes.Primary, Suffix: "primary", Label: Label{"pipecd.dev/variant", "primary"}}
	made, err := v.Services(objects)
	if err != nil || len(made) != 1 {
		t.Fatalf("%d Services, %v", len(made), err)
	}
	want := map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web-primary"},
		"spec": map[string]any{"type": "ClusterIP", "selector": map[string]any{"app": "web", "pipecd.dev/variant": "primary"}, "ports": []any{map[string]any{"port": int64(80)}}},
	}
	if diff := cmp.Diff(want, made[0].Object); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if _, err := v.Services(objects[:2]); !deploy.IsKind(err, deploy.Invalid) {
		t.Errorf("without a Service: %v", err)
	}
}

// TestPods: the number of pods of a variant, by PipeCD's test vectors with one exception:
// without spec.replicas the option counts.
func TestPods(t *testing.T) {
	for _, c := range []struct {
		replicas, option string
		live, want       int32
	}{
		{"replicas: 30", "50%", -1, 15},
		{"replicas: 3", "10%", -1, 1},
		{"replicas: 3", "50%", -1, 2},
		{"replicas: 3", "0", -1, 1},
		{"replicas: 3", "7", -1, 7},
		{"replicas: 3", "200%", -1, 6},
		{"replicas: 0", "50%", -1, 1},
		{"", "5", -1, 5},
		{"", "100%", -1, 1},
		{"replicas: 2", "50%", 9, 5},
		{"", "50%", 9, 5},
		{"replicas: 2", "50%", 0, 1},
		{"replicas: 9999999999", "100%", -1, 1<<31 - 1},
	} {
		o := parse(t, "app.yaml", []byte("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {"+c.replicas+"}}"))[0]
		v := Variant{}
		if err := v.Replicas.UnmarshalText([]byte(c.option)); err != nil {
			t.Fatal(err)
		}
		if c.live >= 0 {
			v.Live = map[string]int32{"apps/Deployment/shop/web": c.live}
		}
		if got, err := v.pods(o); err != nil || got != c.want {
			t.Errorf("{%s}, %s of %d live: %d pods, %v; want %d", c.replicas, c.option, c.live, got, err, c.want)
		}
	}
}

// TestLabel: the label is in selectors and pod templates of workloads, and a
// workload that has only one of them does not have it.
func TestLabel(t *testing.T) {
	label := Label{"pipecd.dev/variant", "primary"}
	for _, kind := range []string{"Deployment", "StatefulSet", "DaemonSet"} {
		o := parse(t, "app.yaml", []byte("{apiVersion: apps/v1, kind: "+kind+", metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web, pipecd.dev/variant: primary}}}}}"))[0]
		if label.Has(o) {
			t.Errorf("a %s has the label before it is set", kind)
		}
		if err := label.Add(o); err != nil || !label.Has(o) {
			t.Errorf("a %s does not have the label after it is set: %v", kind, err)
		}
		want := map[string]any{"app": "web", "pipecd.dev/variant": "primary"}
		spec := o.Object["spec"].(map[string]any)
		if diff := cmp.Diff(want, spec["selector"].(map[string]any)["matchLabels"]); diff != "" {
			t.Errorf("selector of a %s (-want +got):\n%s", kind, diff)
		}
	}
	service := parse(t, "app.yaml", []byte("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {selector: {app: web}}}"))[0]
	before := service.Clone()
	if err := label.Add(service); err != nil || !cmp.Equal(before, service) || label.Has(service) {
		t.Errorf("a Service was changed, or has the label: %v", err)
	}
	odd := parse(t, "app.yaml", []byte("{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: all}}"))[0]
	if err := label.Add(odd); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "app.yaml:1: Deployment web") {
		t.Errorf("a selector that is no mapping: %v", err)
	}
}
