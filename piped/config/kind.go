package config

import (
	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// applicationKinds are PipeCD's kinds of application, of which this version deploys
// the first two.
func applicationKinds() []string {
	return []string{KindKubernetesApp, KindApplication, "TerraformApp", "LambdaApp", "CloudRunApp", "ECSApp"}
}

// checkKind returns an error for a kind that is a typing error of a known one.
func checkKind(file string, line int, kind string, known ...string) error {
	near := strict.Slip(kind, known)
	if near == "" {
		return nil
	}
	return deploy.Errorf(deploy.Invalid, "%s:%d: kind: unknown kind %q; did you mean %q?", file, line, kind, near)
}

// CheckSharedKind returns an error for a file of SharedDir whose kind is a typing error
// of one that is read there.
func CheckSharedKind(name string, data []byte) error {
	return checkWrittenKind(name, data, KindAnalysisTemplate, KindEventWatcher)
}

// CheckAgentKind returns an error for a file whose kind is a typing error of that of an
// agent's configuration.
func CheckAgentKind(name string, data []byte) error { return checkWrittenKind(name, data, KindPiped) }

func checkWrittenKind(name string, data []byte, known ...string) error {
	var file struct {
		APIVersion string    `yaml:"apiVersion"`
		Kind       yaml.Node `yaml:"kind"`
	}
	if yaml.Unmarshal(data, &file) != nil || file.APIVersion != APIVersion {
		return nil // of another program, perhaps
	}
	return checkKind(name, file.Kind.Line, file.Kind.Value, known...)
}
