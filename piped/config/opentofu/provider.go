package opentofu

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config/strict"
)

// DefaultDriftInterval is the default of Provider.DriftInterval.
const DefaultDriftInterval = time.Hour

// minDriftInterval bounds the cost of comparisons, each of which reads every resource.
const minDriftInterval = time.Minute

// Provider is the config of a platform provider of type TERRAFORM or OPENTOFU.
type Provider struct {
	// Vars are variables of every application, each as `name=value`. Those of an application come
	// after them.
	Vars []string `yaml:"vars"`
	// DriftDetectionEnabled compares the resources with the last deployment in the background.
	DriftDetectionEnabled bool `yaml:"driftDetectionEnabled"`
	// DriftInterval is the time between two comparisons of an application.
	// Default: `1h`. Not in PipeCD.
	DriftInterval time.Duration `yaml:"driftInterval"`
	// Program is the program, as a path or a name that is looked up in `PATH`.
	// Default: `terraform`, or `tofu` for the type `OPENTOFU`. Not in PipeCD.
	Program string `yaml:"program"`
	// VersionsDir is a directory with one directory for each version, such as `1.9.8`, in which the
	// program of that version is. Nothing is downloaded.
	// Type: path. Not in PipeCD.
	VersionsDir string `yaml:"versionsDir"`
	// PassEnv are names of environment variables of the agent that the program gets, such as
	// `AWS_PROFILE`. It gets no others.
	// Not in PipeCD.
	PassEnv []string `yaml:"passEnv"`
	// CLIConfigFile is the configuration of the program, for example with a mirror of plugins.
	// Type: path. Not in PipeCD.
	CLIConfigFile string `yaml:"cliConfigFile"`
	// PreviewPlans runs `plan` for plan previews and for a request of what a sync would do. A plan
	// runs what the files say, also those of a proposed change, with what the provider passes on:
	// without it, the previews show the differences of the files.
	// Not in PipeCD.
	PreviewPlans bool `yaml:"previewPlans"`
	// PluginCacheDir is a directory of provider plugins that all runs share and none writes to, as
	// `tofu providers mirror` fills it. What is not in it, a run downloads for itself. It has no
	// effect if `cliConfigFile` has a block `provider_installation`.
	// Default: each run downloads what it needs. Type: path. Not in PipeCD.
	PluginCacheDir string `yaml:"pluginCacheDir"`
}

var environmentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Complete reports every value that makes no sense to d, and resolves relative paths. field is
// the path of the config.
func (p *Provider) Complete(d *strict.Document, field string, resolve func(field, path string) string) {
	checkVars(d, field+".vars", p.Vars)
	if p.DriftInterval == 0 {
		p.DriftInterval = DefaultDriftInterval
	}
	if p.DriftInterval < minDriftInterval {
		d.Problemf(field+".driftInterval", "expected at least %s, found %s", minDriftInterval, p.DriftInterval)
	}
	for i, name := range p.PassEnv {
		switch {
		case !environmentName.MatchString(name):
			d.Problemf(fmt.Sprintf("%s.passEnv[%d]", field, i), "expected the name of an environment variable, found %q", name)
		case strings.HasPrefix(name, "TF_VAR_"):
			d.Problemf(fmt.Sprintf("%s.passEnv[%d]", field, i), "a variable of the configuration cannot be passed; use vars")
		case managedEnv(name):
			d.Problemf(fmt.Sprintf("%s.passEnv[%d]", field, i), "%s is set by the agent; %s", name, instead(name))
		}
	}
	p.VersionsDir = resolve(field+".versionsDir", p.VersionsDir)
	p.CLIConfigFile = resolve(field+".cliConfigFile", p.CLIConfigFile)
	p.PluginCacheDir = resolve(field+".pluginCacheDir", p.PluginCacheDir)
}

// Files returns the files that the config names.
func (p *Provider) Files() []string { return []string{p.CLIConfigFile} }
