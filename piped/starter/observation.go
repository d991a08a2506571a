package starter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/deploy"
)

// ObserveDir is the default data directory of an observer. It is not that of an agent that
// deploys: its store knows applications of repositories that an observer does not have.
const ObserveDir = "~/.piped-observe"

// Observation are the values of the configuration of an agent that only observes a cluster: it
// has no repository, and records the rollouts of all workloads.
type Observation struct {
	Kubeconfig string // "" is what kubectl would use
	Context    string // "" is the current one

	Namespaces, ExcludeNamespaces []string // names or patterns; empty is all, and none
	Selector                      string   // of labels; "" is all workloads

	DataDir                string // "" is ObserveDir
	APIAddress, WebAddress string // "" is the default
	Webhook                string // the URL that gets rollouts; "" is none
	GitHosts               string // the file with the list of Git hosts, as spec.gitHosts of an agent; "" is none

	Cluster Cluster // set by Complete

	hosts string // in JSON; set by Complete
}

// Complete finds the cluster, and makes paths absolute. Errors are of kind deploy.Invalid.
func (o Observation) Complete() (Observation, error) {
	var err error
	if o.Cluster, err = FindCluster(o.Kubeconfig, o.Context); err != nil {
		return o, err
	}
	if o.GitHosts != "" {
		if o.hosts, err = readGitHosts(o.GitHosts); err != nil {
			return o, err
		}
	}
	if o.DataDir != "" {
		o.DataDir, err = absolute(o.DataDir)
	}
	o.DataDir = cmp.Or(o.DataDir, ObserveDir)
	return o, err
}

// readGitHosts returns the list in a file as JSON, with the paths in it absolute: they are relative to
// the file. Whether the entries are valid is checked with the configuration.
func readGitHosts(file string) (string, error) {
	file, err := absolute(file)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", deploy.Errorf(deploy.Invalid, "read the Git hosts: %w", err)
	}
	var list []map[string]any
	if err := yaml.Unmarshal(text, &list); err != nil {
		return "", deploy.Errorf(deploy.Invalid, "%s: expected a list as in gitHosts of an agent: %w", file, err)
	}
	for _, host := range list {
		complete(host, "tokenFile", file)
		if app, ok := host["app"].(map[string]any); ok {
			complete(app, "privateKeyFile", file)
		}
	}
	hosts, err := json.Marshal(list)
	return string(hosts), err
}

// complete makes the path in a field absolute.
func complete(fields map[string]any, name, file string) {
	if path, ok := fields[name].(string); ok && path != "" && !filepath.IsAbs(path) && !strings.HasPrefix(path, "~") {
		fields[name] = filepath.Join(filepath.Dir(file), path)
	}
}

// HostList returns the Git hosts in JSON, "" if there are none.
func (o Observation) HostList() string { return o.hosts }

// Provider is the name of the cluster: that of its context, so that a store that is used for
// another one does not take it for the same.
func (o Observation) Provider() string {
	return cmp.Or(strings.Trim(unfit.ReplaceAllString(o.Cluster.Context, "-"), "-."), Provider)
}

// String says in one line what is observed.
func (o Observation) String() string {
	what := "every rollout"
	if o.Selector != "" {
		what = "rollouts of workloads with " + o.Selector
	}
	if len(o.Namespaces) > 0 {
		what += " in " + strings.Join(o.Namespaces, ", ")
	}
	if len(o.ExcludeNamespaces) > 0 {
		what += " but in " + strings.Join(o.ExcludeNamespaces, ", ")
	}
	return fmt.Sprintf("%s of %s", what, o.Cluster)
}

// File returns the configuration as a file.
func (o Observation) File() (string, error) {
	var out strings.Builder
	err := observation.Execute(&out, o)
	return out.String(), err
}

var observation = template.Must(template.New("observe.yaml").Funcs(template.FuncMap{"yaml": scalar}).Parse(
	`# The configuration of an agent that records the rollouts of a cluster, and deploys nothing.
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  dataDir: {{yaml .DataDir}}
  platformProviders:
    - name: {{yaml .Provider}}
      type: KUBERNETES
      config:
{{- with .Cluster}}{{if .Kubeconfig}}
        kubeConfigPath: {{yaml .Kubeconfig}}
        context: {{yaml .Context}}
{{- end}}{{end}}
        rollouts:
          watch: all
{{- with .Namespaces}}
          namespaces:
{{- range .}}
            - {{yaml .}}
{{- end}}{{end}}
{{- with .ExcludeNamespaces}}
          excludeNamespaces:
{{- range .}}
            - {{yaml .}}
{{- end}}{{end}}
{{- if .Selector}}
          labelSelector: {{yaml .Selector}}
{{- end}}
{{- if .APIAddress}}
  api: {address: {{yaml .APIAddress}}}
{{- end}}
{{- if .WebAddress}}
  web: {address: {{yaml .WebAddress}}}
{{- end}}
{{- with .HostList}}
  gitHosts: {{.}}
{{- end}}
{{- if .Webhook}}
  notifications:
    routes:
      - name: rollouts
        receiver: webhook
        groups: [ROLLOUT]
    receivers:
      - name: webhook
        webhook: {url: {{yaml .Webhook}}}
{{- end}}
`))
