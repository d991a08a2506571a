package kubernetes

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/piped/cluster/apply"
	"github.com/c785c783/piped/piped/cluster/rollout"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source/secret"
)

// Limits for the logs of crashed containers in a stage's log.
const (
	crashLimit   = 15 * time.Second // for reading all logs
	maxCrashes   = 2
	maxCrashLine = 500 // characters of a line
)

// logCrashes copies the last log lines of crashed containers to the stage's log: those of
// the workloads whose rollouts have failed, and of the Job or Pod that err reports as
// unhealthy. It logs what it cannot read, and never fails the stage. It works even if ctx
// has ended, because that may be the stage's timeout.
func (w *work) logCrashes(ctx context.Context, ended []deploy.Rollout, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), crashLimit)
	defer cancel()
	pods, err := w.failedPods(ctx, ended, err)
	if err != nil {
		w.log.Infof("Cannot read the logs of crashed containers: %v", err)
	}
	crashes := rollout.Crashes(pods)
	for _, crash := range crashes[:min(maxCrashes, len(crashes))] {
		lines, err := w.cluster.CrashLog(ctx, crash)
		switch {
		case err != nil:
			w.log.Infof("Cannot read the logs of crashed containers: %v", err)
			return
		case len(lines) == 0:
			w.log.Errorf("%s; it wrote nothing", crash)
		default:
			w.log.Errorf("%s; the end of its log:", crash)
			w.logLines(lines)
		}
	}
}

// failedPods returns the pods of the workloads whose rollouts have failed, and of the
// object that err reports as unhealthy.
func (w *work) failedPods(ctx context.Context, ended []deploy.Rollout, err error) (pods []corev1.Pod, _ error) {
	for _, rec := range ended {
		if rec.Phase != deploy.RolloutFailed && rec.Phase != deploy.RolloutTimedOut {
			continue
		}
		s, err := w.cluster.Rollouts.Confirm(ctx, rec)
		if err != nil {
			return pods, err
		}
		found, _, err := w.cluster.Rollouts.Pods(ctx, rec, s)
		if pods = append(pods, found...); err != nil {
			return pods, err
		}
	}
	var unhealthy *apply.Unhealthy
	if !errors.As(err, &unhealthy) {
		return pods, nil
	}
	found, err := w.cluster.PodsOf(ctx, unhealthy.Object)
	return append(pods, found...), err
}

// logLines logs lines of a container's log without control characters, and with the
// secrets of the set redacted.
func (w *work) logLines(lines []string) {
	known := secret.NewRedactor(secretsOf(w.set.Objects))
	for _, line := range lines {
		line = strings.Map(func(r rune) rune {
			if unicode.IsControl(r) && r != '\t' {
				return -1
			}
			return r
		}, known.Text(w.hide.Text(strings.ToValidUTF8(line, "\uFFFD"))))
		if runes := []rune(line); len(runes) > maxCrashLine {
			line = string(runes[:maxCrashLine]) + " … (cut)"
		}
		w.log.Errorf("  | %s", line)
	}
}

// secretsOf returns the values in the Secrets among the objects.
func secretsOf(objs []manifest.Object) map[string]string {
	found := map[string]string{}
	for _, o := range objs {
		if o.GetKind() != "Secret" || o.GroupVersionKind().Group != "" {
			continue
		}
		for _, field := range []string{"data", "stringData"} {
			values, _, _ := unstructured.NestedMap(o.Object, field)
			for key, value := range values {
				text, _ := value.(string)
				if field == "data" {
					decoded, err := base64.StdEncoding.DecodeString(text)
					if err != nil {
						continue
					}
					text = string(decoded)
				}
				found[o.GetNamespace()+"/"+o.GetName()+"/"+field+"/"+key] = text
			}
		}
	}
	return found
}
