package propagate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/c785c783/piped/piped/config/kubernetes"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
)

func fromYAML(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// deployment is a workload with a pod spec, in YAML's flow style.
func deployment(t *testing.T, pod string) *unstructured.Unstructured {
	t.Helper()
	return fromYAML(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {template: {spec: "+pod+"}}}")
}

// TestPlan: the action of each mode, for each way by which pods read an object.
func TestPlan(t *testing.T) {
	const (
		volume    = `volumes: [{name: v, configMap: {name: c}}]`
		secret    = `volumes: [{name: v, secret: {secretName: c}}]`
		projected = `volumes: [{name: v, projected: {sources: [{configMap: {name: c}}]}}]`
		driver    = `volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: c}}}]`
		mount     = `containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}]`
		subPath   = `containers: [{name: a, volumeMounts: [{name: v, mountPath: /v, subPath: k}]}]`
		subExpr   = `containers: [{name: a, volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(X)}]}]`
		both      = `containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}]}, {name: b, volumeMounts: [{name: v, mountPath: /v, subPath: k}]}]`
		initMount = `initContainers: [{name: i, volumeMounts: [{name: v, mountPath: /v}]}], ` + mount
		env       = `containers: [{name: a, env: [{name: X, valueFrom: {configMapKeyRef: {name: c, key: k}}}]}]`
		envFrom   = `containers: [{name: a, envFrom: [{configMapRef: {name: c}}]}]`
		initEnv   = `initContainers: [{name: i, envFrom: [{configMapRef: {name: c}}]}]`
	)
	tests := map[string]struct {
		pod    string
		kind   string // of the object; ConfigMap
		object Object
		auto   Action
		nudge  Action
		why    string // of auto
	}{
		"volume":                        {pod: mount + ", " + volume, auto: Nudge, nudge: Nudge},
		"volume of a Secret":            {pod: mount + ", " + secret, kind: "Secret", auto: Nudge, nudge: Nudge},
		"projected volume":              {pod: mount + ", " + projected, auto: Nudge, nudge: Nudge},
		"volume that nothing mounts":    {pod: volume, auto: Nudge, nudge: Nudge},
		"subPath":                       {pod: subPath + ", " + volume, auto: Restart, nudge: None, why: "they read it by a subPath mount"},
		"subPathExpr":                   {pod: subExpr + ", " + volume, auto: Restart, nudge: None, why: "they read it by a subPath mount"},
		"volume and subPath":            {pod: both + ", " + volume, auto: Restart, nudge: None, why: "they read it by a subPath mount"},
		"init container's volume":       {pod: initMount + ", " + volume, auto: Restart, nudge: None, why: "they read it by an init container"},
		"init container's environment":  {pod: initEnv, auto: Restart, nudge: None, why: "they read it by an init container"},
		"env":                           {pod: env, auto: Restart, nudge: None, why: "they read it by its environment"},
		"envFrom":                       {pod: envFrom, auto: Restart, nudge: None, why: "they read it by its environment"},
		"env and volume":                {pod: env + ", " + volume, auto: Restart, nudge: None, why: "they read it by its environment"},
		"a volume's driver":             {pod: mount + ", " + driver, kind: "Secret", auto: Restart, nudge: None, why: "they read it by a volume's driver"},
		"immutable":                     {pod: mount + ", " + volume, object: Object{Immutable: true}, auto: Restart, nudge: None, why: "it is immutable"},
		"not in Git, by volume":         {pod: mount + ", " + volume, object: Object{External: true}, auto: Nudge, nudge: Nudge},
		"not in Git, by an environment": {pod: env, object: Object{External: true}, auto: None, nudge: None, why: "they read it by its environment, and pods are not restarted for what is not in Git"},
	}
	for name, c := range tests {
		t.Run(name, func(t *testing.T) {
			if c.kind == "" {
				c.kind = "ConfigMap"
			}
			want := manifest.Reference{Kind: c.kind, Name: "c"}
			do := func(mode kubernetes.PropagationMode) Decision {
				found := Plan(mode, deployment(t, "{"+c.pod+"}"), func(r manifest.Reference) (Object, bool) { return c.object, r == want })
				if len(found) != 1 || found[0].Config != want {
					t.Fatalf("%s: %+v", mode, found)
				}
				return found[0]
			}
			auto := do(kubernetes.PropagateAuto)
			if auto.Action != c.auto || auto.Why != c.why {
				t.Errorf("auto: %s (%s), want %s (%s)", auto.Action, auto.Why, c.auto, c.why)
			}
			if got := do(kubernetes.PropagateNudge); got.Action != c.nudge {
				t.Errorf("nudge: %s, want %s", got.Action, c.nudge)
			}
			restart := Restart
			if c.object.External {
				restart = None
			}
			if got := do(kubernetes.PropagateRestart); got.Action != restart {
				t.Errorf("restart: %s, want %s", got.Action, restart)
			}
			if got := do(kubernetes.PropagateOff); got.Action != None || got.Follows != (c.nudge == Nudge) {
				t.Errorf("off: %+v", got)
			}
		})
	}
}

// TestPlanWithoutRollout: pods of a kind that does not roll are nudged in mode restart.
func TestPlanWithoutRollout(t *testing.T) {
	u := deployment(t, "{containers: [{name: a, volumeMounts: [{name: v, mountPath: /v}], envFrom: [{configMapRef: {name: e}}]}], volumes: [{name: v, configMap: {name: c}}]}")
	u.SetKind("ReplicaSet")
	for _, mode := range []kubernetes.PropagationMode{kubernetes.PropagateAuto, kubernetes.PropagateRestart} {
		found := Plan(mode, u, func(manifest.Reference) (Object, bool) { return Object{}, true })
		if len(found) != 2 || found[0].Action != Nudge || found[1].Action != None || found[1].Why != "they read it by its environment" {
			t.Errorf("%s: %+v", mode, found)
		}
	}
}

// TestPlanLeavesOut: objects that are only used to pull images reach no container, and
// unknown objects are ignored.
func TestPlanLeavesOut(t *testing.T) {
	u := deployment(t, "{imagePullSecrets: [{name: pull}], volumes: [{name: v, configMap: {name: other}}]}")
	found := Plan(kubernetes.PropagateAuto, u, func(r manifest.Reference) (Object, bool) { return Object{}, r.Name == "pull" })
	if len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

func TestMode(t *testing.T) {
	plain := deployment(t, "{}")
	said := plain.DeepCopy()
	said.SetAnnotations(map[string]string{manifest.AnnotationConfigPropagation: "off"})
	wrong := plain.DeepCopy()
	wrong.SetAnnotations(map[string]string{manifest.AnnotationConfigPropagation: "never"})
	for name, c := range map[string]struct {
		workload *unstructured.Unstructured
		fallback kubernetes.PropagationMode
		want     kubernetes.PropagationMode
		err      string
	}{
		"nothing said":             {plain, "", kubernetes.PropagateAuto, ""},
		"by the application":       {plain, kubernetes.PropagateRestart, kubernetes.PropagateRestart, ""},
		"the annotation overrides": {said, kubernetes.PropagateRestart, kubernetes.PropagateOff, ""},
		"an annotation that is none": {wrong, kubernetes.PropagateNudge, kubernetes.PropagateNudge,
			`the annotation pipecd.dev/config-propagation of Deployment shop/web: expected one of auto, nudge, restart, off, found "never"`},
	} {
		got, err := Mode(c.workload, c.fallback)
		text := ""
		if err != nil {
			text = err.Error()
			if !deploy.IsKind(err, deploy.Invalid) {
				t.Errorf("%s: an error of another kind: %v", name, err)
			}
		}
		if diff := cmp.Diff([]string{string(c.want), c.err}, []string{string(got), text}); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
