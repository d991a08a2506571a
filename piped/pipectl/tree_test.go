package pipectl

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// TestTreeThatIsWatched: the tree is shown once all objects have arrived, then what changes. A
// call after a broken connection begins with all objects, and those that it does not send are
// gone.
func TestTreeThatIsWatched(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	object := func(kind, name string, health modelv1.Health, children ...*modelv1.LiveObject) *modelv1.LiveObject {
		return &modelv1.LiveObject{
			Object: &modelv1.ObjectRef{Cluster: "dev", Kind: kind, Namespace: "shop", Name: name}, Health: health, Variant: "primary",
			CreatedAtMs: now.Add(-5 * time.Minute).UnixMilli(), Children: children,
		}
	}
	state := func(health modelv1.Health, objects ...*modelv1.LiveObject) *controlv1.WatchLiveStateResponse {
		return &controlv1.WatchLiveStateResponse{State: &modelv1.LiveState{Health: health, Objects: objects}}
	}
	caughtUp := &controlv1.WatchLiveStateResponse{CaughtUp: true}
	healthy, degraded := modelv1.Health_HEALTH_HEALTHY, modelv1.Health_HEALTH_DEGRADED

	var out bytes.Buffer
	w := &treeWatch{printer: &printer{screen: &screen{out: &out}, format: formatTable}, now: func() time.Time { return now }}
	expect := func(want string, messages ...*controlv1.WatchLiveStateResponse) {
		t.Helper()
		out.Reset()
		for _, m := range messages {
			if err := w.take(m); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}
	const head = "OBJECT               HEALTH   READY  AGE  REASON\n"
	const whole = "Health:  HEALTHY\n\nObjects\n" + head +
		"ConfigMap shop/web   HEALTHY  -      5m   -\n" +
		"Deployment shop/web  HEALTHY  -      5m   -\n"
	web, pod := object("Deployment", "web", healthy), object("Pod", "web-1", degraded)
	pod.HealthReason = "it crashes"

	w.begin()
	expect("", state(healthy, web))
	expect(whole, state(healthy, object("ConfigMap", "web", healthy)), caughtUp)
	expect("03:04:05  DEGRADED\n"+
		"OBJECT               HEALTH    READY  AGE  REASON\n"+
		"Deployment shop/web  DEGRADED  -      5m   -\n"+
		"  Pod shop/web-1     DEGRADED  -      5m   it crashes\n", state(degraded, object("Deployment", "web", degraded, pod)))
	gone := state(degraded)
	gone.Removed = []*modelv1.ObjectRef{object("ConfigMap", "web", healthy).Object}
	expect("03:04:05  DEGRADED\n03:04:05  ConfigMap shop/web is gone\n", gone)
	unread := state(0)
	unread.State.IncompleteReason = "connection refused"
	expect("03:04:05  UNKNOWN: connection refused\n", unread)

	w.begin()
	expect("Health:  HEALTHY\n\nObjects\n"+head+"Deployment shop/web  HEALTHY  -      5m   -\n", state(healthy, web), caughtUp)
	w.tty = true
	expect("\x1b[H\x1b[2JHealth:  HEALTHY\n\nObjects\n"+head+"Deployment shop/web  HEALTHY  -      5m   -\n", state(healthy, web))
}
