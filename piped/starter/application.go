package starter

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/deploy"
)

// ApplicationFile is the name of the configuration of an application.
const ApplicationFile = "app.pipecd.yaml"

// Pipelines are the ways to release a change, with what they do.
var Pipelines = map[string]string{
	"quick":     "apply everything at once, and wait for the rollout",
	"approval":  "wait for a person's approval, then apply everything",
	"canary":    "try a change on a quarter of the pods until a person approves it",
	"bluegreen": "run the new version in full beside the old one, and switch the Service to it",
}

// ApplicationOptions are what a user may say about an application.
type ApplicationOptions struct {
	Name      string // "" is the name of the directory
	Namespace string // "" is what the manifests say, or the default namespace
	Pipeline  string // a key of Pipelines
	Service   string // of bluegreen; "" is the only Service among the manifests
}

// Application contains the values of an application's configuration.
type Application struct {
	ApplicationOptions
	Chart string // the directory of the Helm chart; "" for plain manifests and kustomizations
}

// NewApplication completes the options for the manifests, the kustomization or the chart in a
// directory. Errors are of kind deploy.Invalid.
func NewApplication(dir string, o ApplicationOptions) (a Application, err error) {
	a.ApplicationOptions = o
	if Pipelines[o.Pipeline] == "" {
		return a, deploy.Errorf(deploy.Invalid, "--pipeline %q: use one of %s", o.Pipeline, strings.Join(slices.Sorted(maps.Keys(Pipelines)), ", "))
	}
	full, err := absolute(dir)
	if err != nil {
		return a, err
	}
	if a.Name == "" {
		a.Name = filepath.Base(full)
	}
	tree := os.DirFS(full)
	for _, chart := range []string{".", "chart"} {
		if _, err := fs.Stat(tree, path.Join(chart, "Chart.yaml")); err == nil {
			a.Chart = chart
			break
		}
	}
	found, err := find(tree)
	if err != nil {
		return a, deploy.Errorf(deploy.Invalid, "read %s: %w", dir, err)
	}
	if a.Chart == "" && !found.any {
		return a, deploy.Errorf(deploy.Invalid, "there are no manifests in %s: expected files of Kubernetes objects, a kustomization.yaml or a Chart.yaml", dir)
	}
	if o.Pipeline != "bluegreen" || o.Service != "" {
		return a, nil
	}
	if len(found.services) != 1 {
		return a, deploy.Errorf(deploy.Invalid, "a bluegreen pipeline switches one Service, and %s declares %s: name it with --service", dir, listed(found.services))
	}
	a.Service = found.services[0]
	return a, nil
}

func listed(names []string) string {
	if len(names) == 0 {
		return "none in plain manifests"
	}
	return strings.Join(names, ", ")
}

// content is what the files of a directory declare.
type content struct {
	any      bool     // objects, or a kustomization
	services []string // names of the Services in plain manifests
}

// find reads the YAML files of a directory, without those below it. What is not YAML or not an
// object is skipped: the check of the configuration reports it.
func find(tree fs.FS) (c content, err error) {
	entries, err := fs.ReadDir(tree, ".")
	for _, e := range entries {
		if ext := path.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" {
			continue
		}
		data, err := fs.ReadFile(tree, e.Name())
		if err != nil {
			return c, err
		}
		c.read(data)
	}
	return c, err
}

// read adds the objects of a file.
func (c *content) read(data []byte) {
	for documents := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var object struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct{ Name string }
		}
		err := documents.Decode(&object)
		if errors.Is(err, io.EOF) || err != nil && object.Kind == "" {
			return
		}
		c.any = c.any || object.Kind != ""
		if object.APIVersion == "v1" && object.Kind == "Service" {
			c.services = append(c.services, object.Metadata.Name)
		}
	}
}

// File returns the configuration as a commented file.
func (a Application) File() (string, error) {
	var out strings.Builder
	err := applicationFile.Execute(&out, a)
	return out.String(), err
}

// String says in one line how changes are released.
func (a Application) String() string { return fmt.Sprintf("%s: %s", a.Pipeline, Pipelines[a.Pipeline]) }

var applicationFile = template.Must(template.New(ApplicationFile).Funcs(template.FuncMap{"yaml": scalar}).Parse(
	`# How the agent deploys this directory. Check changes with piped check.
apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: {{yaml .Name}}
  # Lists, routes of notifications and rights select applications by labels:
  # labels: {team: shop}
{{- if or .Namespace .Chart}}
  input:
{{- if .Namespace}}
    # Of objects that name none; it is created if it does not exist.
    namespace: {{yaml .Namespace}}
    autoCreateNamespace: true
{{- end}}
{{- if .Chart}}
    helmChart:
      path: {{yaml .Chart}}
    # helmOptions: {valueFiles: [values.yaml], setValues: {image.tag: v1.0.0}}
{{- end}}
{{- end}}
{{- if eq .Pipeline "approval"}}
  # Changes of pods take this way; others, such as the number of replicas, are applied at once.
  pipeline:
    stages:
      - name: WAIT_APPROVAL
        timeout: 12h
      - name: K8S_SYNC
{{- else if eq .Pipeline "canary"}}
  # Changes of pods take this way; others, such as the number of replicas, are applied at once.
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
        with:
          replicas: 25%
      # An ANALYSIS stage in its place decides by metrics.
      - name: WAIT_APPROVAL
        timeout: 12h
      - name: K8S_PRIMARY_ROLLOUT
        with:
          prune: true
      - name: K8S_CANARY_CLEAN
{{- else if eq .Pipeline "bluegreen"}}
  # The Service that is switched, by the label of the variant in its selector.
  service:
    name: {{yaml .Service}}
  trafficRouting:
    method: podselector
  # Changes of pods take this way; others, such as the number of replicas, are applied at once.
  pipeline:
    stages:
      - name: K8S_CANARY_ROLLOUT
        with:
          replicas: 100%
      - name: K8S_TRAFFIC_ROUTING
        with:
          all: canary
      - name: WAIT_APPROVAL
        timeout: 12h
      - name: K8S_PRIMARY_ROLLOUT
        with:
          prune: true
      - name: K8S_TRAFFIC_ROUTING
        with:
          all: primary
      - name: K8S_CANARY_CLEAN
{{- end}}
  # Repair what was changed by hand:
  # trigger: {onOutOfSync: {disabled: false}}
`))
