package apply

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/c785c783/piped/piped/cluster"
	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

// withSettings returns a ConfigMap and a workload of the kind, which reads it.
func withSettings(kind, greeting, labels, pod string) string {
	return `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {` + labels + `}}
data: {greeting: ` + greeting + `}
---
apiVersion: apps/v1
kind: ` + kind + `
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {` + pod + `}}
`
}

const (
	plainPod   = `containers: [{name: c, image: "registry.example/web:v1"}]`
	envPod     = `containers: [{name: c, image: "registry.example/web:v1", env: [{name: G, valueFrom: {configMapKeyRef: {name: settings, key: greeting}}}]}]`
	envFromPod = `containers: [{name: c, image: "registry.example/web:v1", envFrom: [{configMapRef: {name: settings}}]}]`
	initPod    = `initContainers: [{name: i, image: "registry.example/i:v1", envFrom: [{configMapRef: {name: settings}}]}], ` + plainPod
	volumePod  = plainPod + `, volumes: [{name: v, configMap: {name: settings}}]`
	projectPod = plainPod + `, volumes: [{name: v, projected: {sources: [{configMap: {name: settings}}]}}]`
	subPathPod = `containers: [{name: c, image: "registry.example/web:v1", volumeMounts: [{name: v, mountPath: /v, subPath: greeting}]}], volumes: [{name: v, configMap: {name: settings}}]`
	bothPod    = envPod + `, volumes: [{name: v, configMap: {name: settings}}]`
	pullPod    = plainPod + `, imagePullSecrets: [{name: settings}]`
)

// configHash returns the live generation and config-hash of the workload.
func (l *env) configHash(t *testing.T, kind string) (generation int64, hash string) {
	t.Helper()
	u := l.get(t, kind, "web")
	return u.GetGeneration(), configHash(u)
}

// TestConfigHash: a workload restarts if configuration changed in a way that its running
// containers do not see, and for no other reason, unless its mode says otherwise.
func TestConfigHash(t *testing.T) {
	const restart, auto, off = kubernetes.PropagateRestart, kubernetes.PropagateAuto, kubernetes.PropagateOff
	for name, c := range map[string]struct {
		kind, pod string
		mode      kubernetes.PropagationMode
		uses      bool
	}{
		"env": {"Deployment", envPod, "", true}, "envFrom": {"Deployment", envFromPod, "", true}, "init container": {"Deployment", initPod, "", true},
		"volume": {"Deployment", volumePod, restart, true}, "projected volume": {"Deployment", projectPod, restart, true},
		"followed volume": {"Deployment", volumePod, "", false}, "followed projected volume": {"Deployment", projectPod, auto, false},
		"subPath": {"Deployment", subPathPod, auto, true}, "env and volume": {"Deployment", bothPod, auto, true}, "env, off": {"Deployment", envPod, off, false},
		"env, nudge": {"Deployment", envPod, kubernetes.PropagateNudge, false},
		"nothing":    {"Deployment", plainPod, restart, false}, "pull secret": {"Deployment", pullPod, restart, false},
		"DaemonSet": {"DaemonSet", envPod, "", true}, "StatefulSet": {"StatefulSet", envPod, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			l.mode = c.mode
			l.apply(t, withSettings(c.kind, "hello", "", c.pod))
			generation, first := l.configHash(t, c.kind)
			if (first != "") != c.uses || first != "" && len(first) != configHashLength {
				t.Fatalf("config-hash %q", first)
			}
			l.apply(t, withSettings(c.kind, "hello", "", c.pod))
			if writes := l.writes(); len(writes) > 0 {
				t.Errorf("an apply without changes writes: %v", writes)
			}
			l.apply(t, withSettings(c.kind, "hello", "tier: front", c.pod))
			if g, hash := l.configHash(t, c.kind); g != generation || hash != first {
				t.Errorf("a label of the ConfigMap changed the workload: generation %d to %d, %q to %q", generation, g, first, hash)
			}
			l.apply(t, withSettings(c.kind, "bye", "tier: front", c.pod))
			if g, hash := l.configHash(t, c.kind); (g > generation) != c.uses || (hash != first) != c.uses {
				t.Errorf("new content: generation %d to %d, %q to %q", generation, g, first, hash)
			}
		})
	}
}

// forget deletes the recorded state, as if the database were lost.
func (l *env) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inventory = map[string]deploy.InventoryItem{}
}

// setLiveHash writes a config-hash as another tool does; "" removes it.
func (l *env) setLiveHash(t *testing.T, hash string) {
	t.Helper()
	value := `null`
	if hash != "" {
		value = `"` + hash + `"`
	}
	patch := `{"spec":{"template":{"metadata":{"annotations":{"` + manifest.AnnotationConfigHash + `":` + value + `}}}}}`
	_, err := l.Typed().AppsV1().Deployments(l.ns).Patch(context.Background(), "web", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl"})
	if err != nil {
		t.Fatal(err)
	}
}

// TestForeignConfigHashIsCarried: the live config-hash stays until the content changes,
// whichever tool wrote it, even if there is none.
func TestForeignConfigHashIsCarried(t *testing.T) {
	for name, foreign := range map[string]string{"PipeCD's": "mkf7th2k9d", "none": ""} {
		for known, forget := range map[string]bool{"known": false, "first seen": true} {
			t.Run(name+", "+known, func(t *testing.T) {
				t.Parallel()
				l := newEnv(t)
				l.apply(t, withSettings("Deployment", "hello", "", envPod))
				l.setLiveHash(t, foreign)
				if forget {
					l.forget()
				}
				generation, _ := l.configHash(t, "Deployment")
				l.apply(t, withSettings("Deployment", "hello", "", envPod))
				if g, hash := l.configHash(t, "Deployment"); g != generation || hash != foreign {
					t.Errorf("after taking over: generation %d to %d, config-hash %q", generation, g, hash)
				}
				l.apply(t, withSettings("Deployment", "hello", "", envPod))
				if writes := l.writes(); len(writes) > 0 {
					t.Errorf("an apply without changes writes: %v", writes)
				}
				if forget {
					l.forget()
				}
				l.apply(t, withSettings("Deployment", "bye", "", envPod))
				if g, hash := l.configHash(t, "Deployment"); g == generation || hash == foreign || hash == "" {
					t.Errorf("new content: generation %d to %d, config-hash %q", generation, g, hash)
				}
			})
		}
	}
}

// TestRestartSurvivesACrash: the agent dies after it has written the change that requires
// a restart. The repeated run must still restart the workload.
func TestRestartSurvivesACrash(t *testing.T) {
	l := newEnv(t)
	l.apply(t, withSettings("Deployment", "hello", "", envPod))
	_, before := l.configHash(t, "Deployment")
	l.forget()
	var recorded map[string]ConfigChange
	died := errors.New("died")
	_, err := l.tryApply(t, withSettings("Deployment", "bye", "", envPod), func(r *Request) {
		r.Journal = &journal{
			begin: func(i Intent) { recorded = i.Restarts },
			beforeWrite: func(manifest.Object, *unstructured.Unstructured, *unstructured.Unstructured) error {
				return died
			},
		}
	})
	if !errors.Is(err, died) || len(recorded) != 1 {
		t.Fatalf("%v, recorded %v", err, recorded)
	}
	if live := l.get(t, "ConfigMap", "settings"); contentOf(live)["data"].(map[string]any)["greeting"] != "bye" {
		t.Fatal("the ConfigMap was not written before the crash")
	}
	l.apply(t, withSettings("Deployment", "bye", "", envPod), func(r *Request) { r.Restarts = recorded })
	_, after := l.configHash(t, "Deployment")
	if after == before || after == "" {
		t.Errorf("config-hash %q, before %q", after, before)
	}
}

// TestRollbackBringsTheConfigHashBack: a rollback must restore the template byte for
// byte, so that its ReplicaSet is reused.
func TestRollbackBringsTheConfigHashBack(t *testing.T) {
	l := newEnv(t)
	l.apply(t, withSettings("Deployment", "hello", "", envPod))
	l.setLiveHash(t, "mkf7th2k9d")
	var changes map[string]ConfigChange
	l.apply(t, withSettings("Deployment", "bye", "", envPod), func(r *Request) {
		journalOf(r).begin = func(i Intent) { changes = i.Restarts }
	})
	if _, hash := l.configHash(t, "Deployment"); hash == "mkf7th2k9d" {
		t.Fatal("no config-hash to restore")
	}
	l.apply(t, withSettings("Deployment", "hello", "", envPod), func(r *Request) { r.Undo = changes })
	if _, hash := l.configHash(t, "Deployment"); hash != "mkf7th2k9d" {
		t.Errorf("config-hash %q after the rollback", hash)
	}
}

// TestSecretsCompareByContent: other base64 encodings of the same content, or stringData,
// must not restart the workload.
func TestSecretsCompareByContent(t *testing.T) {
	l := newEnv(t)
	const pod = `containers: [{name: c, image: "registry.example/web:v1", envFrom: [{secretRef: {name: key}}]}]`
	secret := func(data string) string {
		return strings.Replace(withSettings("Deployment", "hello", "", pod), "---", "---\napiVersion: v1\nkind: Secret\nmetadata: {name: key}\n"+data+"---", 1)
	}
	l.apply(t, secret("stringData: {password: hello}\n"))
	l.forget()
	generation, hash := l.configHash(t, "Deployment")
	l.apply(t, secret("data: {password: \"aGVs\\nbG8=\"}\n"))
	if g, h := l.configHash(t, "Deployment"); g != generation || h != hash {
		t.Errorf("generation %d to %d, config-hash %q to %q", generation, g, hash, h)
	}
}

// volumes returns two ConfigMaps and a Deployment that mounts the first and reads the
// second through its environment.
func volumes(mounted, env, annotations string) string {
	return `
apiVersion: v1
kind: ConfigMap
metadata: {name: files}
data: {greeting: ` + mounted + `}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {greeting: ` + env + `}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, annotations: {` + annotations + `}}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {` + envPod + `, volumes: [{name: v, configMap: {name: files}}]}}
`
}

// TestAChangeOfTheModeRestartsNothing: for every old and new mode, the template must stay
// until the content changes again, also with an inventory recorded by an agent without
// modes.
func TestAChangeOfTheModeRestartsNothing(t *testing.T) {
	const restart, auto, off, nudge = kubernetes.PropagateRestart, kubernetes.PropagateAuto, kubernetes.PropagateOff, kubernetes.PropagateNudge
	for name, c := range map[string]struct {
		from, to kubernetes.PropagationMode
		older    bool // the inventory was recorded by an agent without modes
	}{
		"restart to auto": {restart, auto, false}, "restart to auto, after an upgrade": {restart, auto, true}, "auto to restart": {auto, restart, false},
		"off to restart": {off, restart, false}, "nudge to auto": {nudge, auto, false}, "restart to off": {restart, off, false},
		"an upgrade": {restart, restart, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			l.mode = c.from
			l.apply(t, volumes("a", "b", ""))
			l.apply(t, volumes("c", "d", "")) // restarted or not
			if c.older {
				l.mu.Lock()
				for key, item := range l.inventory {
					item.ConfigHash, _, _ = strings.Cut(item.ConfigHash, ":")
					l.inventory[key] = item
				}
				l.mu.Unlock()
			}
			before := l.template(t)
			l.mode = c.to
			l.apply(t, volumes("c", "d", ""))
			if writes := l.writes(); len(writes) > 0 {
				t.Errorf("writes: %v", writes)
			}
			l.apply(t, volumes("c", "d", "note: x")) // the workload is written
			if diff := cmp.Diff(before, l.template(t)); diff != "" {
				t.Errorf("the template changed:\n%s", diff)
			}
			l.apply(t, volumes("e", "d", "note: x"))
			if diff := cmp.Diff(before, l.template(t)); (diff != "") != (c.to == restart) {
				t.Errorf("the mounted content changed, and the template:\n%s", diff)
			}
			before = l.template(t)
			l.apply(t, volumes("e", "f", "note: x"))
			if diff := cmp.Diff(before, l.template(t)); (diff != "") != (c.to != off) {
				t.Errorf("the environment changed, and the template:\n%s", diff)
			}
		})
	}
}

// template returns the Deployment's pod template.
func (l *env) template(t *testing.T) any {
	t.Helper()
	template, _, _ := unstructured.NestedFieldNoCopy(l.get(t, "Deployment", "web").Object, "spec", "template")
	return template
}

// TestOnlyWhatIsMountedChanges: the workload must not be written, and its record must
// hold the new content.
func TestOnlyWhatIsMountedChanges(t *testing.T) {
	l := newEnv(t)
	l.apply(t, volumes("a", "b", ""))
	l.apply(t, volumes("c", "b", ""))
	if writes := l.writes(); len(writes) != 1 || !strings.HasSuffix(writes[0], "configmaps/files") {
		t.Errorf("writes: %v", writes)
	}
	l.mode = kubernetes.PropagateRestart
	l.apply(t, volumes("c", "b", ""))
	if writes := l.writes(); len(writes) > 0 {
		t.Errorf("writes: %v", writes)
	}
}

// TestUpgradeAndContentChange: an agent without modes recorded one hash of all content,
// which does not show what changed. Live objects do not show it either if a deployment
// ended between the ConfigMap and the workload. The workload must restart, once.
func TestUpgradeAndContentChange(t *testing.T) {
	for name, c := range map[string]struct {
		mounted, env string
		written      bool // the ConfigMaps are live already
		restarts     bool
	}{
		"mounted": {"c", "b", false, true}, "environment": {"a", "d", false, true}, "environment, by what failed": {"a", "d", true, true},
		"nothing": {"a", "b", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newEnv(t)
			l.mode = kubernetes.PropagateRestart
			l.apply(t, volumes("a", "b", ""))
			l.mu.Lock()
			for key, item := range l.inventory {
				item.ConfigHash, _, _ = strings.Cut(item.ConfigHash, ":")
				l.inventory[key] = item
			}
			l.mu.Unlock()
			if c.written {
				_, err := l.Typed().CoreV1().ConfigMaps(l.ns).Patch(t.Context(), "settings", types.MergePatchType,
					[]byte(`{"data":{"greeting":"`+c.env+`"}}`), metav1.PatchOptions{FieldManager: cluster.FieldManager})
				if err != nil {
					t.Fatal(err)
				}
			}
			_, before := l.configHash(t, "Deployment")
			l.mode = ""
			l.apply(t, volumes(c.mounted, c.env, ""))
			_, after := l.configHash(t, "Deployment")
			if (after != before) != c.restarts {
				t.Errorf("config-hash %q to %q", before, after)
			}
			l.apply(t, volumes(c.mounted, c.env, "note: x"))
			l.apply(t, volumes("e", c.env, "note: x"))
			if _, later := l.configHash(t, "Deployment"); later != after {
				t.Errorf("restarted again: config-hash %q to %q", after, later)
			}
		})
	}
}

// TestAnnotationOverridesTheMode: an invalid mode is refused before anything is written.
func TestAnnotationOverridesTheMode(t *testing.T) {
	l := newEnv(t)
	l.apply(t, volumes("a", "b", `pipecd.dev/config-propagation: "off"`))
	generation, hash := l.configHash(t, "Deployment")
	l.apply(t, volumes("a", "c", `pipecd.dev/config-propagation: "off"`))
	if g, h := l.configHash(t, "Deployment"); g != generation || h != hash {
		t.Errorf("generation %d to %d, config-hash %q to %q", generation, g, hash, h)
	}
	_, err := l.tryApply(t, volumes("d", "e", `pipecd.dev/config-propagation: never`))
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "expected one of auto, nudge, restart, off") {
		t.Errorf("%v", err)
	}
	if writes := l.writes(); len(writes) > 0 {
		t.Errorf("writes: %v", writes)
	}
}
