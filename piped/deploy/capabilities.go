package deploy

// Capabilities describe the APIs that a cluster serves, as input for chart rendering.
type Capabilities struct {
	KubeVersion string // such as v1.36.3
	// APIVersions are the served group versions and kinds, sorted: v1, apps/v1,
	// apps/v1/Deployment.
	APIVersions []string
}
