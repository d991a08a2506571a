package preview

import (
	"context"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
)

// rendered is Sources that bring out one object.
type rendered struct{ object manifest.Object }

func (r rendered) source() *source.Source {
	return &source.Source{
		Objects: []manifest.Object{r.object.Clone()},
		Config:  &config.Application{Warnings: []string{"not used"}, Unread: []string{"unknown key"}},
	}
}

func (r rendered) Load(context.Context, deploy.GitPath, string) (*source.Source, error) {
	return r.source(), nil
}

func (r rendered) LoadFrom(context.Context, fs.FS, deploy.GitPath, string) (*source.Source, error) {
	return r.source(), nil
}

// TestPreviewIsOfWhatIsApplied: objects are shown in the namespace they are applied to,
// and live changes that the deployment would undo are named.
func TestPreviewIsOfWhatIsApplied(t *testing.T) {
	inBubble(t, func(l env) {
		ctx := l.t.Context()
		app := deploy.Application{ID: "web", Name: "web", Kind: deploy.KindKubernetes, Provider: "local", Git: deploy.GitPath{RepoID: "apps", Dir: "web", ConfigFile: "app.pipecd.yaml"}}
		if _, err := l.store.PutApplication(ctx, app); err != nil {
			l.t.Fatal(err)
		}
		report := deploy.DriftReport{ID: "r", ApplicationID: app.ID, Cluster: "local", Status: deploy.OutOfSync, CheckedAt: time.Now(), BeganAt: time.Now(), Objects: []deploy.ObjectDrift{
			{Object: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: "web"}, Kind: deploy.DriftChanged},
			{Object: deploy.ObjectRef{Version: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "old"}, Kind: deploy.DriftExtra},
		}}
		if _, err := l.store.ReportDrift(ctx, app, deploy.SyncState{Status: deploy.OutOfSync, ShortReason: "differs"}, &report); err != nil {
			l.t.Fatal(err)
		}
		sources := rendered{manifest.Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		}}}}
		p := New(Config{
			Store: l.store, Sources: sources, Now: time.Now,
			Plan: func(ctx context.Context, _ deploy.Application, d deploy.Deployment, target func(context.Context) (*source.Source, error), _ Sources) (deploy.Deployment, *source.Source, error) {
				src, err := target(ctx)
				d.Summary = "Quick sync"
				return d, src, err
			},
			Changes: func(_ context.Context, d deploy.Deployment, running, target *source.Source) (deploy.Effect, error) {
				return deploy.Effect{Note: "no plan", Changes: []deploy.PlannedChange{{Object: deploy.ObjectRef{Kind: target.Objects[0].GetKind()}, Action: deploy.PlannedCreate, Diff: d.Summary}}}, nil
			},
			Place: func(_ context.Context, provider string, src *source.Source) []manifest.Object {
				out := src.Objects[0].Clone()
				out.SetNamespace(provider + "-shop")
				return []manifest.Object{out}
			},
		})
		var out deploy.ApplicationPreview
		a := application{AffectedApplication: deploy.AffectedApplication{Application: app}, merge: &git.Merge{}}
		a.load = func(ctx context.Context) (*source.Source, error) {
			return sources.LoadFrom(ctx, fstest.MapFS{}, app.Git, "")
		}
		if err := p.plan(ctx, a, &out); err != nil {
			l.t.Fatal(err)
		}
		if !strings.Contains(out.Details, `name="web", kind="Deployment", namespace="local-shop"`) {
			l.t.Errorf("the details are\n%s", out.Details)
		}
		if want := []deploy.PlannedChange{{Object: deploy.ObjectRef{Kind: "Deployment"}, Action: deploy.PlannedCreate, Diff: "Quick sync"}}; !reflect.DeepEqual(out.Changes, want) {
			l.t.Errorf("the changes are %v", out.Changes)
		}
		if want := []string{"not used", "unknown key", "no plan"}; !slices.Equal(out.Warnings, want) {
			l.t.Errorf("the warnings are %q", out.Warnings)
		}
		if !strings.HasSuffix(out.Summary, "; it also undoes the live changes of Deployment shop/web") {
			l.t.Errorf("the summary is %q", out.Summary)
		}
	})
}
