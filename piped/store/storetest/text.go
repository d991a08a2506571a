package storetest

import (
	"context"
	"testing"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// testTextThatNoRowHolds queries texts that callers may send but that no row can contain.
func testTextThatNoRowHolds(t *testing.T, e *env) {
	app := e.putApp(t, "web")
	for _, text := range []string{"web\x00", "\x00", "web\xff"} {
		for name, read := range map[string]func(context.Context) error{
			"application": func(ctx context.Context) error { _, err := e.store.Application(ctx, text); return err },
			"deployment":  func(ctx context.Context) error { _, err := e.store.Deployment(ctx, text); return err },
			"command":     func(ctx context.Context) error { _, err := e.store.Command(ctx, text); return err },
			"key":         func(ctx context.Context) error { _, err := e.store.APIKey(ctx, text); return err },
			"in a write":  func(ctx context.Context) error { return e.store.SetDisabled(ctx, text, true) },
		} {
			if err := read(t.Context()); !deploy.IsKind(err, deploy.NotFound) {
				t.Errorf("%s %q: %v, want that it is not found", name, text, err)
			}
		}
		labels := map[string]string{text: text}
		apps, _, err := e.store.ListApplications(t.Context(), store.ApplicationQuery{Name: app.Name + text, Labels: labels})
		if err != nil || len(apps) != 0 {
			t.Errorf("applications with %q: %v, %v", text, apps, err)
		}
		ds, _, err := e.store.ListDeployments(t.Context(), store.DeploymentQuery{ApplicationIDs: []string{text}, Labels: labels, Limit: 1})
		if err != nil || len(ds) != 0 {
			t.Errorf("deployments with %q: %v, %v", text, ds, err)
		}
		events, _, err := e.store.RegisteredEvents(t.Context(), store.RegisteredEventQuery{Name: text, Labels: labels, Limit: 1})
		if err != nil || len(events) != 0 {
			t.Errorf("events with %q: %v, %v", text, events, err)
		}
	}
}
