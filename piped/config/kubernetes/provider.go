package kubernetes

import "github.com/c785c783/piped/piped/config/strict"

// Provider is the config of a platform provider of type KUBERNETES. Without a
// kubeconfig the agent uses the cluster it runs in.
type Provider struct {
	MasterURL      string `yaml:"masterURL"`
	KubeConfigPath string `yaml:"kubeConfigPath"`
}

// ProviderRules returns the keys of a provider's config that are known but not
// read, by their path below parent.
func ProviderRules(parent string) strict.Rules {
	return strict.Rules{Ignored: map[string]string{
		parent + ".kubectlVersion":   "has no meaning here, no kubectl is run; ignored",
		parent + ".appStateInformer": "not used by this version",
	}}
}
