package app

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/c785c783/piped/piped/app/agenttest"
	"github.com/c785c783/piped/piped/marked"
	controlv1 "github.com/c785c783/piped/proto/piped/control/v1"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// stay is what runs in place of a command that never starts: it ends when it is killed.
const stay = "exec sleep 3600"

// calls makes a program of the run that notes each command before it runs it. In place of one of
// them, such as the second show, it runs something else.
func (i *infra) calls(command string, number int, instead string) {
	i.t.Helper()
	text := fmt.Sprintf(`#!/bin/sh
printf '%%s\n' "$*" >>%[1]q
if [ "$1" = %[2]q ] && [ "$(grep -c '^%[2]s ' %[1]q)" = %[3]d ]; then
  : >%[4]q
  %[6]s
fi
exec %[5]q "$@"
`, i.file("calls"), command, number, i.file("held"), i.program, instead)
	i.program = i.file("program")
	if err := os.WriteFile(i.program, []byte(text), 0o700); err != nil {
		i.t.Fatal(err)
	}
}

// called returns how many times a command was called.
func (i *infra) called(command string) (n int) {
	data, _ := os.ReadFile(i.file("calls"))
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, command+" ") {
			n++
		}
	}
	return n
}

// refreshes returns how many plans were comparisons with the state.
func (i *infra) refreshes() int {
	data, _ := os.ReadFile(i.file("calls"))
	return strings.Count(string(data), " -refresh-only")
}

// awaitFile waits until a file exists.
func (i *infra) awaitFile(name string) {
	i.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pollInterval) {
		if _, err := os.Stat(i.file(name)); err == nil {
			return
		}
	}
	i.t.Fatalf("there is no file %s", name)
}

// journalGate is a journal that stops a resource before it is written as long as nothing reads it.
type journalGate struct {
	t    *testing.T
	path string
	pipe *os.File
	read chan struct{} // a mark was read

	mu    sync.Mutex
	wrote int
}

// gateMark is a line that no resource writes.
const gateMark = "mark"

func newJournalGate(t *testing.T, path string) *journalGate {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	g := &journalGate{t: t, path: path, read: make(chan struct{}, 1)}
	t.Cleanup(g.close)
	return g
}

// open lets resources pass, and counts them.
func (g *journalGate) open() {
	g.t.Helper()
	pipe, err := os.OpenFile(g.path, os.O_RDWR, 0) // with a writer, it does not end when another one goes
	if err != nil {
		g.t.Fatal(err)
	}
	g.pipe = pipe
	go func() {
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if lines.Text() == gateMark {
				g.read <- struct{}{}
				continue
			}
			g.mu.Lock()
			g.wrote++
			g.mu.Unlock()
		}
	}()
}

func (g *journalGate) close() {
	if g.pipe != nil {
		_ = g.pipe.Close()
		g.pipe = nil
	}
}

// count returns how many times resources were written. While the gate is open, it reads what was
// written until now: a mark comes after that.
func (g *journalGate) count() int {
	g.t.Helper()
	if g.pipe != nil {
		if _, err := g.pipe.WriteString(gateMark + "\n"); err != nil {
			g.t.Fatal(err)
		}
		select {
		case <-g.read:
		case <-time.After(patience):
			g.t.Fatal("the gate reads nothing")
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wrote
}

// gated returns resources that are made one after the other: each has a journal, which for b is the
// gate. The resource slow takes so long that OpenTofu writes the state after it, which it does every
// 20 seconds.
func (i *infra) gated(content string, names ...string) (code string) {
	for n, name := range names {
		journal, more := i.file("journal"), ""
		if name == "b" {
			journal = i.file("gate")
		}
		if name == "slow" {
			more = "  delay = \"21s\"\n"
		}
		if n > 0 {
			more += fmt.Sprintf("  depends_on = [sample_file.%s]\n", names[n-1])
		}
		code += i.resource(name, content, fmt.Sprintf("  journal = %q\n%s", journal, more))
	}
	return code
}

// emptyState makes a state without resources.
func (i *infra) emptyState() {
	i.t.Helper()
	if err := os.WriteFile(i.file("state.tfstate"), []byte(`{"version": 4, "serial": 1, "lineage": "test", "outputs": {}, "resources": []}`), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// inState returns the addresses that the state on this machine has, read by nothing of the agent.
func (i *infra) inState() (out []string) {
	data, err := os.ReadFile(i.file("state.tfstate"))
	if err != nil || len(data) == 0 { // it is made, and locked, before it is written
		return nil
	}
	var state struct {
		Resources []struct {
			Name      string
			Instances []struct{ Status string }
		}
	}
	if err := json.Unmarshal(data, &state); err != nil {
		i.t.Errorf("the state is damaged: %v", err)
	}
	for _, r := range state.Resources {
		for _, instance := range r.Instances {
			out = append(out, strings.TrimSpace(r.Name+" "+instance.Status))
		}
	}
	slices.Sort(out)
	return out
}

// kill is a step of a deployment at which the agent is killed: a command that never starts, or else
// the resource b, which waits at its gate.
type kill struct {
	pipeline  bool
	command   string
	number    int
	resources []string // that are made
	applies   int      // that are started in all
	resumes   string   // what the log says after the restart, "" if no apply had begun
	remade    int      // how many times a may be made again
}

// TestOpenTofuKilledAtEachStep kills the agent at each step of a deployment. The provider's own
// journal says that each resource was made once, and the program how many applies there were.
func TestOpenTofuKilledAtEachStep(t *testing.T) {
	t.Parallel()
	const looking, rest, nothing = "looking for what is left of plan", "What is left: ", "Nothing is left of the plan"
	quick, slow := []string{"a", "b", "c"}, []string{"a", "b", "c", "slow"}
	for name, k := range map[string]kill{
		"before the plan":                 {command: "plan", number: 1, resources: quick, applies: 1},
		"before the plan is kept":         {command: "show", number: 1, resources: quick, applies: 1},
		"when the plan is kept":           {command: "show", number: 2, resources: quick, applies: 1},
		"when the apply starts":           {command: "apply", number: 1, resources: quick, applies: 2, resumes: rest + "3 to create"},
		"when one is made":                {resources: slow, applies: 2, resumes: rest + "2 to create"},
		"when one is not in the state":    {resources: quick, applies: 2, resumes: rest, remade: 1},
		"when all are made":               {command: "show", number: 3, resources: quick, applies: 1, resumes: nothing},
		"pipeline, before it is kept":     {pipeline: true, command: "show", number: 1, resources: quick, applies: 1},
		"pipeline, before it is read":     {pipeline: true, command: "show", number: 2, resources: quick, applies: 1},
		"pipeline, when the apply starts": {pipeline: true, command: "apply", number: 1, resources: quick, applies: 2, resumes: rest + "3 to create"},
		"pipeline, when one is made":      {pipeline: true, resources: slow, applies: 2, resumes: rest + "2 to create"},
		"pipeline, when all are made":     {pipeline: true, command: "show", number: 3, resources: quick, applies: 1, resumes: nothing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInfra(t)
			i.calls(k.command, k.number, stay)
			g, spec, order := newJournalGate(t, i.file("gate")), "", k.resources
			if k.pipeline {
				spec = "  pipeline:\n    stages: [{name: TERRAFORM_PLAN, id: plan}, {name: TERRAFORM_APPLY, id: apply}]\n"
			}
			if slices.Contains(order, "slow") {
				order = []string{"a", "slow", "b", "c"}
				i.emptyState() // OpenTofu writes one that it makes only at the end
			}
			commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(spec), "net/main.tf": i.code(i.gated("one", order...))})
			p, app := i.process(), appID("net")
			if k.command == "" {
				i.awaitMakingB(app)
			} else {
				g.open()
				i.awaitFile("held")
			}
			restart(t, p)
			if k.command == "" {
				g.open() // now, as a plugin may outlive the agent until the restart
			}
			d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			mustHaveEndedOnce(t, d)
			wrote := i.journal()
			wrote["b"] = g.count()
			for _, name := range k.resources {
				if n := wrote[name]; n != 1 && (name != "a" || n > 1+k.remade) {
					t.Errorf("%s was made %d times", name, n)
				}
			}
			if n := i.called("apply"); n != k.applies {
				t.Errorf("%d applies were started, want %d", n, k.applies)
			}
			if got := i.inState(); !slices.Equal(got, k.resources) {
				t.Errorf("the state has %v", got)
			}
			if log := i.c.logs(d.GetId()); k.resumes != "" {
				mustContain(t, log, looking, k.resumes)
			} else if strings.Contains(log, looking) {
				t.Errorf("no apply had begun:\n%s", log)
			}
			i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
		})
	}
}

// TestOpenTofuKilledBeforeTheEndIsStored kills the agent after it has recorded what an apply left, and
// before the end of the stage is stored. The provider's own journal says that each resource was made
// once.
func TestOpenTofuKilledBeforeTheEndIsStored(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{
		"sync": "", "pipeline": "  pipeline:\n    stages: [{name: TERRAFORM_PLAN, id: plan}, {name: TERRAFORM_APPLY, id: apply}]\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInfra(t)
			i.calls("none", 1, stay)
			p, app := i.process(), appID("net")
			db, err := sql.Open("sqlite", filepath.Join(filepath.Dir(p.KeyFile), "piped.db")+"?_pragma=busy_timeout(60000)")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			alter := func(statement string) {
				t.Helper()
				if _, err := db.Exec(statement); err != nil {
					t.Fatal(err)
				}
			}
			alter("CREATE TRIGGER no_end BEFORE UPDATE ON stages WHEN NEW.status = 'SUCCESS' AND NEW.name IN ('TERRAFORM_SYNC', 'TERRAFORM_APPLY') BEGIN SELECT RAISE(FAIL, 'the end of the stage'); END")
			resources := strings.ReplaceAll(i.gated("one", "a", "b"), i.file("gate"), i.file("journal"))
			commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(spec), "net/main.tf": i.code(resources)})
			i.c.await(app, "has recorded the apply", func(d *modelv1.Deployment) bool {
				return strings.Contains(i.c.logs(d.GetId()), "The state has 2 resources")
			})
			p.Kill()
			alter("DROP TRIGGER no_end")
			if err := p.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
			mustHaveEndedOnce(t, d)
			mustContain(t, i.c.logs(d.GetId()), "The plan had been applied before the agent was interrupted")
			if wrote := i.journal(); wrote["a"] != 1 || wrote["b"] != 1 || len(wrote) != 2 {
				t.Errorf("the resources were made %v times, want once", wrote)
			}
			if n := i.called("apply"); n != 1 {
				t.Errorf("%d applies were started, want 1", n)
			}
			if got := i.inState(); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("the state has %v", got)
			}
			i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
		})
	}
}

// awaitMakingB waits until b is being made, and returns the deployment.
func (i *infra) awaitMakingB(app string) *modelv1.Deployment {
	i.t.Helper()
	return i.c.await(app, "makes b", func(d *modelv1.Deployment) bool {
		return strings.Contains(i.c.logs(d.GetId()), "sample_file.b: Creating")
	})
}

// TestOpenTofuKilledAndMoreToDo: after a kill, what others have changed meanwhile is no part of the
// approved plan, so nothing more is applied.
func TestOpenTofuKilledAndMoreToDo(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ code, why string }{
		"a resource": {"", "create sample_file.z (it was not planned)"},
		"an output":  {"output \"edited\" {\n  value = sample_file.z.content\n}\n", "update output edited (it was not planned)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInfra(t)
			g := newJournalGate(t, i.file("gate"))
			before := i.resource("z", "one", "  journal = \""+i.file("journal")+"\"\n  lifecycle {\n    ignore_changes = [content]\n  }") + test.code
			i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(before)})
			p, app := i.process(), appID("net")
			i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
			commit := i.repo.Push(t, "more", map[string]string{"net/main.tf": i.code(before + i.gated("one", "a", "b", "c"))})
			i.awaitMakingB(app)
			p.Kill()
			if test.code == "" {
				_ = os.Remove(i.file("z"))
			} else if err := os.WriteFile(i.file("z"), []byte("edited"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := p.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			g.open()
			d := i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
			mustHaveEndedOnce(t, d)
			mustContain(t, d.GetStatusReason(), "a new plan does more than what is left of plan", test.why)
			if got := i.inState(); !slices.Equal(got, []string{"z"}) || g.count() != 0 || i.journal()["c"] != 0 {
				t.Errorf("the state has %v, b was made %d times, c %d", got, g.count(), i.journal()["c"])
			}
		})
	}
}

// TestOpenTofuKilledInARollback: the rollback goes on after the restart, and repeats nothing.
func TestOpenTofuKilledInARollback(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.calls("none", 1, stay)
	g := newJournalGate(t, i.file("gate"))
	g.open()
	i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app("  input: {autoRollback: true}\n"), "net/main.tf": i.code(i.gated("one", "a", "b"))})
	p, app := i.process(), appID("net")
	i.c.awaitSyncState(app, modelv1.ApplicationSyncStatus_SYNCED)
	if n := g.count(); n != 1 { // what is not read is lost when the gate closes
		t.Errorf("b was written %d times, want once", n)
	}
	g.close()
	ungated := strings.ReplaceAll(i.gated("two", "a", "b"), i.file("gate"), i.file("journal"))
	bad := i.repo.Push(t, "poison", map[string]string{"net/main.tf": i.code(ungated + i.resource("c", "poison", "  depends_on = [sample_file.b]"))})
	i.c.await(app, "writes b again", func(d *modelv1.Deployment) bool {
		return d.GetStatus() == modelv1.DeploymentStatus_DEPLOYMENT_ROLLING_BACK && strings.Count(i.c.logs(d.GetId()), "sample_file.b: Modifying") == 2
	})
	restart(t, p)
	g.open()
	d := i.c.mustEnd(app, bad, modelv1.DeploymentStatus_DEPLOYMENT_FAILURE)
	mustHaveEndedOnce(t, d)
	if last := d.GetStages()[len(d.GetStages())-1]; last.GetName() != "ROLLBACK" || last.GetStatus() != modelv1.StageStatus_STAGE_SUCCESS {
		t.Errorf("the deployment ended because %q, with the stages %v", d.GetStatusReason(), d.GetStages())
	}
	if wrote, again := i.journal(), g.count(); wrote["a"] != 3 || wrote["b"] != 1 || again != 2 {
		t.Errorf("a was written %d times, b %d and %d; want 3, 1 and 2", wrote["a"], wrote["b"], again)
	}
	if n := i.called("apply"); n != 4 {
		t.Errorf("%d applies were started, want 4: two deployments, and a rollback in two parts", n)
	}
	i.holds("a", "one")
	i.holds("b", "one")
	if got := i.inState(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the state has %v", got)
	}
}

// TestOpenTofuKilledInARefresh: a comparison that was killed changes nothing, and leaves nothing.
func TestOpenTofuKilledInARefresh(t *testing.T) {
	t.Parallel()
	i := newInfra(t)
	i.calls("plan", 2, stay)
	commit := i.repo.Push(t, "add", map[string]string{"net/app.pipecd.yaml": i.app(""), "net/main.tf": i.code(i.gated("one", "a"))})
	p, app := i.process(), appID("net")
	i.c.mustEnd(app, commit, modelv1.DeploymentStatus_DEPLOYMENT_SUCCESS)
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_, _ = i.c.control.GetDriftReport(i.c.ctx, &controlv1.GetDriftReportRequest{ApplicationId: app, Refresh: true})
	}()
	i.awaitFile("held")
	restart(t, p)
	<-asked
	if err := os.WriteFile(i.file("a"), []byte("edited"), 0o600); err != nil {
		t.Fatal(err)
	}
	if objects := i.drift(app).GetObjects(); len(objects) != 1 {
		t.Errorf("the report is %v", objects)
	}
	if n := i.called("apply"); n != 1 {
		t.Errorf("%d applies were started, want 1", n)
	}
	mustHaveNoRun(t, p)
}

// mustHaveNoRun waits until no run has files or processes.
func mustHaveNoRun(t *testing.T, p *agenttest.Agent) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(p.KeyFile), "opentofu")
	var left []string
	var processes []int
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pollInterval) {
		left, _ = filepath.Glob(filepath.Join(dir, "*"))
		if processes = marked.Processes("PIPED_OPENTOFU_DIR", dir); len(left)+len(processes) == 0 {
			return
		}
	}
	t.Errorf("%v and the processes %v are left of runs", left, processes)
}
