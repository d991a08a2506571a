package deploy

// Capabilities are what a cluster serves, as far as the rendering of charts may
// depend on it.
type Capabilities struct {
	KubeVersion string // such as v1.36.3
	// APIVersions are its group versions and kinds, sorted: v1, apps/v1,
	// apps/v1/Deployment.
	APIVersions []string
}
