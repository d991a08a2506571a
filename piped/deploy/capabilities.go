package deploy

// Capabilities describe what a cluster serves, as input for chart rendering.
type Capabilities struct {
	KubeVersion string // such as v1.36.3
	// APIVersions are its group versions and kinds, sorted: v1, apps/v1,
	// apps/v1/Deployment.
	APIVersions []string
}
