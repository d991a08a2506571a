package cluster

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/c785c783/piped/piped/deploy"
)

func TestNewClusterSaysWhatToSet(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("clusters: {"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := twoContexts(t)
	cases := map[string]struct {
		config ClusterConfig
		want   string
	}{
		"outside a cluster": {
			ClusterConfig{Name: "prod"},
			`platform provider "prod" has no kubeConfigPath and the agent does not run inside a cluster: set platformProviders[].config.kubeConfigPath`,
		},
		"no such file": {
			ClusterConfig{Name: "prod", KubeConfigPath: dir + "/none"},
			`read kubeconfig ` + dir + `/none of platform provider "prod": stat ` + dir + `/none: no such file or directory`,
		},
		"not a kubeconfig": {
			ClusterConfig{Name: "prod", KubeConfigPath: broken},
			`read kubeconfig ` + broken + ` of platform provider "prod": error loading config file "` + broken + `": `,
		},
		"no such context": {
			ClusterConfig{Name: "prod", KubeConfigPath: two, Context: "third"},
			`read kubeconfig ` + two + ` of platform provider "prod": context "third" does not exist`,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := NewCluster(c.config)
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || deploy.KindOf(err) != deploy.Invalid {
				t.Errorf("error (%v):\n%v\nwant (invalid):\n%s", deploy.KindOf(err), err, c.want)
			}
		})
	}
}

// twoContexts returns a kubeconfig with the contexts first, which is the current one, and second.
// The server of each has its name.
func twoContexts(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "config")
	text := `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://first"}}, {name: b, cluster: {server: "https://second"}}]
contexts: [{name: first, context: {cluster: a}}, {name: second, context: {cluster: b}}]
current-context: first
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestContext: the context decides which cluster it is, whichever is the current one.
func TestContext(t *testing.T) {
	path := twoContexts(t)
	for context, server := range map[string]string{"": "https://first", "first": "https://first", "second": "https://second"} {
		config, err := loadConfig(ClusterConfig{Name: "prod", KubeConfigPath: path, Context: context})
		if err != nil || config.Host != server {
			t.Errorf("context %q: %v, %v; want %s", context, config, err, server)
		}
	}
}

func TestClassify(t *testing.T) {
	c := offline(t, nil)
	pods := schema.GroupResource{Resource: "pods"}
	escape := "%zz" // which no URL may hold
	_, unparsed := url.Parse("https://cluster/api/v1/pods/" + escape)
	ask := func() *rest.Request {
		return rest.NewRequestWithClient(&url.URL{Scheme: "https", Host: "127.0.0.1:1"}, "", rest.ClientContentConfig{}, nil).Verb("GET")
	}
	cases := map[string]struct {
		err  error
		kind deploy.Kind
	}{
		"conflict":                  {apierrors.NewConflict(pods, "a", nil), deploy.Conflict},
		"not found":                 {apierrors.NewNotFound(pods, "a"), deploy.NotFound},
		"forbidden":                 {apierrors.NewForbidden(pods, "a", nil), deploy.Invalid},
		"unauthorized":              {apierrors.NewUnauthorized("no"), deploy.Invalid},
		"bad request":               {apierrors.NewBadRequest("no"), deploy.Invalid},
		"too many":                  {apierrors.NewTooManyRequests("later", 1), deploy.Unavailable},
		"going down":                {apierrors.NewServiceUnavailable("later"), deploy.Unavailable},
		"slow":                      {apierrors.NewTimeoutError("later", 1), deploy.Unavailable},
		"etcd is down":              {apierrors.NewInternalError(fmt.Errorf("etcdserver: no leader")), deploy.Unavailable},
		"no answer":                 {context.DeadlineExceeded, deploy.Unavailable},
		"a name that is no name":    {ask().Name("a%2fb").Error(), deploy.Invalid},
		"a namespace that is none":  {ask().Namespace("..").Error(), deploy.Invalid},
		"a path that is no path":    {unparsed, deploy.Invalid},
		"a connection that refused": {ask().Do(t.Context()).Error(), deploy.Unavailable},
		"classed already":           {deploy.Errorf(deploy.Exists, "there"), deploy.Exists},
	}
	for name, c2 := range cases {
		t.Run(name, func(t *testing.T) {
			if got := deploy.KindOf(c.Classify(fmt.Errorf("wrapped: %w", c2.err))); got != c2.kind {
				t.Errorf("kind %v, want %v", got, c2.kind)
			}
		})
	}
	if err := c.Classify(context.Canceled); err != context.Canceled {
		t.Errorf("the end of a context became %v", err)
	}
}

// TestWarningWithoutLogger: a warning of the API server in a cluster without a logger
// causes no failure.
func TestWarningWithoutLogger(t *testing.T) {
	c, err := NewCluster(ClusterConfig{Name: "quiet", MasterURL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.config.WarningHandlerWithContext.HandleWarningHeaderWithContext(t.Context(), 299, "", "v1beta1 is deprecated")
}
