package drift_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/kubernetes"
)

// silentCluster answers no comparison until it is told to.
type silentCluster struct {
	drift.Comparer
	speaks chan struct{}
}

func (c silentCluster) Compare(ctx context.Context, req kubernetes.CompareRequest) ([]kubernetes.Compared, error) {
	select {
	case <-c.speaks:
		return c.Comparer.Compare(ctx, req)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mute has one cluster of a lab be silent to a number of applications.
type mute struct {
	*lab
	apps   map[string]bool
	speaks chan struct{}
}

func (m mute) Hold(provider string, app deploy.Application) (drift.Comparer, func(), error) {
	c, release, err := m.lab.Hold(provider, app)
	if m.apps[app.ID] {
		c = silentCluster{c, m.speaks}
	}
	return c, release, err
}

// TestASilentClusterHoldsUpNobodyElse: however many applications have changed in a
// cluster that does not answer, those of others are judged; once it answers, all are.
func TestASilentClusterHoldsUpNobodyElse(t *testing.T) {
	l := newLab(t)
	m := mute{l, map[string]bool{}, make(chan struct{})}
	l.detector.Clusters = m
	other := l.add("other")
	for i := range 40 {
		id := fmt.Sprint("app", i)
		m.apps[id] = true
		l.app(id)
		l.deploy(id, "d-"+id, "c1", deploy.Success, object(id, nil))
	}
	l.app("web")
	l.deploy("web", "d-web", "c1", deploy.Success, object("web", nil))
	if err := l.store.PutInventory(t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: "other", Variant: "primary", Object: ref("left"), UID: "uid-left"}); err != nil {
		t.Fatal(err)
	}
	l.run()
	for i := range 40 {
		l.await(fmt.Sprint("app", i), "SYNCED")
	}
	l.await("web", "SYNCED")
	for i := range 40 {
		id := fmt.Sprint("app", i)
		l.cluster().write(id, taken)
		l.cluster().differ(id, greeting)
		l.detector.Wake(id)
	}
	other.live("left", func(m *kubernetes.Member) { m.Application = "web" })
	l.detector.Wake("web")
	l.await("web", "OUT_OF_SYNC 1 difference: 1 extra")
	close(m.speaks)
	for i := range 40 {
		l.await(fmt.Sprint("app", i), "OUT_OF_SYNC 1 difference: 1 changed")
	}
}
