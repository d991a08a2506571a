package install

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/manifest"
)

// Part is what manifests are for. An agent that deploys its own installation cannot give itself
// permissions, and no repository contains secrets: these parts are applied by a person.
type Part string

const (
	Secrets     Part = "secrets" // with the namespace, which contains them
	Permissions Part = "permissions"
	Agent       Part = "agent"
)

// Parts are all parts, in the order of applying.
var Parts = []Part{Secrets, Permissions, Agent}

// File is a text with objects.
type File struct {
	Name string
	Part Part
	Text string
}

//go:embed manifests
var sources embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"yaml": scalar}).ParseFS(sources, "manifests/*"))

// scalar returns a text as a YAML scalar in one line.
func scalar(text string) (string, error) {
	node := yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsAny(text, ",[]{}#&*!|>'\"%\x60\n\t") || strings.Contains(text, ": ") {
		node.Style = yaml.DoubleQuotedStyle
	}
	out, err := yaml.Marshal(&node)
	return strings.TrimSpace(string(out)), err
}

// Files returns the manifests of a variant without its secrets, in the order of applying.
func (v Variant) Files() (files []File, err error) {
	permissions := "permissions-cluster.yaml"
	if len(v.Namespaces) > 0 {
		permissions = "permissions-namespaced.yaml"
	}
	store := "volume.yaml"
	if v.Replicated {
		store = "disruption-budget.yaml"
	}
	for _, f := range []struct {
		source, name string
		part         Part
	}{
		{"namespace.yaml", "namespace.yaml", Secrets},
		{"service-account.yaml", "service-account.yaml", Agent},
		{permissions, "permissions.yaml", Permissions},
		{"lease.yaml", "lease.yaml", Permissions},
		{"config.yaml", "config.yaml", Agent},
		{store, store, Agent},
		{"service.yaml", "service.yaml", Agent},
		{"network-policy.yaml", "network-policy.yaml", Agent},
		{"deployment.yaml", "deployment.yaml", Agent},
	} {
		var out strings.Builder
		if err := templates.ExecuteTemplate(&out, f.source, v); err != nil {
			return nil, fmt.Errorf("make %s: %w", f.name, err)
		}
		files = append(files, File{f.name, f.part, out.String()})
	}
	return files, nil
}

// Text returns the files of some parts, and the secrets if they are among them, as one text.
func Text(files []File, secrets []Secret, parts []Part) (string, error) {
	var texts []string
	for _, f := range files {
		if slices.Contains(parts, f.Part) {
			texts = append(texts, f.Text)
		}
	}
	if slices.Contains(parts, Secrets) {
		for i, s := range secrets {
			text, err := s.text()
			if err != nil {
				return "", err
			}
			texts = slices.Insert(texts, 1+i, text) // the namespace is first
		}
	}
	return strings.Join(texts, "---\n"), nil
}

// objects returns the objects in files, in their order.
func objects(files []File) (out []manifest.Object, err error) {
	for _, f := range files {
		found, err := manifest.Parse(f.Name, []byte(f.Text))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// Kustomization returns a kustomization of files.
func Kustomization(files []File) string {
	out := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n"
	for _, f := range files {
		out += "  - " + f.Name + "\n"
	}
	return out
}
