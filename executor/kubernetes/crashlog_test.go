package kubernetes

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// crashing is a Deployment of two containers and two replicas that crashes.
const crashing = `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: "registry.example/web:crash"}, {name: side, image: "registry.example/side:v1"}]}
`

// lines returns the lines of the stage log that contain text.
func (l *stageEnv) lines(text string) (out []string) {
	for _, line := range l.log.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// TestFailedRolloutShowsWhatCrashed: the end of the log of each container that
// crashed is in the stage's log, once, and not in the reason.
func TestFailedRolloutShowsWhatCrashed(t *testing.T) {
	l := newStageEnv(t)
	l.Policy = rollout.Policy{PodsAfter: 300 * time.Millisecond, FailFastAfter: 3 * time.Second}
	l.manifests = crashing
	result := l.Sync().Execute(t.Context(), l.deployment(success))
	if result.Status != deploy.StageFailure || !strings.Contains(result.Reason, "CrashLoopBackOff") || strings.Contains(result.Reason, "line 30") {
		t.Errorf("the stage ended %s: %s", result.Status, result.Reason)
	}
	if heads := l.lines("; the end of its log:"); len(heads) != 2 {
		t.Errorf("logs of %q, want of one pod's app and side", heads)
	}
	for _, container := range []string{"app", "side"} {
		lines := l.lines("  | " + container + " of pod web-")
		if len(lines) != 20 || !strings.HasSuffix(lines[19], ", the instance before: line 30 of 30") {
			t.Errorf("log of container %s:\n%s", container, strings.Join(lines, "\n"))
		}
	}
}

// TestFailedJobShowsWhatCrashed: so is that of a Job, be it applied or a hook,
// before the hook is deleted.
func TestFailedJobShowsWhatCrashed(t *testing.T) {
	for name, hook := range map[string]bool{"of a wave": false, "hook": true} {
		t.Run(name, func(t *testing.T) {
			l := newStageEnv(t)
			l.manifests = keptManifest + firstJob("crash")
			if hook {
				l.hooks = map[string]manifest.Hook{"first": {Phase: manifest.HookPre, Install: true, Upgrade: true, DeleteOnFailure: true}}
			}
			if result := l.Sync().Execute(t.Context(), l.deployment(success)); result.Status != deploy.StageFailure {
				t.Fatalf("the stage ended %s: %s", result.Status, result.Reason)
			}
			if lines := l.lines("  | c of pod first-"); len(lines) != 20 || !strings.HasSuffix(lines[19], "this instance: line 30 of 30") {
				t.Errorf("log of the container:\n%s", strings.Join(l.log.lines, "\n"))
			}
		})
	}
}

// TestStoppedStageAndWhatCrashed: what crashed is shown when the stage's time is
// over; who cancelled it does not ask why it did not go on.
func TestStoppedStageAndWhatCrashed(t *testing.T) {
	for why, want := range map[deploy.StopReason]int{deploy.StopTimedOut: 40, deploy.StopCancelled: 0} {
		t.Run(string(why), func(t *testing.T) {
			l := newStageEnv(t)
			l.manifests = crashing
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			ended := make(chan deploy.StageResult, 1)
			go func() { ended <- l.Sync().Execute(ctx, l.deployment(success)) }()
			eventually(t, func() string {
				pods, err := l.shared.Client(t).CoreV1().Pods(l.ns).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					return err.Error()
				}
				if crashes := rollout.Crashes(pods.Items); len(crashes) != 2 || !crashes[1].Previous {
					return fmt.Sprintf("crashed: %v", crashes)
				}
				return ""
			})
			cancel(why)
			<-ended
			if lines := append(l.lines("  | "), l.lines("not known")...); len(lines) != want {
				t.Errorf("%d lines, want %d:\n%s", len(lines), want, strings.Join(l.log.lines, "\n"))
			}
		})
	}
}

// TestLogsThatCannotBeRead: one line of the stage's log says so, and nothing else changes.
func TestLogsThatCannotBeRead(t *testing.T) {
	w, _, log := newWork(t)
	w.Clusters = fixed{"one": {Client: unreached(t, "one")}}
	if err := openCluster(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	w.cluster.Rollouts = nowhere{}
	w.logCrashes(t.Context(), []deploy.Rollout{{Phase: deploy.RolloutFailed}, {Phase: deploy.RolloutFailed}}, nil)
	if want := []string{"Cannot read the logs of crashed containers: nowhere"}; !slices.Equal(log.lines, want) {
		t.Errorf("said %q, want %q", log.lines, want)
	}
}

// nowhere is a cluster that does not answer.
type nowhere struct{ rollout.Observer }

func (nowhere) Confirm(context.Context, deploy.Rollout) (rollout.Snapshot, error) {
	return rollout.Snapshot{}, deploy.Errorf(deploy.Unavailable, "nowhere")
}

// TestLogLinesAreHarmless: no secret of the set, no control characters, no endless line.
func TestLogLinesAreHarmless(t *testing.T) {
	w, _, log := newWork(t)
	w.set.Objects = objects(t, fmt.Sprintf(`apiVersion: v1
kind: Secret
metadata: {name: db, namespace: shop}
data: {password: %s, broken: "%%"}
stringData: {token: t0ken}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: db, namespace: shop}
data: {host: db.shop}
`, base64.StdEncoding.EncodeToString([]byte("hunter2"))))
	long := strings.Repeat("x", maxCrashLine-4) + "hunter2" // cut, half of the secret would be left
	w.logLines([]string{"db.shop says hunter2 is no t0ken", "\x1b[31mred\x1b[0m\a\r", "tab\tbed", "not text: \xff\x00", long})
	want := []string{
		"  | db.shop says [redacted] is no [redacted]", "  | [31mred[0m", "  | tab\tbed", "  | not text: \uFFFD",
		"  | " + strings.Repeat("x", maxCrashLine-4) + "[red … (cut)",
	}
	if diff := cmp.Diff(want, log.lines); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}
