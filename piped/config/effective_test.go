package config

import (
	"encoding"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"

	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
)

// marker is the secret that every text of the tests has.
const marker = "hunter2"

// fillWith sets every text below v.
func fillWith(v reflect.Value, text string) {
	if v.CanAddr() && v.CanInterface() {
		switch known := v.Addr().Interface().(type) {
		case *strict.Secret:
			*known = strict.NewSecret(text)
			return
		case encoding.TextUnmarshaler:
			_ = known.UnmarshalText([]byte(text)) // types that take no such text cannot show it
			return
		}
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillWith(v.Elem(), text)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Field(i).Kind() != reflect.Interface && v.Field(i).Type() != reflect.TypeFor[yaml.Node]() {
				fillWith(v.Field(i), text)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillWith(v.Index(0), text)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		value := reflect.New(v.Type().Elem()).Elem()
		fillWith(value, text)
		v.SetMapIndex(reflect.ValueOf("some"), value)
	}
}

// fullSpecs returns specs that have between them every field, filled with a text.
func fullSpecs(t *testing.T, text string) (specs []any) {
	t.Helper()
	variants := func() []any {
		_, analyses := (&AnalysisProvider{}).Variants()
		_, secrets := (&SecretManagement{}).Variants()
		out := []any{kinds[0].Provider()}
		for _, of := range []map[string]any{analyses, secrets} {
			for _, v := range of {
				out = append(out, v)
			}
		}
		return out
	}
	spec := pipedSpec{}
	fillWith(reflect.ValueOf(&spec).Elem(), text)
	spec.Plugins, spec.CloudProviders = nil, nil // their other forms
	specs = append(specs, &spec)
	for _, v := range variants() {
		fillWith(reflect.ValueOf(v).Elem(), text)
		specs = append(specs, v)
	}
	app := kinds[0].defaults()
	app.Platform = kinds[0].Spec()
	fillWith(reflect.ValueOf(&app.Generic).Elem(), text)
	fillWith(reflect.ValueOf(app.Platform).Elem(), text)
	specs = append(specs, app)
	for _, options := range kinds[0].StageOptions() {
		fillWith(reflect.ValueOf(options).Elem(), text)
		specs = append(specs, options)
	}
	return specs
}

// clearTexts returns the fields that show a text, by type and path.
func clearTexts(specs []any, text string) (shown []string) {
	for _, spec := range specs {
		e := encoder{origin: func(path string) string { return path }}
		node := e.value("", reflect.ValueOf(spec).Elem())
		var walk func(*yaml.Node)
		walk = func(n *yaml.Node) {
			if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, text) {
				shown = append(shown, fmt.Sprintf("%s %s", reflect.TypeOf(spec).Elem().Name(), listIndex.ReplaceAllString(n.LineComment, "[]")))
			}
			for _, c := range n.Content {
				walk(c)
			}
		}
		if node != nil {
			walk(node)
		}
	}
	slices.Sort(shown)
	return slices.Compact(shown)
}

// TestFieldsThatAreShown: a new field is shown only after it was added to the list, by someone
// who decided that it holds no secret.
func TestFieldsThatAreShown(t *testing.T) {
	got := strings.Join(clearTexts(fullSpecs(t, marker), marker), "\n") + "\n"
	file := filepath.Join("testdata", "effective", "shown.txt")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("fields are shown that %s does not list; hide them if they can hold a secret (-listed +shown):\n%s", file, diff)
	}
}

// TestNoFieldShowsTheSecretsOfAURL: whatever the field, neither the user nor the query of an
// address in it is shown.
func TestNoFieldShowsTheSecretsOfAURL(t *testing.T) {
	address := "https://" + marker + ":" + marker + "@example.com/path?key=" + marker
	if shown := clearTexts(fullSpecs(t, address), marker); len(shown) > 0 {
		t.Errorf("these fields show it:\n%s", strings.Join(shown, "\n"))
	}
	if shown := clearTexts(fullSpecs(t, address), "example.com/path"); len(shown) < 50 {
		t.Errorf("only %d fields show the address: the test fills too little", len(shown))
	}
}

// TestEverySettingOfTheAgentIsShown: the spec that is shown has every field of the configuration.
func TestEverySettingOfTheAgentIsShown(t *testing.T) {
	var p Piped
	fillWith(reflect.ValueOf(&p).Elem(), "x")
	p.SyncInterval, p.Limits.Deployments, p.Retention.Deployments, p.PlanPreview.WorkerNum = 1, 1, 1, 1
	spec := reflect.ValueOf(p.spec())
	for i := range spec.NumField() {
		name := spec.Type().Field(i).Name
		if spec.Field(i).IsZero() && name != "CloudProviders" && name != "Plugins" {
			t.Errorf("%s is not shown", name)
		}
	}
}

func TestEffectiveAgent(t *testing.T) {
	p, _, err := kinds.ParsePiped("/etc/piped/piped.yaml", []byte(`apiVersion: pipecd.dev/v1beta1
kind: Piped
spec:
  dataDir: /data
  store: {dsn: "postgres://piped:hunter2@db/piped"}
  repositories: [{repoId: apps, remote: "https://hunter2@git.example.com/apps.git?token=hunter2", branch: main}]
  notifications:
    receivers:
    - {name: slack, slack: {hookURL: "https://hooks.example.com/hunter2"}}
    - {name: hook, webhook: {url: "https://example.com/hunter2"}}
  telemetry: {otlpEndpoint: "otel:4317", headers: {authorization: hunter2}}
`))
	if err != nil {
		t.Fatal(err)
	}
	got := p.Effective()
	for _, want := range []string{
		"  dataDir: /data\n", "  syncInterval: 15s # default\n", "    dsn: '[redacted]'\n", "remote: https://[redacted]@git.example.com/apps.git?[redacted]\n",
		"hookURL: '[redacted]'\n", "url: https://example.com/[redacted]\n", "authorization: '[redacted]'\n", "    keepPerApplication: 20 # default\n", "  adopt: auto # default\n", "    - repoId: apps\n", "      - name: slack\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, marker) {
		t.Error("shows a secret")
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestOriginOfAnOlderForm: a list that the file contains in an older form is no default.
func TestOriginOfAnOlderForm(t *testing.T) {
	p := parsed(t, "{dataDir: /data, cloudProviders: [{name: prod, type: KUBERNETES, config: {kubeConfigPath: /k}}]}")
	if got := p.Effective(); !strings.Contains(got, "    - name: prod # older form\n") {
		t.Error(got)
	}
}

// parsed returns the configuration of an agent with a spec.
func parsed(t *testing.T, spec string) *Piped {
	t.Helper()
	p, _, err := kinds.ParsePiped("/etc/piped/piped.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: Piped\nspec: "+spec+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestEffectiveApplication(t *testing.T) {
	templates := &AnalysisTemplates{}
	templates.Add("analysis.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: AnalysisTemplate\nspec:\n  metrics:\n    errors: {provider: prom, interval: 1m, query: errors, expected: {max: 0}}\n"))
	got, _, err := kinds.EffectiveApplication("web/app.pipecd.yaml", []byte(`apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  quickSync: {prune: true}
  pipeline:
    stages:
    - name: K8S_CANARY_ROLLOUT
      with: {replicas: 10%, patches: [{target: {kind: Secret, documentRoot: $.data, name: web}, ops: [{op: yaml-replace, path: $.password, value: hunter2}, {op: yaml-replace, path: $.mode, value: fast}]}]}
    - name: ANALYSIS
      with: {duration: 10m, metrics: [{template: {name: errors}}]}
    - name: SCRIPT_RUN
      with:
        run: 'curl -H "Authorization: Bearer hunter2" https://ana:hunter2@example.com; TOKEN=hunter2 ./deploy'
        env: {MODE: fast, DB_PASSWORD: hunter2, DB_PASS: hunter2, GPG_PASSPHRASE: hunter2, CONNECTION: "Server=db;Password=hunter2;Timeout=5"}
        onRollback: |
          helm registry login --username ci --password hunter2 registry.example
          curl -u ci:hunter2 --fail 'https://ci:p@hunter2@example.com'
          SSH_PRIVATE_KEY=hunter2 ssh deploy@example.com
    - name: K8S_PRIMARY_ROLLOUT
    - name: K8S_CANARY_CLEAN
  encryption: {encryptedSecrets: {some: hunter2}, decryptionTargets: [secret.yaml]}
`), deploy.Application{Name: "web", Provider: "prod"}, templates)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  name: web # registration or directory\n", "  platformProvider: prod # configuration of the agent\n", "    autoRollback: true # default\n",
		"    prune: true\n", "    addVariantLabelToSelector: false # default\n", "          replicas: 10%\n", "          suffix: canary # default\n",
		"duration: 10m\n", "query: errors # template or default\n", "  failFast: true # default\n", "MODE: fast\n", "DB_PASSWORD: '[redacted]'\n",
		"timeout: 6h # default\n", "some: '[redacted]'\n", "secret.yaml\n", "    queue: newest # default\n", "      mode: auto # default\n",
	} {
		if !strings.Contains(got, want) && !strings.Contains(got, strings.TrimLeft(want, " ")) {
			t.Errorf("lacks %q", want)
		}
	}
	if strings.Contains(got, marker) {
		t.Error("shows a secret")
	}
	if _, _, err := kinds.EffectiveApplication("again", []byte(strings.ReplaceAll(got, hidden, "x")), deploy.Application{}, nil); err != nil {
		t.Errorf("what is shown cannot be read: %v", err)
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestShownOptions: what the API shows of a stage hides what the effective configuration hides.
func TestShownOptions(t *testing.T) {
	for options, want := range map[string]string{
		`{"run": "make deploy",  "env": {"MODE": "fast"}}`:                                    `{"run": "make deploy",  "env": {"MODE": "fast"}}`,
		`{"run":"TOKEN=hunter2 make","env":{"DB_PASS":"hunter2","MODE":"fast"},"timeout":5}`:  `{"env":{"DB_PASS":"[redacted]","MODE":"fast"},"run":"TOKEN=[redacted] make","timeout":5}`,
		`{"http":[{"url":"https://a/?q=hunter2","headers":[{"key":"X","value":"hunter2"}]}]}`: `{"http":[{"headers":[{"key":"X","value":"[redacted]"}],"url":"https://a/?[redacted]"}]}`,
		`{"ops":[{"path":"$.password","value":"hunter2"}]}`:                                   `{"ops":[{"path":"$.password","value":"[redacted]"}]}`,
		"": "", "{": "{",
	} {
		if got := ShownOptions([]byte(options)); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", options, got, want)
		}
	}
}

func TestEffectiveApplicationThatIsInvalid(t *testing.T) {
	_, _, err := kinds.EffectiveApplication("app.pipecd.yaml", []byte("apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec: {timeout: soon}\n"), deploy.Application{}, nil)
	if !deploy.IsKind(err, deploy.Invalid) || !strings.Contains(err.Error(), "app.pipecd.yaml:3: spec.timeout") {
		t.Errorf("got %v", err)
	}
}

// FuzzShownOptions: options that are returned as they are have nothing to redact.
func FuzzShownOptions(f *testing.F) {
	for _, options := range []string{
		`{"prune":true}`, `{"run":"curl -u a:b c"}`, `{"url":"https://a@b"}`, `{"env":{"DB_PASS":"x","PWD":"y"}}`, `{"headers":[{"key":"X","value":"y"}]}`,
		`{"run":"--access-key x --user a:b; API_KEY=z"}`, `{"webhook":{"url":"x"}}`, `{"env":{"\u0044SN":"x"}}`, `{"a":[{"path":"$.cookie","value":"x"}]}`,
	} {
		f.Add([]byte(options))
	}
	f.Fuzz(func(t *testing.T, options []byte) {
		if got, want := ShownOptions(options), redactedOptions(options); got != want {
			t.Errorf("%s: %s, want %s", options, got, want)
		}
	})
}
