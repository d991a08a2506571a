package config

import (
	"github.com/c785c783/piped/piped/config/opentofu"
	"github.com/c785c783/piped/piped/deploy"
)

// Terraform returns the kind of applications that the program terraform deploys.
func Terraform() Kind { return opentofuKind(deploy.KindTerraform, "TerraformApp", "terraform") }

// OpenTofu returns the kind of applications that the program tofu deploys. They have the fields
// and stages of Terraform's.
func OpenTofu() Kind { return opentofuKind(deploy.KindOpenTofu, "OpenTofuApp", "opentofu") }

func opentofuKind(name, file, plugin string) Kind {
	return Kind{
		Name: name, File: file, Plugin: plugin,
		Spec:     func() Spec { return &opentofu.Spec{} },
		Stages:   opentofu.StageOptions,
		Applies:  []string{opentofu.StageSync, opentofu.StageApply},
		Provider: func() ProviderConfig { return &opentofu.Provider{} },
	}
}
