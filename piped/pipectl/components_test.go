package pipectl_test

import (
	"context"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
)

// cluster replaces the components that read clusters: every application has a
// Deployment and a cluster-scoped object.
type cluster struct{}

// withComponents gives the API a cluster.
func withComponents(c *control.Config) { c.Remover, c.Live, c.Drift = cluster{}, cluster{}, cluster{} }

var (
	deployment  = deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}
	clusterRole = deploy.ObjectRef{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole", Name: "web"}
)

// Removals implements control.Remover.
func (cluster) Removals(_ context.Context, app deploy.Application) ([]deploy.InventoryItem, error) {
	return []deploy.InventoryItem{
		{ApplicationID: app.ID, Cluster: app.Provider, Object: deployment},
		{ApplicationID: app.ID, Cluster: app.Provider, Object: clusterRole},
	}, nil
}

// LiveState implements control.Live.
func (cluster) LiveState(_ context.Context, app deploy.Application, children bool) (deploy.LiveState, error) {
	web := deploy.LiveObject{Object: deployment, Health: deploy.HealthDegraded, Reason: "1 of 3 pods is available", CreatedAt: controltest.Epoch}
	if children {
		web.Children = []deploy.LiveObject{{Object: deploy.ObjectRef{Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1"}, Health: deploy.HealthDegraded}}
	}
	return deploy.LiveState{ApplicationID: app.ID, Health: deploy.HealthDegraded, Objects: []deploy.LiveObject{web}, ReadAt: controltest.Epoch}, nil
}

// drifted is a Deployment with changed replicas.
func drifted() deploy.ObjectDrift {
	return deploy.ObjectDrift{
		Object: deployment, Kind: deploy.DriftChanged, BeganAt: controltest.Epoch,
		Fields: []deploy.FieldDrift{{Path: "spec.replicas", Git: "2", Live: "5", Manager: "kubectl", ChangedAt: controltest.Epoch}},
	}
}

// Report implements control.Drift: every application has drifted.
func (cluster) Report(_ context.Context, id string, diff bool) (deploy.DriftReport, error) {
	o := drifted()
	if diff {
		o.Diff = "@@ -1 +1 @@\n-replicas: 2\n+replicas: 5\n"
	}
	return deploy.DriftReport{
		ID: "r-now", ApplicationID: id, Cluster: "dev", Status: deploy.OutOfSync, Objects: []deploy.ObjectDrift{o}, Compared: 2,
		CheckedAt: controltest.Epoch, BeganAt: controltest.Epoch,
	}, nil
}
