package drift_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
)

// silentCluster answers no comparison until it is released.
type silentCluster struct {
	drift.Comparer
	speaks chan struct{}
}

func (c silentCluster) Compare(ctx context.Context, req apply.CompareRequest) ([]apply.Compared, error) {
	select {
	case <-c.speaks:
		return c.Comparer.Compare(ctx, req)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// mute makes one cluster of an env silent for some applications.
type mute struct {
	*env
	apps   map[string]bool
	speaks chan struct{}
}

func (m mute) Hold(provider string, app deploy.Application) (drift.Comparer, func(), error) {
	c, release, err := m.env.Hold(provider, app)
	if m.apps[app.ID] {
		c = silentCluster{c, m.speaks}
	}
	return c, release, err
}

// TestASilentClusterBlocksNoOther: applications of other clusters are evaluated,
// regardless of how many have changed in a silent cluster. After it answers, its own
// are evaluated, too.
func TestASilentClusterBlocksNoOther(t *testing.T) {
	e := newEnv(t)
	m := mute{e, map[string]bool{}, make(chan struct{})}
	e.detector.Clusters = m
	other := e.add("other")
	for i := range 40 {
		id := fmt.Sprint("app", i)
		m.apps[id] = true
		e.app(id)
		e.deploy(id, "d-"+id, "c1", deploy.Success, object(id, nil))
	}
	e.app("web")
	e.deploy("web", "d-web", "c1", deploy.Success, object("web", nil))
	if err := e.store.PutInventory(t.Context(), deploy.InventoryItem{ApplicationID: "web", Cluster: "other", Variant: "primary", Object: ref("left"), UID: "uid-left"}); err != nil {
		t.Fatal(err)
	}
	e.run()
	for i := range 40 {
		e.await(fmt.Sprint("app", i), "SYNCED")
	}
	e.await("web", "SYNCED")
	for i := range 40 {
		id := fmt.Sprint("app", i)
		e.cluster().write(id, taken)
		e.cluster().differ(id, greeting)
		e.detector.Wake(id)
	}
	other.live("left", func(m *live.Member) { m.Application = "web" })
	e.detector.Wake("web")
	e.await("web", "OUT_OF_SYNC 1 difference: 1 extra")
	close(m.speaks)
	for i := range 40 {
		e.await(fmt.Sprint("app", i), "OUT_OF_SYNC 1 difference: 1 changed")
	}
}
