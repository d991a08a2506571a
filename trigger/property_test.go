package trigger

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// TestNothingIsLost: whatever commits, commands, drift and crashes come in
// whatever order, every command is answered exactly once, no commit is lost, no
// application has two active deployments, and healing keeps its conditions. A
// crash comes at any reading of the clock, which is also inside of transactions,
// and takes everything the trigger has in memory.
func TestNothingIsLost(t *testing.T) {
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		must(t, f.Value.Set("40")) // the race detector makes a database slow
	}
	l := newEnv(t)
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++
		p := &play{l: l, rt: rt, ctx: context.Background(), dir: fmt.Sprint("r", round), commits: map[string]int{}, touched: map[string]int{}}
		p.begin()
		for _, s := range rapid.SliceOfN(rapid.SampledFrom(steps), 1, 40).Draw(rt, "steps") {
			p.step(s)
			p.checkActive()
		}
		for _, s := range []string{"enable a", "poll", "poll"} {
			p.step(s)
		}
		p.checkCommands()
		for _, app := range []string{"a", "b"} {
			p.checkCommits(app)
			p.checkHeals(app)
		}
		p.end()
	})
}

var steps = []string{
	"push a", "push b", "push both", "push elsewhere", "poll", "poll", "crash", "crash", "crash", "sync a", "sync b", "sync-to-earlier a",
	"drift a", "drift a", "synced a", "succeed a", "succeed a", "succeed b", "fail a", "minute", "minute", "disable a", "enable a",
}

// play is one round: two applications, a and b, in a directory of its own.
type play struct {
	l        *env
	rt       *rapid.T
	ctx      context.Context
	dir      string
	hashes   []string
	commits  map[string]int // by hash: the commit's number
	touched  map[string]int // by application: the last commit that touches it
	commands []string
}

func (p *play) must(err error) {
	if err != nil {
		p.rt.Fatal(err)
	}
}

func (p *play) id(app string) string { return appID(p.dir + "/" + app) }

// begin pushes the two applications: a heals itself and may begin a chain with b.
func (p *play) begin() {
	queue := rapid.SampledFrom([]string{"newest", "all", "replace"}).Draw(p.rt, "queue")
	a := []string{"  trigger: {queue: " + queue + ", onOutOfSync: {disabled: false, minWindow: 1m}}"}
	if rapid.Bool().Draw(p.rt, "chain") {
		a = append(a, "  postSync: {chain: {applications: [{name: "+p.dir+"-b}]}}")
	}
	b := fmt.Sprintf("  trigger: {onChain: {disabled: %t}}", rapid.Bool().Draw(p.rt, "refuse"))
	p.push(map[string]string{
		p.dir + "/a/app.pipecd.yaml": appFile(p.dir+"-a", a...),
		p.dir + "/b/app.pipecd.yaml": appFile(p.dir+"-b", b),
	}, "a", "b")
	p.poll()
}

func (p *play) push(files map[string]string, apps ...string) {
	n := len(p.hashes) + 1
	p.must(p.l.upstream.Write(files))
	hash, err := p.l.upstream.Commit(fmt.Sprintf("%s %d", p.dir, n))
	p.must(err)
	p.hashes, p.commits[hash] = append(p.hashes, hash), n
	for _, app := range apps {
		p.touched[app] = n
	}
}

// end takes the applications away, so that later rounds are not slowed down.
func (p *play) end() {
	p.must(p.l.upstream.Remove(p.dir))
	for _, app := range []string{"a", "b"} {
		p.must(p.l.store.DeleteApplication(p.ctx, p.id(app)))
	}
}

// step does what the words say.
func (p *play) step(s string) {
	what, app, _ := strings.Cut(s, " ")
	switch what {
	case "push":
		apps := map[string][]string{"a": {"a"}, "b": {"b"}, "both": {"a", "b"}}[app]
		content := fmt.Sprint(len(p.hashes))
		files := map[string]string{p.dir + "/x": content}
		for _, app := range apps {
			files[p.dir+"/"+app+"/d.yaml"] = content
		}
		p.push(files, apps...)
	case "poll":
		p.poll()
	case "crash":
		p.crash(rapid.IntRange(1, 40).Draw(p.rt, "at"))
	case "sync":
		p.ask(app, "")
	case "sync-to-earlier":
		p.ask(app, rapid.SampledFrom(p.hashes).Draw(p.rt, "commit"))
	case "drift":
		p.state(app, deploy.OutOfSync)
	case "synced":
		p.state(app, deploy.Synced)
	case "succeed":
		p.run(app, deploy.Success)
	case "fail":
		p.run(app, deploy.Failure)
	case "minute":
		p.l.pass(time.Minute)
	case "disable", "enable":
		p.must(p.l.store.SetDisabled(p.ctx, p.id(app), what == "disable"))
	}
}

// poll hands out what is open and does one pass.
func (p *play) poll() { p.pass(p.ctx) }

func (p *play) pass(ctx context.Context) {
	p.l.trigger.react(ctx, p.l.feed.Take())
	p.l.trigger.scan(ctx)
	p.l.trigger.watchers["apps"].poll(ctx)
}

// crash begins a pass, ends it at a reading of the clock, and starts another
// trigger with nothing but what is stored.
func (p *play) crash(at int) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	p.l.crashAt(at, cancel)
	p.pass(ctx)
	p.l.crashAt(0, nil)
	p.l.trigger = New(p.l.trigger.Config)
}

func (p *play) ask(app, commit string) {
	c, err := p.l.store.CreateCommand(p.ctx, deploy.Command{
		ID: p.l.newID(), Type: deploy.CommandSync, ApplicationID: p.id(app), Commander: "ann", Commit: commit,
	})
	p.must(err)
	p.commands = append(p.commands, c.ID)
}

func (p *play) state(app string, status deploy.SyncStatus) {
	_, err := p.l.store.SetSyncState(p.ctx, p.id(app), deploy.SyncState{Status: status})
	p.must(err)
}

// deployments returns those of an application, oldest first.
func (p *play) deployments(app string) []deploy.Deployment {
	ds, _, err := p.l.store.ListDeployments(p.ctx, store.DeploymentQuery{ApplicationIDs: []string{p.id(app)}})
	p.must(err)
	slices.SortFunc(ds, func(a, b deploy.Deployment) int { return a.Trigger.At.Compare(b.Trigger.At) })
	return ds
}

// run moves the oldest deployment of an application that is not at its end by
// one step: plan it, start it, or end it as given.
func (p *play) run(app string, end deploy.Status) {
	for _, d := range p.deployments(app) {
		if d.Status.Completed() {
			continue
		}
		_, err := p.l.store.UpdateDeployment(p.ctx, d.ID, func(d *deploy.Deployment) error {
			switch d.Status {
			case deploy.Pending:
				return d.Plan(deploy.Plan{}, p.l.clock())
			case deploy.Planned:
				return d.Start(p.l.clock())
			}
			return d.Complete(end, "as the play says", p.l.clock())
		})
		p.must(err)
		return
	}
}

func (p *play) checkActive() {
	for _, app := range []string{"a", "b"} {
		active := 0
		for _, d := range p.deployments(app) {
			if d.Status.Active() {
				active++
			}
		}
		if active > 1 {
			p.rt.Fatalf("%d active deployments of %s", active, app)
		}
	}
}

// checkCommands: each command is answered, and each deployment that a command
// asked for is the answer to exactly one.
func (p *play) checkCommands() {
	open, err := p.l.store.OpenCommands(p.ctx, deploy.CommandSync, deploy.CommandChainSync)
	p.must(err)
	if len(open) > 0 {
		p.rt.Fatalf("open commands: %+v", open)
	}
	made := map[string]deploy.TriggerKind{}
	for _, app := range []string{"a", "b"} {
		for _, d := range p.deployments(app) {
			if d.Trigger.Kind == deploy.OnCommand || d.Trigger.Kind == deploy.OnChain {
				made[d.ID] = d.Trigger.Kind
			}
			p.commands = append(p.commands, p.asked(d)...)
		}
	}
	for _, id := range p.commands {
		c, err := p.l.store.Command(p.ctx, id)
		p.must(err)
		d := c.Metadata[deploy.MetaTriggeredDeployment]
		switch {
		case c.Status == deploy.CommandFailed && c.Metadata[deploy.MetaReason] != "" && d == "":
		case c.Status == deploy.CommandSucceeded && made[d] != "":
			delete(made, d)
		default:
			p.rt.Fatalf("command %s: %s %v", id, c.Status, c.Metadata)
		}
	}
	if len(made) > 0 {
		p.rt.Fatalf("deployments that no command asked for: %v", made)
	}
}

// asked returns the commands of the chain that d began.
func (p *play) asked(d deploy.Deployment) (ids []string) {
	if d.ChainID == "" || d.ChainBlock > 0 {
		return nil
	}
	chain, err := p.l.store.Chain(p.ctx, d.ChainID)
	p.must(err)
	for _, b := range chain.Blocks[1:] {
		for _, n := range b.Nodes {
			ids = append(ids, n.CommandID)
		}
	}
	if len(ids) != 1 {
		p.rt.Fatalf("chain %s asks for %d deployments, want that of b", d.ChainID, len(ids))
	}
	return ids
}

// checkCommits: the last commit that touches an application was deployed, by
// itself or with a later one, and what was superseded was so by nothing older.
func (p *play) checkCommits(app string) {
	ds := p.deployments(app)
	deployed := false
	for i, d := range ds {
		n := p.commits[d.Trigger.Commit.Hash]
		superseded := strings.HasPrefix(d.StatusReason, "Superseded")
		deployed = deployed || n >= p.touched[app] && !superseded
		if superseded && !slices.ContainsFunc(ds[i+1:], func(o deploy.Deployment) bool {
			return strings.Contains(d.StatusReason, o.ID) && p.commits[o.Trigger.Commit.Hash] >= n
		}) {
			p.rt.Fatalf("%s: commit %d was superseded: %s", app, n, d.StatusReason)
		}
		if superseded && d.Trigger.Kind != deploy.OnCommit && d.Trigger.Kind != deploy.OnOutOfSync {
			p.rt.Fatalf("%s: a deployment %s was superseded", app, d.Trigger.Kind)
		}
	}
	if !deployed {
		p.rt.Fatalf("%s: commit %d was not deployed, the deployments are %+v", app, p.touched[app], ds)
	}
	got, err := p.l.store.Application(p.ctx, p.id(app))
	p.must(err)
	if got.EvaluatedCommit != p.l.upstream.Head() {
		p.rt.Fatalf("%s: evaluated commit %d of %d", app, p.commits[got.EvaluatedCommit], len(p.hashes))
	}
}

// checkHeals: a self-heal follows a deployment that ended minWindow before.
func (p *play) checkHeals(app string) {
	ds := p.deployments(app)
	for i, d := range ds {
		if d.Trigger.Kind != deploy.OnOutOfSync {
			continue
		}
		if i == 0 || ds[i-1].CompletedAt.IsZero() || d.Trigger.At.Before(ds[i-1].CompletedAt.Add(time.Minute)) {
			p.rt.Fatalf("%s: the self-heal %s at %s came too early: %+v", app, d.ID, d.Trigger.At, ds[:i])
		}
	}
}
