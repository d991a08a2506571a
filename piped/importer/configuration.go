package importer

import (
	"bytes"
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config"
)

// configuration is an app.pipecd.yaml.
type configuration struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Spec       spec   `yaml:"spec"`
}

type spec struct {
	Name             string            `yaml:"name"`
	Labels           map[string]string `yaml:"labels,omitempty"`
	EnvironmentURL   string            `yaml:"environmentURL,omitempty"`
	PlatformProvider string            `yaml:"platformProvider,omitempty"`
	Input            input             `yaml:"input,omitempty"`
	QuickSync        *quickSync        `yaml:"quickSync,omitempty"`
	Trigger          *trigger          `yaml:"trigger,omitempty"`
	Timeout          string            `yaml:"timeout,omitempty"`
	DriftDetection   *driftDetection   `yaml:"driftDetection,omitempty"`
}

type input struct {
	Manifests           []string          `yaml:"manifests,omitempty"`
	Namespace           string            `yaml:"namespace,omitempty"`
	AutoCreateNamespace bool              `yaml:"autoCreateNamespace,omitempty"`
	HelmChart           *helmChart        `yaml:"helmChart,omitempty"`
	HelmOptions         *helmOptions      `yaml:"helmOptions,omitempty"`
	KustomizeOptions    map[string]string `yaml:"kustomizeOptions,omitempty"`
}

type helmChart struct {
	GitRemote  string `yaml:"gitRemote,omitempty"`
	Ref        string `yaml:"ref,omitempty"`
	Path       string `yaml:"path,omitempty"`
	Repository string `yaml:"repository,omitempty"`
	Name       string `yaml:"name,omitempty"`
	Version    string `yaml:"version,omitempty"`
}

type helmOptions struct {
	ReleaseName string            `yaml:"releaseName,omitempty"`
	ValueFiles  []string          `yaml:"valueFiles,omitempty"`
	SetValues   map[string]string `yaml:"setValues,omitempty"`
	SetFiles    map[string]string `yaml:"setFiles,omitempty"`
	APIVersions []string          `yaml:"apiVersions,omitempty"`
	KubeVersion string            `yaml:"kubeVersion,omitempty"`
}

type quickSync struct {
	Prune bool `yaml:"prune"`
}

type trigger struct {
	OnCommit    *onCommit `yaml:"onCommit,omitempty"`
	OnOutOfSync *disabled `yaml:"onOutOfSync,omitempty"`
}

type onCommit struct {
	Disabled bool     `yaml:"disabled,omitempty"`
	Paths    []string `yaml:"paths,omitempty"`
}

type disabled struct {
	Disabled bool `yaml:"disabled"`
}

type driftDetection struct {
	IgnoreRules []ignoreRule `yaml:"ignoreRules"`
}

type ignoreRule struct {
	Kind     string   `yaml:"kind,omitempty"`
	Name     string   `yaml:"name,omitempty"`
	Paths    []string `yaml:"paths,omitempty"`
	Managers []string `yaml:"managers,omitempty"`
	Mode     string   `yaml:"mode,omitempty"`
}

// commit returns the settings for commits, to be changed.
func (s *spec) commit() *onCommit {
	if s.Trigger == nil {
		s.Trigger = &trigger{}
	}
	if s.Trigger.OnCommit == nil {
		s.Trigger.OnCommit = &onCommit{}
	}
	return s.Trigger.OnCommit
}

// watch adds files outside of the application's directory that count as its own.
func (s *spec) watch(pattern string) {
	if c := s.commit(); !slices.Contains(c.Paths, pattern) {
		c.Paths = append(c.Paths, pattern)
	}
}

// heal turns self-healing on, unless commits are not deployed: what the other tool leaves alone
// stays as it is.
func (s *spec) heal() {
	if s.Trigger != nil && s.Trigger.OnCommit != nil && s.Trigger.OnCommit.Disabled {
		return
	}
	if s.Trigger == nil {
		s.Trigger = &trigger{}
	}
	s.Trigger.OnOutOfSync = &disabled{false}
}

// ignore adds a rule about fields that may differ.
func (s *spec) ignore(r ignoreRule) {
	if s.DriftDetection == nil {
		s.DriftDetection = &driftDetection{}
	}
	s.DriftDetection.IgnoreRules = append(s.DriftDetection.IgnoreRules, r)
}

// copy returns a copy to which settings of one source can be added.
func (s spec) copy() spec {
	if s.Trigger != nil {
		t := *s.Trigger
		if t.OnCommit != nil {
			c := *t.OnCommit
			c.Paths = slices.Clone(c.Paths)
			t.OnCommit = &c
		}
		s.Trigger = &t
	}
	return s
}

// file returns the text of the configuration, with where it comes from.
func (s spec) file(from string) ([]byte, error) {
	out, err := marshal(configuration{"pipecd.dev/v1beta1", "KubernetesApp", s})
	return append([]byte(fmt.Sprintf("# From %s. Check changes with piped check.\n", from)), out...), err
}

func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(v)
	return out.Bytes(), err
}

// configFile is the usual name of a configuration.
const configFile = config.DefaultName
