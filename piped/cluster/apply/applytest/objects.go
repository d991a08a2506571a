// Package applytest provides objects and clusters for tests of package apply and of the
// packages that use it.
package applytest

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/cluster/clustertest"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// Web is an application of three objects: a ConfigMap, a Service and a Deployment.
const Web = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "web:1", resources: {requests: {cpu: 1000m}}}]}
`

// Unreachable returns a cluster that answers only discovery requests (DiscoveryOnly).
func Unreachable(t testing.TB) *cluster.Cluster {
	t.Helper()
	c, err := cluster.NewCluster(cluster.ClusterConfig{
		Name: "test", MasterURL: "https://127.0.0.1:1", RetryFor: time.Nanosecond, WrapTransport: clustertest.DiscoveryOnly,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// EveryKind returns objects of more kinds than most applications have, for one namespace.
// Cluster-scoped objects get unique names, and those that applied returns when the test ends
// are deleted.
func EveryKind(t testing.TB, c *cluster.Cluster, namespace string, applied func() []deploy.InventoryItem) string {
	t.Helper()
	t.Cleanup(func() {
		for _, item := range applied() {
			if item.Object.Namespace == "" {
				Delete(t, c, item.Object)
			}
		}
	})
	return clustertest.EveryKind(namespace)
}

// Delete deletes an object of any kind.
func Delete(t testing.TB, c *cluster.Cluster, ref deploy.ObjectRef) {
	t.Helper()
	resource, err := c.Resource(context.Background(), manifest.GVK(ref))
	if err == nil {
		err = c.ResourceClient(resource, ref.Namespace).Delete(context.Background(), ref.Name, metav1.DeleteOptions{})
	}
	if err != nil {
		t.Errorf("delete %s: %v", ref, err)
	}
}

// Written returns an entry of managed fields. Fields are in the form of FieldsV1.
func Written(manager string, op metav1.ManagedFieldsOperationType, subresource, fields string, at time.Time) metav1.ManagedFieldsEntry {
	f := &metav1.FieldsV1{}
	f.SetRawBytes([]byte(fields))
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: op, Subresource: subresource, APIVersion: "v1", FieldsType: "FieldsV1", FieldsV1: f, Time: &metav1.Time{Time: at},
	}
}
