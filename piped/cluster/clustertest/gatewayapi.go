package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// gatewayModule is the module with the CRDs of the Gateway API.
const gatewayModule = "sigs.k8s.io/gateway-api"

// GatewayAPI returns the CRDs of the Gateway API's HTTPRoute, GRPCRoute, Gateway and
// ReferenceGrant, in the version of the module examples/devcluster/gatewayapi. The go
// command locates that module, and fetches it if it is missing.
func GatewayAPI(ctx context.Context) (definitions [][]byte, err error) {
	root, err := moduleRoot("DEVCLUSTER")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", gatewayModule)
	cmd.Dir = filepath.Join(root, "examples", "devcluster", "gatewayapi")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("find module %s: %w: %s", gatewayModule, err, out)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(out, &module); err != nil {
		return nil, fmt.Errorf("find module %s: %w", gatewayModule, err)
	}
	for _, kind := range []string{"httproutes", "grpcroutes", "gateways", "referencegrants"} {
		data, err := os.ReadFile(filepath.Join(module.Dir, "config", "crd", "standard", "gateway.networking.k8s.io_"+kind+".yaml"))
		if err != nil {
			return nil, fmt.Errorf("read the definition of %s: %w", kind, err)
		}
		definitions = append(definitions, data)
	}
	return definitions, nil
}

// InstallGatewayAPI installs the CRDs of the Gateway API in the cluster.
func (c *Cluster) InstallGatewayAPI(t testing.TB) {
	t.Helper()
	definitions, err := GatewayAPI(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.Define(t, definitions...)
}

// Define installs CustomResourceDefinitions, given in YAML, and returns when objects of
// their kinds can be created. They are not removed.
func (c *Cluster) Define(t testing.TB, definitions ...[]byte) {
	t.Helper()
	if err := Define(context.Background(), c.RESTConfig(t), definitions...); err != nil {
		t.Fatal(err)
	}
}

// defining lets one test define what others wait for.
var defining sync.Mutex

// Define is Cluster.Define for programs other than tests. It times out after ten
// minutes: a busy API server publishes new kinds late.
func Define(ctx context.Context, cfg *rest.Config, definitions ...[]byte) error {
	defining.Lock()
	defer defining.Unlock()
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return err
	}
	defer utilnet.CloseIdleConnectionsFor(httpClient.Transport)
	client, err := dynamic.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for _, data := range definitions {
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(data, &crd.Object); err != nil {
			return fmt.Errorf("read a definition: %w", err)
		}
		if err := define(ctx, client, crd); err != nil {
			return fmt.Errorf("define %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

func define(ctx context.Context, client dynamic.Interface, crd *unstructured.Unstructured) error {
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	// To check a definition takes a busy API server longer than it grants a request; it
	// compiles the rules again each time, also if there is one of the name.
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := definitions.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = definitions.Create(ctx, crd, metav1.CreateOptions{})
		}
		if apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsAlreadyExists(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if version["served"] != true {
			continue
		}
		kind := schema.GroupVersionResource{Group: group, Version: fmt.Sprint(version["name"]), Resource: plural}
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := client.Resource(kind).List(ctx, metav1.ListOptions{Limit: 1})
			return err == nil, nil // it is served a moment after it is established
		})
		if err != nil {
			return err
		}
	}
	return nil
}
