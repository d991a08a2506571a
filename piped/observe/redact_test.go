package observe

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
	"github.com/c785c783/piped/piped/store/storetest"
)

// TestRecordsOfOthersContainNoSecret: rollouts and scalings that no deployment began are of
// an application whose images may hold secrets.
func TestRecordsOfOthersContainNoSecret(t *testing.T) {
	st := storetest.New(t, time.Now)
	if _, err := st.PutApplication(t.Context(), deploy.Application{ID: "app", Name: "web", Kind: deploy.KindKubernetes}); err != nil {
		t.Fatal(err)
	}
	var redact Redact = func(_ context.Context, app deploy.Application, text string) (string, error) {
		if app.Name != "web" {
			return "", errors.New("another application")
		}
		return strings.ReplaceAll(text, "hunter2", "[redacted]"), nil
	}
	for id, c := range map[string]struct {
		redact Redact
		app    string
		want   string
	}{
		"redacted":               {redact, "app", "web:[redacted]"},
		"of an application gone": {redact, "gone", "web:hunter2"},
		"without secrets":        {nil, "app", "web:hunter2"},
	} {
		rec := deploy.Rollout{
			ID: id, ApplicationID: c.app, ApplicationName: "web", Cluster: "dev", Phase: deploy.RolloutProgressing, Images: "web:hunter2",
			Workload: deploy.ObjectRef{Group: "apps", Version: "v1", Kind: "Deployment", Namespace: "shop", Name: id}, CreatedAt: time.Now(), UpdatedAt: time.Now(),
		}
		if _, err := c.redact.save(t.Context(), st, rec); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		stored, err := st.Rollouts(t.Context(), store.RolloutQuery{Cluster: "dev", Workload: rec.Workload})
		if err != nil || len(stored) != 1 || stored[0].Images != c.want {
			t.Errorf("%s: stored %+v, %v", id, stored, err)
		}
	}
	failing := Redact(func(context.Context, deploy.Application, string) (string, error) {
		return "", errors.New("the key is away")
	})
	if _, err := failing.save(t.Context(), st, deploy.Rollout{ID: "x", ApplicationID: "app", Images: "web:hunter2"}); err == nil {
		t.Error("a record was stored though its secrets could not be taken out")
	}
}
