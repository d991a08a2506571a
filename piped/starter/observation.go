package starter

import (
	"cmp"
	"fmt"
	"strings"
	"text/template"
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

	Cluster Cluster // set by Complete
}

// Complete finds the cluster, and makes paths absolute. Errors are of kind deploy.Invalid.
func (o Observation) Complete() (Observation, error) {
	var err error
	if o.Cluster, err = FindCluster(o.Kubeconfig, o.Context); err != nil {
		return o, err
	}
	if o.DataDir != "" {
		o.DataDir, err = absolute(o.DataDir)
	}
	o.DataDir = cmp.Or(o.DataDir, ObserveDir)
	return o, err
}

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
