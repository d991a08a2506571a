package page

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
)

// effective is a configuration as the agent writes it.
const effective = `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: web # registration or directory
  labels:
    'b: c': 'x # y'
    n: "a \" # b" # default
  description: |
    a # default
    key: <b>
  planner:
    autoRollback: true # default
  pipeline:
    stages:
      - id: stage-0 # default
        name: SCRIPT_RUN
        with:
          run: |
            curl https://[redacted]@example.com

            echo
          env:
            DB_PASSWORD: '[redacted]'
      - id: stage-1 # default
        timeout: 6h # default
      - - {}
  dependsOn:
    - |
      # default
    - other # default
  timeout: 6h # default
`

// TestYAMLLines: the parts of a line are its key, its value and its comment, and nothing is lost.
func TestYAMLLines(t *testing.T) {
	parts := map[string]yamlLine{}
	var whole strings.Builder
	for i, l := range yamlLines(effective) {
		if l.number != i+1 {
			t.Errorf("line %d has the number %d", i+1, l.number)
		}
		line := l.indent + l.key + l.value + l.comment
		whole.WriteString(line + "\n")
		l.number = 0
		parts[strings.TrimSpace(line)] = l
	}
	if diff := cmp.Diff(effective, whole.String()); diff != "" {
		t.Errorf("the parts of all lines (-text +parts):\n%s", diff)
	}
	for line, want := range map[string]yamlLine{
		"spec:":                                 {key: "spec:"},
		"name: web # registration or directory": {indent: "  ", key: "name:", value: " web", comment: " # registration or directory"},
		"'b: c': 'x # y'":                       {indent: "    ", key: "'b: c':", value: " 'x # y'"},
		`n: "a \" # b" # default`:               {indent: "    ", key: "n:", value: ` "a \" # b"`, comment: " # default"},
		"description: |":                        {indent: "  ", key: "description:", value: " |"},
		"a # default":                           {value: "    a # default", continues: true},
		"key: <b>":                              {value: "    key: <b>", continues: true},
		"planner:":                              {indent: "  ", key: "planner:"},
		"- id: stage-0 # default":               {indent: "      - ", key: "id:", value: " stage-0", comment: " # default"},
		"curl https://[redacted]@example.com":   {value: "            curl https://[redacted]@example.com", continues: true},
		"env:":                                  {indent: "          ", key: "env:"},
		"- - {}":                                {indent: "      - - ", value: "{}"},
		"# default":                             {value: "      # default", continues: true},
		"- other # default":                     {indent: "    - ", value: "other", comment: " # default"},
	} {
		if diff := cmp.Diff(want, parts[line], cmp.AllowUnexported(yamlLine{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

// TestYAMLOfKubernetes: values go on in further lines, and lists need no indentation.
func TestYAMLOfKubernetes(t *testing.T) {
	var continued []int
	for _, l := range yamlLines("args:\n- 'one\n  two: it''s\n  three'\n- \"a\n  b\"\n- plain\nscript: >-\n  x\n\n  y\nlast: z\n") {
		if l.continues {
			continued = append(continued, l.number)
		}
	}
	if diff := cmp.Diff([]int{3, 4, 6, 9, 10, 11}, continued); diff != "" {
		t.Errorf("lines that go on with a value (-want +got):\n%s", diff)
	}
}

// TestWithoutDefaults: what is a default is left out, and what contains only such; the lines keep
// their numbers. An item whose first line is a default begins as before.
func TestWithoutDefaults(t *testing.T) {
	var got strings.Builder
	for _, l := range withoutDefaults(yamlLines(effective)) {
		if line := strings.Split(effective, "\n")[l.number-1]; line != l.indent+l.key+l.value+l.comment {
			t.Errorf("line %d is %q", l.number, line)
		}
		got.WriteString(l.indent + l.key + l.value + l.comment + "\n")
	}
	want := `apiVersion: pipecd.dev/v1beta1
kind: KubernetesApp
spec:
  name: web # registration or directory
  labels:
    'b: c': 'x # y'
  description: |
    a # default
    key: <b>
  pipeline:
    stages:
      - id: stage-0 # default
        name: SCRIPT_RUN
        with:
          run: |
            curl https://[redacted]@example.com

            echo
          env:
            DB_PASSWORD: '[redacted]'
      - - {}
  dependsOn:
    - |
      # default
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestEffectiveConfig: both tabs show the parts of each line and an address for it, and can leave
// out defaults.
func TestEffectiveConfig(t *testing.T) {
	agent := newFake(t, "view", "administer").on("GetAgentConfig", &controlv1.GetAgentConfigResponse{Yaml: effective, LoadedAtMs: minutesAgo(5), Refused: "piped.yaml:3: unknown key"})
	golden(t, "agent-config", agent.get("/agent?tab=config"))
	app := opened(t).on("GetApplicationConfig", &controlv1.GetApplicationConfigResponse{Yaml: effective, Commit: "84e16d9000000000000000000000000000000000", Path: "search/app.pipecd.yaml"})
	body := golden(t, "application-config", app.get("/applications/search?tab=config"))
	for _, want := range []string{
		`<a class="number" href="#L11">11</a>  <span class="key">planner:</span></span>`, `<span class="value"> true</span><span class="comment"> # default</span>`,
		`<span class="value"> &#39;</span><span class="redacted">[redacted]</span><span class="value">&#39;</span>`, "What has no comment stands in search/app.pipecd.yaml.", "    key: &lt;b&gt;",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the view lacks %q", want)
		}
	}
	body = bodyOf(t, app.get("/applications/search?tab=config&only=configured"))
	if strings.Contains(body, `id="L11"`) || !strings.Contains(body, `id="L15"`) || !strings.Contains(body, "7 lines of defaults are left out.") {
		t.Error("without defaults:", body)
	}
}
