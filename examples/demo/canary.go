package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// routed is the application whose traffic a route of the Gateway API shares.
const routed = "httproute"

// routes are the kind of route.
var routes = schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "httproutes"}

// defineRouting makes the kinds known to the cluster that the applications route
// traffic with. Nothing carries traffic; the simulated gateways accept every route.
func (d *demo) defineRouting(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", d.kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	definitions, err := clustertest.GatewayAPI(ctx)
	if err != nil {
		return err
	}
	if err := clustertest.Define(ctx, config, append(definitions, clustertest.Istio()...)...); err != nil {
		return err
	}
	d.out.good("it knows the routes of the Gateway API and of Istio")
	return nil
}

// canary commits an image to the application with a route, whose new pods get more
// and more of the traffic, until a person approves them.
func (d *demo) canary(ctx context.Context) error {
	if err := d.commitImage(routed, d.stage.images.next, "Try "+d.stage.images.next+" with some of the users"); err != nil {
		return err
	}
	waiting, err := d.awaitApproval(ctx, routed)
	if err != nil {
		return err
	}
	if err := d.expectWeights(ctx, map[string]int64{routed: 50, routed + "-canary": 50}); err != nil {
		return err
	}
	d.out.gap()
	if err := d.approveDeployment(ctx, waiting, "the numbers are good"); err != nil {
		return err
	}
	if _, err := d.expect(ctx, routed, onCommit, success); err != nil {
		return err
	}
	return d.expectStable(ctx)
}

// breakCanary commits an image that the canary cannot start: only the canary has seen
// that version when it is taken back.
func (d *demo) breakCanary(ctx context.Context) error {
	if err := d.commitImage(routed, badTag, "Try an image that does not exist"); err != nil {
		return err
	}
	deployment, err := d.expect(ctx, routed, onCommit, failure)
	if err != nil {
		return err
	}
	d.expectRollback(deployment)
	return d.expectStable(ctx)
}

// expectStable checks that the application runs the next image, gets all of its
// traffic, and has no canary.
func (d *demo) expectStable(ctx context.Context) error {
	if err := d.expectImage(ctx, routed, d.stage.images.next); err != nil {
		return err
	}
	client, err := d.client()
	if err != nil {
		return err
	}
	left, err := client.AppsV1().Deployments(d.stage.namespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + routed + "-canary"})
	if err != nil {
		return fmt.Errorf("find the canary: %w", err)
	}
	if len(left.Items) > 0 {
		d.differ("Deployment %s/%s-canary is still there", d.stage.namespace, routed)
	}
	return d.expectWeights(ctx, map[string]int64{routed: 1})
}

// expectWeights checks how the route shares the traffic.
func (d *demo) expectWeights(ctx context.Context, want map[string]int64) error {
	config, err := clientcmd.BuildConfigFromFlags("", d.kubeconfig())
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client of the cluster: %w", err)
	}
	route, err := client.Resource(routes).Namespace(d.stage.namespace).Get(ctx, routed, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the route: %w", err)
	}
	if got := weights(route); !maps.Equal(got, want) {
		d.differ("HTTPRoute %s/%s shares the traffic as %s instead of %s", d.stage.namespace, routed, listed(got), listed(want))
		return nil
	}
	d.out.good("seen in the cluster: the weights of HTTPRoute %s/%s are %s", d.stage.namespace, routed, listed(want))
	return nil
}

// listed names weights for a person.
func listed(weights map[string]int64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(weights)) {
		all = append(all, fmt.Sprintf("%s %d", name, weights[name]))
	}
	return strings.Join(all, ", ")
}

// weights returns those of the backends of a route's last rule, which is for every
// request.
func weights(route *unstructured.Unstructured) map[string]int64 {
	out := map[string]int64{}
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	if len(rules) == 0 {
		return out
	}
	last, _ := rules[len(rules)-1].(map[string]any)
	backends, _, _ := unstructured.NestedSlice(last, "backendRefs")
	for _, b := range backends {
		backend, _ := b.(map[string]any)
		name, _, _ := unstructured.NestedString(backend, "name")
		weight, _, _ := unstructured.NestedInt64(backend, "weight")
		out[name] = weight
	}
	return out
}
