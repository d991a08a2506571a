package watch

import (
	"context"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster/clustertest"
)

// TestHandlerDuringAContext: a handler is called until its context ends, and with its values. Another one
// of its name then begins with every existing object.
func TestHandlerDuringAContext(t *testing.T) {
	l := newEnv(t)
	s := l.Scope(Resource{GroupVersionResource: configMaps, Selector: l.selector()})
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	l.run(t)
	l.put(t, "a", "1")
	type value struct{}
	handle := func(name string) (heard *calls, end context.CancelFunc) {
		ctx, end := context.WithCancel(context.WithValue(t.Context(), value{}, name))
		heard = &calls{}
		err := s.HandleDuring(ctx, "h", func(ctx context.Context, key types.NamespacedName) error {
			heard.mu.Lock()
			defer heard.mu.Unlock()
			heard.seen = append(heard.seen, ctx.Value(value{}).(string)+" "+key.Name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return heard, end
	}
	first, end := handle("first")
	clustertest.Eventually(t, "the first handler was called", func() bool { return slices.Contains(first.list(), "first a") })
	end()
	clustertest.Eventually(t, "the first handler is gone", func() bool {
		for _, w := range s.all() {
			w.mu.Lock()
			n := len(w.handlers)
			w.mu.Unlock()
			if n > 0 {
				return false
			}
		}
		return true
	})
	second, end := handle("second")
	defer end()
	clustertest.Eventually(t, "the second handler knows the object", func() bool { return slices.Contains(second.list(), "second a") })
	l.put(t, "b", "1")
	clustertest.Eventually(t, "the second handler was called", func() bool { return slices.Contains(second.list(), "second b") })
	if got := first.list(); slices.Contains(got, "first b") {
		t.Errorf("the first handler was called after its end: %q", got)
	}
}
