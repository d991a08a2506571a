package app

import (
	"slices"

	"github.com/c785c783/piped/piped/config"
)

// sameAnalysisProviders reports whether both configure the same providers.
func sameAnalysisProviders(a, b []config.AnalysisProvider) bool {
	return slices.EqualFunc(a, b, func(a, b config.AnalysisProvider) bool {
		return a.Name == b.Name && a.Type == b.Type && sameAnalysisConfig(a.Config, b.Config)
	})
}

func sameAnalysisConfig(a, b any) bool {
	switch a := a.(type) {
	case *config.Prometheus:
		b, ok := b.(*config.Prometheus)
		return ok && *a == *b
	case *config.Loki:
		b, ok := b.(*config.Loki)
		return ok && *a == *b
	case *config.Stackdriver:
		b, ok := b.(*config.Stackdriver)
		return ok && *a == *b
	case *config.Datadog:
		b, ok := b.(*config.Datadog)
		return ok && a.Address == b.Address && a.APIKeyFile == b.APIKeyFile && a.ApplicationKeyFile == b.ApplicationKeyFile &&
			a.APIKeyData.Equal(b.APIKeyData) && a.ApplicationKeyData.Equal(b.ApplicationKeyData)
	}
	return false
}
