package starter

import (
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

// File returns the configuration as a commented file.
func (c Configuration) File() (string, error) {
	var out strings.Builder
	err := file.Execute(&out, c)
	return out.String(), err
}

var file = template.Must(template.New("piped.yaml").Funcs(template.FuncMap{"yaml": scalar, "provider": func() string { return Provider }}).Parse(
	`# The configuration of an agent. Run it with piped run --config FILE, and check changes with
# piped check FILE. The agent notices changes of this file, and uses them within seconds.
apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
{{- if .DataDir}}
  # Mirrors, keys and the SQLite store.
  dataDir: {{yaml .DataDir}}
{{- end}}
  repositories:
    - repoId: {{yaml .RepoID}}
      remote: {{yaml .Remote}}
      branch: {{yaml .Branch}}
      # Which app.pipecd.yaml become applications without being added by hand: {} is all of them.
      discover: {{if .Path}}{paths: [{{yaml (print .Path "/**")}}]}{{else}}{}{{end}}
{{- if or .GitUsername .GitPassword .SSHKeyFile}}
  git:
{{- if .GitUsername}}
    username: {{yaml .GitUsername}}
{{- end}}
{{- if .GitPassword}}
    password: {{yaml .GitPassword}}
{{- end}}
{{- if .SSHKeyFile}}
    sshKeyFile: {{yaml .SSHKeyFile}}
{{- end}}
{{- else}}
  # Credentials for the repository. Without them SSH uses the ssh agent and the user's keys.
  # git:
  #   username: piped                 # over HTTP
  #   password: <base64 of a token>
  #   sshKeyFile: /etc/piped/ssh-key  # over SSH
{{- end}}
  platformProviders:
    # An application names this one with spec.platformProvider; it need not while there is only one.
    - name: {{provider}}
      type: KUBERNETES
{{- with .Cluster}}
{{- if .Kubeconfig}}
      config:
        kubeConfigPath: {{yaml .Kubeconfig}}
        # Without it the agent follows the current context of that file to another cluster.
        context: {{yaml .Context}}
{{- else}}
      config: {}  # the cluster that the agent runs in
{{- end}}
{{- end}}
{{- if .APIAddress}}
  api: {address: {{yaml .APIAddress}}}
{{- end}}
{{- if .WebAddress}}
  web: {address: {{yaml .WebAddress}}}
{{- end}}
  # How often the repository is polled. A webhook of the Git host (spec.webhooks) makes it instant.
  # syncInterval: 15s
  # Several replicas need PostgreSQL.
  # store: {dsn: "postgres://piped@db.example.com/piped?sslmode=verify-full"}
`))

// scalar returns a text as a YAML scalar in one line.
func scalar(text string) (string, error) {
	node := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsAny(text, ",[]{}#:&*!|>'\"%@\x60\n\t") {
		node.Style = yaml.DoubleQuotedStyle
	}
	out, err := yaml.Marshal(&node)
	return strings.TrimSpace(string(out)), err
}
