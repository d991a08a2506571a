package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/version"
)

// fakeNodeKey marks the nodes the simulation plays.
const fakeNodeKey = "kwok.x-k8s.io/node"

// ensureNodes creates the nodes and removes those of an earlier, larger
// cluster. Their size and state are written by the node-start stage.
func ensureNodes(ctx context.Context, client kubernetes.Interface, o options, kubeletPort int) error {
	want := map[string]bool{}
	for i := range o.nodes {
		node := newNode(i, o, kubeletPort)
		want[node.Name] = true
		_, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating %s: %w", node.Name, err)
		}
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for _, node := range list.Items {
		if node.Annotations[fakeNodeKey] != "fake" || want[node.Name] {
			continue
		}
		if err := client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("removing %s: %w", node.Name, err)
		}
	}
	return nil
}

func newNode(i int, o options, kubeletPort int) *corev1.Node {
	name := fmt.Sprintf("node-%d", i)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: name,
		Labels: map[string]string{
			corev1.LabelHostname:     name,
			corev1.LabelOSStable:     "linux",
			corev1.LabelArchStable:   "amd64",
			corev1.LabelTopologyZone: "zone-" + string(rune('a'+i%3)),
		},
		Annotations: map[string]string{
			fakeNodeKey:                            "fake",
			"devcluster.piped.dev/address":         fmt.Sprintf("10.250.%d.%d", i/250, i%250+1),
			"devcluster.piped.dev/cpu":             o.nodeCPU,
			"devcluster.piped.dev/memory":          o.nodeMemory,
			"devcluster.piped.dev/pods":            strconv.Itoa(o.nodePods),
			"devcluster.piped.dev/kubelet-port":    strconv.Itoa(kubeletPort),
			"devcluster.piped.dev/kubelet-version": version.Get().GitVersion,
		},
	}}
}

// clusterReady returns nil when pods can be created and will run: the default
// ServiceAccount exists and every node is Ready and takes pods.
func clusterReady(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return fmt.Errorf("waiting for the default ServiceAccount: %w", err)
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("waiting for the nodes: %w", err)
	}
	var waiting []error
	for _, node := range list.Items {
		if !nodeTakesPods(&node) {
			waiting = append(waiting, fmt.Errorf("%s is not Ready", node.Name))
		}
	}
	return errors.Join(waiting...)
}

func nodeTakesPods(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			return false
		}
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == corev1.NodeReady {
			return cond.Status == corev1.ConditionTrue
		}
	}
	return false
}
