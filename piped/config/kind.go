package config

import (
	"slices"

	"github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// KindApplication is the kind of PipeCD's newer form of app.pipecd.yaml, which has the
// platform's fields below spec.plugins. The plugin is the kind of the application.
const KindApplication = "Application"

// Kind is one kind of application: what files say of its platform. Package app makes the
// table of all kinds.
type Kind struct {
	// Name is stored with the applications, such as KUBERNETES. It is also the type of the
	// platform's providers.
	Name string
	// File is the kind that app.pipecd.yaml names, such as KubernetesApp.
	File string
	// Plugin is the platform's key in spec.plugins, such as kubernetes.
	Plugin string

	// Spec returns the fields of an application that only this kind has, with their
	// defaults. It is a pointer to a struct.
	Spec func() Spec
	// Ignored are fields that are known but not read, with the reason; see strict.Rules.
	Ignored map[string]string
	// Refused are lists that are read and checked, but that this version cannot honour: an
	// application with an item in one of them is refused.
	Refused []string

	// Stages returns the options of the stages that only this kind has, by stage name, each
	// as a pointer that holds the defaults.
	Stages func() map[string]any
	// Applies are the stages that deploy the target for good; the first one is that of a
	// quick sync.
	Applies []string

	// Provider returns the config of a platform provider of this kind, with its defaults.
	// It is a pointer to a struct.
	Provider func() ProviderConfig
	// IgnoredOfProvider are keys of that config which are known but not read.
	IgnoredOfProvider map[string]string
}

// Spec is what an application of one kind says beyond the generic part.
type Spec interface {
	// Complete fills what depends on other fields and reports every value that makes no
	// sense to d; stages are those of the pipeline.
	Complete(d *strict.Document, stages []platform.Stage)
	// RollbackSwitch returns the field of the kind that enables rollbacks as
	// planner.autoRollback does, and its value: nil when it is not written.
	RollbackSwitch() (field string, written *bool)
}

// ProviderConfig is the config of a platform provider of one kind.
type ProviderConfig interface {
	// Complete reports every value that makes no sense to d, and resolves relative paths.
	// field is the path of the config.
	Complete(d *strict.Document, field string, resolve func(field, path string) string)
	// Files returns the files that the config names.
	Files() []string
}

// Kinds is the table of the kinds that are deployed. An application of kind Application
// without a plugin of a platform is of the first one.
type Kinds []Kind

// Find returns the kind with a stored name, or with the kind of a file. It returns false
// if there is none.
func (ks Kinds) Find(name string) (Kind, bool) {
	return ks.find(func(k Kind) bool { return k.Name == name || k.File == name })
}

// FileKind returns the kind that a file, which may be invalid, names. It is the kind of
// files of the first kind if it names none, or is in the form of kind Application.
func (ks Kinds) FileKind(data []byte) string {
	_, kind := strict.Header(data)
	if kind.Value == "" || kind.Value == KindApplication {
		return ks[0].File
	}
	return kind.Value
}

func (ks Kinds) find(match func(Kind) bool) (Kind, bool) {
	if i := slices.IndexFunc(ks, match); i >= 0 {
		return ks[i], true
	}
	return Kind{}, false
}

// Names returns the stored names of the kinds.
func (ks Kinds) Names() (names []string) {
	for _, k := range ks {
		names = append(names, k.Name)
	}
	return names
}

// files returns the kinds of app.pipecd.yaml that can be deployed.
func (ks Kinds) files() (files []string) {
	for _, k := range ks {
		files = append(files, k.File)
	}
	return files
}

// missing returns those names of PipeCD's kinds that are not in the table.
func (ks Kinds) missing(all ...string) []string {
	return slices.DeleteFunc(all, func(name string) bool {
		_, there := ks.Find(name)
		return there
	})
}

// otherFiles returns PipeCD's kinds of app.pipecd.yaml that are not in the table.
func (ks Kinds) otherFiles() []string {
	return ks.missing(kubernetesFile, "TerraformApp", "LambdaApp", "CloudRunApp", "ECSApp")
}

// otherNames returns PipeCD's kinds of application that are not in the table.
func (ks Kinds) otherNames() []string {
	return ks.missing(deploy.KindKubernetes, "TERRAFORM", "LAMBDA", "CLOUDRUN", "ECS")
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
	apiVersion, kind := strict.Header(data)
	if apiVersion.Value != APIVersion {
		return nil // a file of another program
	}
	return checkKind(name, kind.Line, kind.Value, known...)
}
