package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// notificationsConfig has a receiver with a route and one without.
const notificationsConfig = `apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  projectID: shop
  pipedID: p
  notifications:
    routes:
      - {receiver: hook, events: [DEPLOYMENT_FAILED], labels: {env: prod}}
      - {receiver: hook, groups: [ROLLOUT], ignoreApps: [api]}
    receivers:
      - {name: hook, webhook: {url: "https://example.com", signatureValueFile: header, hmacSecretFile: secret}}
      - {name: idle, slack: {hookURL: "https://hooks.example.com"}}
`

func planOfNotifications(t *testing.T, dir string) (*notifications, error) {
	t.Helper()
	cfg, _, err := Kinds().ParsePiped(filepath.Join(dir, "piped.yaml"), []byte(notificationsConfig))
	if err != nil {
		t.Fatal(err)
	}
	return planNotifications(cfg)
}

func TestReceiversOfAConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "header"), []byte("known\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := planOfNotifications(t, dir); !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), `receiver "hook": read the HMAC secret`) {
		t.Errorf("without the file of a secret: %v", err)
	}
	write := func(secret string) *notifications {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "secret"), []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := planOfNotifications(t, dir)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	first, same, other := write("one"), write("one"), write("two")
	if !first.same(same) || first.same(other) {
		t.Errorf("a changed secret is not distinguished from the same: %v, %v", first.same(same), first.same(other))
	}
	failed := func(env string) notify.Notice {
		return notify.Notice{Event: deploy.Event{Type: deploy.EventFailed}, Application: &deploy.Application{Name: "web", Labels: map[string]string{"env": env}}}
	}
	rollout := notify.Notice{Event: deploy.Event{Type: deploy.EventRolloutEnded}, Application: &deploy.Application{Name: "web"}}
	got := map[string][]bool{}
	for _, r := range first.receivers(nil, nil, time.Now) {
		got[r.Name()] = []bool{r.Wants(t.Context(), failed("prod")), r.Wants(t.Context(), failed("test")), r.Wants(t.Context(), rollout)}
	}
	want := map[string][]bool{"hook": {true, false, true}, "idle": {false, false, false}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what receivers want (-want +got):\n%s", diff)
	}
}
