package kubernetes

import (
	"context"
	"strings"
	"testing"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/secret"
)

// TestNoSecretOfAnImageIsInAPlan: no plan shows a secret that is a whole image, a tag,
// or spread over several parts of an image.
func TestNoSecretOfAnImageIsInAPlan(t *testing.T) {
	for name, c := range map[string]struct{ before, after, beforeSecret, afterSecret string }{
		"tag":       {"registry/web:old-s3cret", "registry/web:new-s3cret", "old-s3cret", "new-s3cret"},
		"all of it": {"registry/oldsecret:v1old", "registry/newsecret:v1new", "registry/oldsecret:v1old", "registry/newsecret:v1new"},
		"parts":     {"registry/web-oldkey:k1old", "registry/web-newkey:k1new", "oldkey:k1old", "newkey:k1new"},
	} {
		t.Run(name, func(t *testing.T) {
			running := sourceWith(t, c.before, c.beforeSecret)
			target := sourceWith(t, c.after, c.afterSecret)
			app := deploy.Application{LastSuccessful: &deploy.DeploymentRef{}}
			plan, err := Decider{}.Decide(t.Context(), app, deploy.Deployment{}, target, func(context.Context) (*source.Source, error) { return running, nil })
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(plan.Summary, "image") {
				t.Fatalf("the summary is %q and not about an image", plan.Summary)
			}
			said := []string{plan.Summary}
			for _, v := range plan.Versions {
				said = append(said, v.Name, v.Version, v.URL)
			}
			for _, text := range said {
				for _, secret := range strings.FieldsFunc(c.beforeSecret+":"+c.afterSecret, func(r rune) bool { return r == ':' || r == '/' }) {
					if secret != "registry" && strings.Contains(text, secret) {
						t.Errorf("%q shows %q", text, secret)
					}
				}
			}
		})
	}
}

// sourceWith returns an application with one Deployment of an image that holds a secret.
func sourceWith(t *testing.T, image, hidden string) *source.Source {
	t.Helper()
	cfg, err := config.Kinds{config.Kubernetes()}.ParseApplication("app.pipecd.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {name: web, pipeline: {stages: [{name: K8S_PRIMARY_ROLLOUT}]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := manifest.Parse("a.yaml", []byte("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: a, image: \""+image+"\"}]}}}"))
	if err != nil {
		t.Fatal(err)
	}
	return &source.Source{Config: cfg, Objects: objects, Redactor: secret.NewRedactor(map[string]string{"key": hidden})}
}
