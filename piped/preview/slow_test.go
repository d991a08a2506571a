package preview

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/source"
)

// TestSlowApplicationsOfAPreview: those whose charts do not come keep no other from being
// previewed, and say what they waited for before the time of the preview is over.
func TestSlowApplicationsOfAPreview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(Config{Now: time.Now, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Plan: func(ctx context.Context, app deploy.Application, d deploy.Deployment, _ func(context.Context) (*source.Source, error), _ Sources) (deploy.Deployment, *source.Source, error) {
			if app.Name == "quick" {
				return d, nil, deploy.Errorf(deploy.Invalid, "quick: no objects")
			}
			defer background.Wait(ctx, "chart https://charts.example.com/nginx-1.2.3.tgz")()
			<-ctx.Done()
			return d, nil, ctx.Err()
		}})
		var affected []deploy.AffectedApplication
		want := map[string]string{"quick": "quick: no objects"}
		for i := range atOnce {
			name := fmt.Sprintf("slow-%d", i)
			affected = append(affected, deploy.AffectedApplication{Application: deploy.Application{Name: name}})
			want[name] = "it could not be rendered in time: it waits for chart https://charts.example.com/nginx-1.2.3.tgz"
		}
		affected = append(affected, deploy.AffectedApplication{Application: deploy.Application{Name: "quick"}})
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		got := map[string]string{}
		for _, a := range p.applications(ctx, application{merge: &git.Merge{}}, affected) {
			got[a.Name] = a.Error
		}
		if diff := cmp.Diff(want, got); diff != "" || ctx.Err() != nil {
			t.Errorf("%v, the errors (-want +got):\n%s", ctx.Err(), diff)
		}
	})
}
