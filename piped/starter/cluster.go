package starter

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/c785c783/piped/piped/deploy"
)

// Cluster is the cluster to deploy to. The context is written down, because the current one of a
// kubeconfig changes with what its user does next: an agent must not follow that to another cluster.
type Cluster struct {
	Kubeconfig string // absolute; "" is the cluster that the agent runs in
	Context    string
}

// String names the cluster for users.
func (c Cluster) String() string {
	if c.Kubeconfig == "" {
		return "the cluster that it runs in"
	}
	return fmt.Sprintf("context %s of %s", c.Context, c.Kubeconfig)
}

// FindCluster returns the cluster that kubectl would use with a kubeconfig and a context, which
// may be "". Errors are of kind deploy.Invalid.
func FindCluster(kubeconfig, context string) (Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := rules.Load()
	if err != nil {
		return Cluster{}, deploy.Errorf(deploy.Invalid, "read the kubeconfig: %w", err)
	}
	searched := strings.Join(rules.GetLoadingPrecedence(), ", ")
	if len(config.Contexts) == 0 {
		if inCluster() && kubeconfig == "" && context == "" {
			return Cluster{}, nil
		}
		return Cluster{}, deploy.Errorf(deploy.Invalid, "there is no context in %s: name a kubeconfig with --kubeconfig", searched)
	}
	if context == "" {
		context = config.CurrentContext
	}
	chosen, known := config.Contexts[context]
	if !known {
		return Cluster{}, deploy.Errorf(deploy.Invalid, "%s has no context %q: choose one with --context: %s", searched, context, strings.Join(slices.Sorted(maps.Keys(config.Contexts)), ", "))
	}
	file := chosen.LocationOfOrigin
	for _, other := range origins(config, chosen) {
		if other != file {
			return Cluster{}, deploy.Errorf(deploy.Invalid, "context %s is in %s, and what it refers to in %s: write all of it to one file (kubectl config view --flatten) and name that with --kubeconfig", context, file, other)
		}
	}
	file, err = absolute(file)
	return Cluster{file, context}, err
}

// inCluster reports whether this process runs in a pod with a service account.
func inCluster() bool {
	_, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token")
	return os.Getenv("KUBERNETES_SERVICE_HOST") != "" && !errors.Is(err, fs.ErrNotExist)
}

// origins returns the files of what a context refers to.
func origins(config *api.Config, context *api.Context) (files []string) {
	if c := config.Clusters[context.Cluster]; c != nil {
		files = append(files, c.LocationOfOrigin)
	}
	if user := config.AuthInfos[context.AuthInfo]; user != nil {
		files = append(files, user.LocationOfOrigin)
	}
	return files
}
