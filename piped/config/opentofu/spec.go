package opentofu

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
)

// Spec is what only a TerraformApp or an OpenTofuApp says.
type Spec struct {
	// Input says how the program is called.
	Input Input `yaml:"input"`
	// QuickSync are the options of `TERRAFORM_SYNC` in a quick sync.
	QuickSync ApplyOptions `yaml:"quickSync"`
}

// Input says how the program is called.
type Input struct {
	// Workspace is the workspace. It is created if it does not exist.
	// Default: `default`.
	Workspace string `yaml:"workspace"`
	// TerraformVersion is the version of the program. It is looked for in `versionsDir` of the
	// platform provider; without that the provider's program must have this version.
	// Default: the version of the provider's program.
	TerraformVersion string `yaml:"terraformVersion"`
	// Vars are variables, each as `name=value`.
	Vars []string `yaml:"vars"`
	// VarFiles are files with variables, relative to the application's directory.
	VarFiles []string `yaml:"varFiles"`
	// AutoRollback applies the last successful commit again when a deployment fails.
	// Default: `false`, as in PipeCD.
	AutoRollback *bool `yaml:"autoRollback"`
	// CommandFlags are further flags of the commands.
	CommandFlags CommandFlags `yaml:"commandFlags"`
	// CommandEnvs are further environment variables of the commands, each as `NAME=value`.
	CommandEnvs CommandEnvs `yaml:"commandEnvs"`
}

// CommandEnvs are environment variables by command.
type CommandEnvs struct {
	// Shared are for every command.
	Shared []string `yaml:"shared"`
	// Init are for `init`.
	Init []string `yaml:"init"`
	// Plan are for `plan`.
	Plan []string `yaml:"plan"`
	// Apply are for `apply`.
	Apply []string `yaml:"apply"`
}

// SpecOf returns the spec of an application of this kind, which holds it as its platform.
// It panics for an application of another kind.
func SpecOf(platform any) *Spec { return platform.(*Spec) }

// RollbackSwitch returns input.autoRollback.
func (s *Spec) RollbackSwitch() (field string, written *bool) {
	return "input.autoRollback", s.Input.AutoRollback
}

// DefaultAutoRollback returns false, as in PipeCD: what another apply destroys may not come back.
func (s *Spec) DefaultAutoRollback() bool { return false }

var (
	variable    = regexp.MustCompile(`(?s)^[A-Za-z_][A-Za-z0-9_-]*=`)
	environment = regexp.MustCompile(`(?s)^[A-Za-z_][A-Za-z0-9_]*=`)
	version     = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)
	workspace   = regexp.MustCompile(`^[A-Za-z0-9_.~-]{1,90}$`)
)

// Complete reports every value that makes no sense to d; stages are those of the pipeline.
func (s *Spec) Complete(d *strict.Document, stages []platform.Stage) {
	in := s.Input
	if in.Workspace != "" && !workspace.MatchString(in.Workspace) {
		d.Problemf("input.workspace", "expected letters, digits and -_.~, found %q", in.Workspace)
	}
	if in.TerraformVersion != "" && !version.MatchString(in.TerraformVersion) {
		d.Problemf("input.terraformVersion", "expected a version such as 1.9.8, found %q", in.TerraformVersion)
	}
	checkVars(d, "input.vars", in.Vars)
	for i, file := range in.VarFiles {
		if file == "" || path.IsAbs(file) {
			d.Problemf(fmt.Sprintf("input.varFiles[%d]", i), "expected a file relative to the application's directory, found %q", file)
		}
	}
	in.CommandFlags.complete(d, "input.commandFlags")
	in.CommandEnvs.complete(d, "input.commandEnvs")
	s.QuickSync.complete(d, "quickSync")
	checkStages(d, stages)
}

// checkVars reports variables that are not written as name=value.
func checkVars(d *strict.Document, field string, vars []string) {
	for i, v := range vars {
		if !variable.MatchString(v) {
			d.Problemf(fmt.Sprintf("%s[%d]", field, i), "expected name=value")
		}
	}
}

func (e CommandEnvs) complete(d *strict.Document, field string) {
	for list, envs := range map[string][]string{"shared": e.Shared, "init": e.Init, "plan": e.Plan, "apply": e.Apply} {
		for i, env := range envs {
			at := fmt.Sprintf("%s.%s[%d]", field, list, i)
			name, _, _ := strings.Cut(env, "=")
			switch {
			case !environment.MatchString(env):
				d.Problemf(at, "expected NAME=value")
			case managedEnv(name):
				d.Problemf(at, "%s is set by the agent; %s", name, instead(name))
			}
		}
	}
}

// managedEnv reports whether an environment variable of the program belongs to the agent.
func managedEnv(name string) bool {
	switch name {
	case "TF_INPUT", "TF_IN_AUTOMATION", "TF_WORKSPACE", "TF_DATA_DIR", "TF_REATTACH_PROVIDERS", "TF_APPEND_USER_AGENT", "TF_DISABLE_PLUGIN_TLS",
		"TF_SKIP_PROVIDER_VERIFY", "TF_CLI_CONFIG_FILE", "TF_PLUGIN_CACHE_DIR", "TF_CLI_ARGS", "TF_LOG", "TF_LOG_CORE", "TF_LOG_PATH", "TF_LOG_PROVIDER":
		return true
	}
	return strings.HasPrefix(name, "TF_CLI_ARGS_")
}

// instead says what to write in place of an environment variable.
func instead(name string) string {
	switch {
	case name == "TF_WORKSPACE":
		return "use input.workspace"
	case name == "TF_CLI_CONFIG_FILE":
		return "use cliConfigFile of the platform provider"
	case name == "TF_PLUGIN_CACHE_DIR":
		return "use pluginCacheDir of the platform provider"
	case strings.HasPrefix(name, "TF_CLI_ARGS"):
		return "use input.commandFlags"
	}
	return "remove it"
}
