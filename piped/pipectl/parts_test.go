package pipectl_test

import (
	"context"

	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
)

// cluster plays the parts of the agent that read clusters: every application has
// a Deployment and a cluster-wide object.
type cluster struct{}

// withParts gives the API a cluster.
func withParts(c *control.Config) { c.Remover, c.Live = cluster{}, cluster{} }

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
