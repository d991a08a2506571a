package app

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// programCall is a call of the program.
type programCall struct {
	args string
	env  map[string]string
}

// records makes a program of the run that notes its arguments and its environment, and returns what
// reads the notes.
func (i *infra) records() func() []programCall {
	i.t.Helper()
	dir := i.t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\nprintf '%%s' \"$*\" >%[1]s/$$.args\nenv -0 >%[1]s/$$.part\nmv %[1]s/$$.part %[1]s/$$.env\nexec %[2]s \"$@\"\n", dir, i.program)
	i.program = i.file("program")
	if err := os.WriteFile(i.program, []byte(text), 0o700); err != nil {
		i.t.Fatal(err)
	}
	return func() (out []programCall) {
		files, err := filepath.Glob(filepath.Join(dir, "*.env"))
		if err != nil {
			i.t.Fatal(err)
		}
		for _, file := range files {
			args, err := os.ReadFile(strings.TrimSuffix(file, ".env") + ".args")
			if err != nil {
				i.t.Fatal(err)
			}
			env, err := os.ReadFile(file)
			if err != nil {
				i.t.Fatal(err)
			}
			c := programCall{string(args), map[string]string{}}
			for assignment := range strings.SplitSeq(strings.TrimSuffix(string(env), "\x00"), "\x00") {
				name, value, _ := strings.Cut(assignment, "=")
				c.env[name] = value
			}
			out = append(out, c)
		}
		return out
	}
}

// TestOpenTofuCommands: a TerraformApp runs in its workspace with the variables, flags and environment
// variables of its configuration and of its platform provider, and with nothing else of the agent's
// environment.
func TestOpenTofuCommands(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.provider = "TERRAFORM"
	calls := i.records()
	given := []string{ // by the agent, terraform-exec, and the shell of the test
		"PATH", "HOME", "TMPDIR", "CHECKPOINT_DISABLE", "NO_COLOR", "TF_CLI_CONFIG_FILE", "PIPED_OPENTOFU_DIR",
		"TF_APPEND_USER_AGENT", "TF_IN_AUTOMATION", "TF_LOG", "TF_LOG_CORE", "TF_LOG_PATH", "TF_LOG_PROVIDER", "TF_DISABLE_PLUGIN_TLS", "TF_SKIP_PROVIDER_VERIFY", "TF_WORKSPACE",
		"PWD", "OLDPWD", "SHLVL", "_",
	}
	passed, kept := "", ""
	for _, assignment := range os.Environ() {
		name, value, _ := strings.Cut(assignment, "=")
		if value != "" && !slices.Contains(given, name) && !strings.HasPrefix(name, "TF_") {
			passed, kept = name, passed
		}
	}
	if kept == "" {
		t.Fatal("the environment of the test has too few variables")
	}
	i.moreConfig = fmt.Sprintf(", vars: [both=provider, shared=provider], passEnv: [%q]", passed)
	variables, outputs := "", ""
	for _, name := range []string{"both", "shared", "app", "file", "env"} {
		variables += fmt.Sprintf("variable %q {}\n", name)
		outputs += fmt.Sprintf("output %q {\n  value = var.%s\n}\n", name, name)
	}
	code := strings.Replace(i.code(variables+outputs), "path = ", fmt.Sprintf("workspace_dir = %q\n    path = ", i.file("states")), 1)
	code = strings.Replace(strings.Replace(code, `backend "local" { `, "backend \"local\" {\n    ", 1), `.tfstate" }`, ".tfstate\"\n  }", 1)
	commit := i.repo.Push(t, "add", map[string]string{
		"net/main.tf": code, "net/values.tfvars": "file = \"file\"\n",
		"net/app.pipecd.yaml": strings.Replace(i.app(`  input:
    workspace: production
    vars: [both=app, app=app]
    varFiles: [values.tfvars]
    commandFlags:
      shared: [-lock-timeout=7s]
      init: [-upgrade]
      plan: [-parallelism=3]
      apply: [-parallelism=4]
    commandEnvs:
      shared: [EVERY=1]
      init: [OF_INIT=1]
      plan: [OF_PLAN=1, TF_VAR_env=env]
      apply: [OF_APPLY=1]
`), "OpenTofuApp", "TerraformApp", 1),
	})
	i.start()
	i.c.mustEnd(appID("net"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.stop() // a comparison may run, whose home is still there

	var state struct {
		Outputs map[string]struct{ Value string }
	}
	data, err := os.ReadFile(filepath.Join(i.file("states"), "production", "terraform.tfstate"))
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		t.Fatalf("the state of the workspace: %v", err)
	}
	got := map[string]string{}
	for name, o := range state.Outputs {
		got[name] = o.Value
	}
	if diff := cmp.Diff(map[string]string{"both": "app", "shared": "provider", "app": "app", "file": "file", "env": "env"}, got); diff != "" {
		t.Errorf("the outputs (-want +got):\n%s", diff)
	}

	own := map[string]string{"init": "OF_INIT", "plan": "OF_PLAN", "apply": "OF_APPLY"}
	flags := map[string][]string{"init": {"-upgrade=true"}, "plan": {"-lock-timeout=7s", "-parallelism=3"}, "apply": {"-lock-timeout=7s", "-parallelism=4"}}
	seen := map[string]bool{}
	for _, c := range calls() {
		command, _, _ := strings.Cut(c.args, " ")
		if c.args == "version -json" {
			continue // of the planner, without a run
		}
		seen[command] = true
		for _, flag := range flags[command] {
			if !slices.Contains(strings.Fields(c.args), flag) {
				t.Errorf("%s misses the flag %s", c.args, flag)
			}
		}
		if c.env["EVERY"] != "1" && command != "version" || c.env[passed] != os.Getenv(passed) {
			t.Errorf("%s misses a variable of all commands: %v", command, c.env)
		}
		for of, name := range own {
			if _, there := c.env[name]; there != (command == of) && (command != "show" && command != "workspace" && command != "version") {
				t.Errorf("%s: the environment variable %s is there: %t", command, name, there)
			}
		}
		for name := range c.env {
			if !slices.Contains(given, name) && name != passed && name != "EVERY" && !strings.HasPrefix(name, "OF_") {
				t.Errorf("%s has the variable %s of the agent", command, name)
			}
		}
		if _, err := os.Stat(c.env["HOME"]); err == nil || c.env["HOME"] == os.Getenv("HOME") {
			t.Errorf("%s: the home directory %s is not that of the run, or is still there", command, c.env["HOME"])
		}
	}
	for command := range own {
		if !seen[command] {
			t.Errorf("there was no call of %s", command)
		}
	}
}

// TestOpenTofuStateInTheRun: a state that would be lost with the directory of the run is refused
// before anything is applied.
func TestOpenTofuStateInTheRun(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	backend := fmt.Sprintf("  backend \"local\" { path = %q }\n", i.file("state.tfstate"))
	code := i.code(i.resource("a", "one", ""))
	files := map[string]string{}
	tests := map[string]struct{ backend, spec, why string }{
		"none":      {"", "", "set path of the backend \"local\" to an absolute path"},
		"relative":  {"  backend \"local\" { path = \"state.tfstate\" }\n", "", "set path of the backend \"local\" to an absolute path"},
		"workspace": {backend, "  input: {workspace: production}\n", "set workspace_dir of the backend \"local\" to an absolute path"},
	}
	for name, test := range tests {
		files[name+"/app.pipecd.yaml"] = strings.Replace(i.app(test.spec), "name: net", "name: "+name, 1)
		files[name+"/main.tf"] = strings.Replace(code, backend, test.backend, 1)
	}
	commit := i.repo.Push(t, "add", files)
	i.start()
	for name, test := range tests {
		d := i.c.mustEnd(appID(name), commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
		mustContain(t, d.GetStatusReason(), "the state would be lost", test.why)
	}
	if _, err := os.Stat(i.file("a")); err == nil {
		t.Error("a was made all the same")
	}
}

// TestOpenTofuRetries: a failed apply is repeated with a new plan of what is left.
func TestOpenTofuRetries(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	// The first apply makes a, and then fails.
	i.calls("apply", 1, fmt.Sprintf("%q apply -target=sample_file.a -auto-approve >/dev/null; exit 1", i.program))
	chain := i.resource("a", "one", fmt.Sprintf("  journal = %q\n", i.file("journal"))) + i.resource("b", "one", fmt.Sprintf("  journal = %q\n", i.file("journal")))
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app("  quickSync: {retries: 1}\n"), "net/main.tf": i.code(chain)})
	i.start()
	d := i.c.mustEnd(appID("net"), commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustContain(t, i.c.logs(d.GetId()), "Trying again in 10s (1 of 1)", "What is left: 1 to create")
	if wrote := i.journal(); wrote["a"] != 1 || wrote["b"] != 1 {
		t.Errorf("the resources were made %v times, want once", wrote)
	}
	if n := i.called("apply"); n != 2 {
		t.Errorf("%d applies were started, want 2", n)
	}
}

// TestOpenTofuStoppedAgent: an agent that is stopped interrupts the apply, which ends as OpenTofu wants
// it to. After the next start, what is left is applied, and nothing twice.
func TestOpenTofuStoppedAgent(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	gate := newJournalGate(t, i.file("gate"))
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(i.gated("one", "a", "b", "c"))})
	p, app := i.process(), appID("net")
	i.awaitMakingB(app)
	i.awaitFile("gate.began") // an interruption before the plugin makes b would not reach it
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := i.inState(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("after the stop, the state has %v, want what was made", got)
	}
	mustHaveNoRun(t, p)
	gate.open()
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	mustHaveEndedOnce(t, d)
	mustContain(t, i.c.logs(d.GetId()), "What is left: 2 to create")
	wrote := i.journal()
	wrote["b"] += gate.count()
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 1, "c": 1}, wrote); diff != "" {
		t.Errorf("how many times the resources were made (-want +got):\n%s", diff)
	}
}

// TestOpenTofuHealsItself: with onOutOfSync, drift that was made by hand is undone by a deployment.
func TestOpenTofuHealsItself(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	commit := i.repo.Push(t, "add", map[string]string{
		"net/app.pipecd.yaml": i.app("  trigger: {onOutOfSync: {disabled: false, minWindow: 1s}}\n"), "net/main.tf": i.code(i.resource("a", "one", "")),
	})
	i.start()
	app := appID("net")
	first := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	if err := os.WriteFile(i.file("a"), []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	i.drift(app)
	healed := i.c.await(app, "heals", func(d *modelv1.Deployment) bool {
		return d.GetId() != first.GetId() && d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS
	})
	if got := healed.GetTrigger().GetCommit().GetHash(); got != commit {
		t.Errorf("the deployment is of %s, want %s", got, commit)
	}
	i.holds("a", "one")
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
}
