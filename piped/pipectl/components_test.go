package pipectl_test

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/control"
	"github.com/c785c783/piped/piped/control/controltest"
	"github.com/c785c783/piped/piped/deploy"
)

// cluster replaces the components that read clusters: every application has a
// Deployment and a cluster-scoped object.
type cluster struct{}

// withComponents gives the API a cluster.
func withComponents(c *control.Config) {
	c.Remover, c.Live, c.Objects, c.Drift = cluster{}, cluster{}, cluster{}, cluster{}
}

// configured reads the configurations of a script: piped.yaml, and app.pipecd.yaml in a folder
// with the name of the application.
type configured struct{ dir string }

// withConfigurations gives the API the configurations in a folder.
func withConfigurations(dir string) func(*control.Config) {
	return func(c *control.Config) { c.Configurations = configured{dir} }
}

var kinds = config.Kinds{config.Kubernetes()}

// AgentConfig implements control.Configurations. A file that is invalid was refused.
func (c configured) AgentConfig() deploy.EffectiveConfig {
	p, _, err := kinds.LoadPiped(filepath.Join(c.dir, "piped.yaml"))
	if err != nil {
		return deploy.EffectiveConfig{Error: err.Error()}
	}
	return deploy.EffectiveConfig{YAML: p.Effective(), LoadedAt: controltest.Epoch}
}

// ApplicationConfig implements control.Configurations.
func (c configured) ApplicationConfig(_ context.Context, app deploy.Application) (deploy.EffectiveConfig, error) {
	out := deploy.EffectiveConfig{Commit: "0123456789abcdef0123456789abcdef01234567", Path: app.Git.ConfigPath()}
	data, err := os.ReadFile(filepath.Join(c.dir, app.Name, "app.pipecd.yaml"))
	if err != nil {
		return out, err
	}
	text, parsed, err := kinds.EffectiveApplication(out.Path, data, app, nil)
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	out.YAML, out.Warnings = text, append(parsed.Warnings, parsed.Unread...)
	return out, nil
}

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
func (cluster) LiveState(_ context.Context, app deploy.Application, children deploy.LiveChildren) (deploy.LiveState, error) {
	web := deploy.LiveObject{Object: deployment, Health: deploy.HealthDegraded, Reason: "1 of 3 pods is available", CreatedAt: controltest.Epoch}
	if children != deploy.NoChildren {
		web.Children = []deploy.LiveObject{{Object: pod, Health: deploy.HealthDegraded}}
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

// LiveObject implements control.Objects: every application has the Deployment, whose replicas
// were changed.
func (cluster) LiveObject(_ context.Context, app deploy.Application, q deploy.ObjectQuery) (deploy.ObjectDetail, error) {
	if !strings.EqualFold(q.Kind, deployment.Kind) || q.Name != deployment.Name {
		return deploy.ObjectDetail{}, deploy.Errorf(deploy.NotFound, "application %s has no object %s %s", app.Name, q.Kind, q.Name)
	}
	detail := deploy.ObjectDetail{
		Object: deploy.LiveObject{Cluster: "dev", Object: deployment, Health: deploy.HealthDegraded}, Live: "kind: Deployment\nspec:\n  replicas: 5\n",
		Git: "kind: Deployment\nspec:\n  replicas: 2\n", GitCommit: "0123456789abcdef",
	}
	if q.Diff {
		o := drifted()
		o.Diff = "@@ -1 +1 @@\n-replicas: 2\n+replicas: 5\n"
		detail.Drift, detail.Compared = &o, true
	}
	if q.ManagedFields {
		detail.Managers = []deploy.FieldManager{{Manager: "kubectl", Operation: "Update", ChangedAt: controltest.Epoch, Fields: []string{"spec.replicas"}, LeftOut: 3}}
	}
	return detail, nil
}

// ObjectEvents implements control.Objects.
func (cluster) ObjectEvents(_ context.Context, _ deploy.Application, q deploy.EventQuery) (deploy.ObjectEvents, error) {
	events := deploy.ObjectEvents{Events: []deploy.ObjectEvent{
		{Cluster: "dev", Object: pod, Type: "Warning", Reason: "BackOff", Message: "Back-off restarting failed container", Count: 7, FirstAt: controltest.Epoch, LastAt: controltest.Epoch},
		{Cluster: "dev", Object: deployment, Type: "Normal", Reason: "ScalingReplicaSet", Message: "Scaled up", Count: 1, FirstAt: controltest.Epoch, LastAt: controltest.Epoch},
	}}
	if q.Object != nil {
		events.Events, events.Incomplete = events.Events[:1], "namespace shop is forbidden"
	}
	return events, nil
}

var pod = deploy.ObjectRef{Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1"}

// PodLog implements control.Objects: the log has two lines, and ends if it is followed.
func (cluster) PodLog(_ context.Context, app deploy.Application, q deploy.PodLogQuery, send func(deploy.PodLog) error) error {
	if q.Pod.Name != pod.Name {
		return deploy.Errorf(deploy.NotFound, "application %s has no object Pod %s; it has web-1", app.Name, q.Pod.Name)
	}
	parts := []deploy.PodLog{
		{Cluster: "dev", Pod: pod, Container: cmp.Or(q.Container, "app")},
		{Lines: []deploy.PodLogLine{{At: controltest.Epoch, Text: "one\x1b[31m"}, {At: controltest.Epoch.Add(time.Second), Text: "two", Truncated: true}}},
	}
	if q.Follow {
		parts = append(parts, deploy.PodLog{End: "container app ended with exit code 1 (Error)"})
	}
	for _, part := range parts {
		if err := send(part); err != nil {
			return err
		}
	}
	return nil
}

// OnLiveChange implements control.Objects.
func (cluster) OnLiveChange(deploy.Application, func()) func() { return func() {} }

// watchedCluster is a cluster that reports when objects are watched.
type watchedCluster struct {
	cluster
	begun chan struct{} // gets a value for each watch; one that is full gets no more
}

// withWatches reports the watches of objects to begun.
func withWatches(begun chan struct{}) func(*control.Config) {
	return func(c *control.Config) { c.Objects = watchedCluster{begun: begun} }
}

// OnLiveChange implements control.Objects.
func (w watchedCluster) OnLiveChange(deploy.Application, func()) func() {
	select {
	case w.begun <- struct{}{}:
	default:
	}
	return func() {}
}
