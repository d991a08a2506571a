package config

import (
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
)

const kubernetesFile = "KubernetesApp"

// Kubernetes returns the kind of Kubernetes applications.
func Kubernetes() Kind {
	return Kind{
		Name: deploy.KindKubernetes, File: kubernetesFile, Plugin: pluginKubernetes,
		Spec: func() Spec {
			spec := kubernetes.DefaultSpec()
			return &spec
		},
		Ignored: kubernetes.Ignored(),
		Refused: []string{"resourceRoutes"},
		Stages: func() map[string]any {
			stages := kubernetes.StageOptions()
			stages[kubernetes.StageTrafficRouting] = &TrafficRoutingOptions{}
			return stages
		},
		Applies:           []string{kubernetes.StageSync, kubernetes.StagePrimaryRollout},
		Provider:          func() ProviderConfig { return &kubernetes.Provider{} },
		IgnoredOfProvider: kubernetes.IgnoredOfProvider(),
	}
}
