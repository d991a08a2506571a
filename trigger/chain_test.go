package trigger

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// TestMatchers states which applications a matcher selects.
func TestMatchers(t *testing.T) {
	app := deploy.Application{Name: "web", Kind: deploy.KindKubernetes, Labels: map[string]string{"team": "a", "tier": "front", "empty": ""}}
	labels := func(pairs ...string) config.ChainMatcher {
		m := config.ChainMatcher{Labels: map[string]string{}}
		for i := 0; i < len(pairs); i += 2 {
			m.Labels[pairs[i]] = pairs[i+1]
		}
		return m
	}
	cases := []struct {
		name    string
		matcher config.ChainMatcher
		want    bool
	}{
		{"name", config.ChainMatcher{Name: "web"}, true},
		{"another name", config.ChainMatcher{Name: "we"}, false},
		{"kind", config.ChainMatcher{Kind: "KUBERNETES"}, true},
		{"kind as a configuration file has it", config.ChainMatcher{Kind: "KubernetesApp"}, true},
		{"another kind", config.ChainMatcher{Kind: "TERRAFORM"}, false},
		{"name and another kind", config.ChainMatcher{Name: "web", Kind: "TERRAFORM"}, false},
		{"one label", labels("team", "a"), true},
		{"all labels", labels("team", "a", "tier", "front"), true},
		{"one label of two", labels("team", "a", "tier", "back"), false},
		{"a label that is not there", labels("stage", ""), false},
		{"a label without a value", labels("empty", ""), true},
		{"labels and another name", config.ChainMatcher{Name: "db", Labels: map[string]string{"team": "a"}}, false},
	}
	for _, c := range cases {
		if got := matches(c.matcher, app, kinds); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

const chained = "  trigger: {onChain: {disabled: false}, onCommit: {disabled: true}}"

// newChainEnv begins with an application whose deployments begin a chain of two
// blocks: db by its name, then those of team a by their label.
func newChainEnv(t *testing.T) *env {
	t.Helper()
	l := newEnv(t)
	l.push("begin", map[string]string{
		"db/app.pipecd.yaml":    appFile("db", chained),
		"one/app.pipecd.yaml":   appFile("one", "  labels: {team: a, tier: front}", chained),
		"two/app.pipecd.yaml":   appFile("two", "  labels: {team: a}", chained),
		"off/app.pipecd.yaml":   appFile("off", "  labels: {team: a}", chained),
		"gone/app.pipecd.yaml":  appFile("gone", "  labels: {team: a}", chained),
		"other/app.pipecd.yaml": appFile("other", "  labels: {team: b}", chained),
	})
	must(t, l.store.SetDisabled(t.Context(), appID("off"), true))
	must(t, l.store.DeleteApplication(t.Context(), appID("gone")))
	l.push("first", map[string]string{"web/app.pipecd.yaml": appFile("web", "  labels: {team: a}",
		"  postSync: {chain: {applications: [{name: db, kind: KUBERNETES}, {labels: {team: a}}]}}")})
	return l
}

// chain returns the chain of the newest deployment of an application, its nodes
// block by block as "name STATUS".
func (l *env) chain(dir string) (deploy.Chain, []string) {
	l.t.Helper()
	ds := l.all(dir)
	c, err := l.store.Chain(l.t.Context(), ds[len(ds)-1].ChainID)
	must(l.t, err)
	var blocks []string
	for _, b := range c.Blocks {
		var nodes []string
		for _, n := range b.Nodes {
			nodes = append(nodes, n.ApplicationName+" "+string(n.Status))
		}
		blocks = append(blocks, strings.Join(nodes, ", "))
	}
	return c, blocks
}

// TestChain: the deployment of an application asks for those of the blocks after
// it, with all the labels a matcher names, and they are answered once.
func TestChain(t *testing.T) {
	l := newChainEnv(t)
	chain, blocks := l.chain("web")
	want := []string{"web PENDING", "db PENDING", "one PENDING, two PENDING"}
	if diff := cmp.Diff(want, blocks); diff != "" {
		t.Fatalf("chain (-want +got):\n%s", diff)
	}
	if open, err := l.store.OpenCommands(t.Context(), deploy.CommandChainSync); err != nil || len(open) != 3 {
		t.Errorf("open commands: %v %v", open, err)
	}
	head := l.upstream.Push(t, "later", map[string]string{"x": "1"})
	l.poll()
	l.poll()
	l.wantNoneOpen()
	for dir, block := range map[string]int{"db": 1, "one": 2, "two": 2} {
		ds := l.all(dir)
		if len(ds) != 1 {
			t.Fatalf("deployments of %s: %v", dir, l.deployments(dir))
		}
		d := ds[0]
		want := deploy.Trigger{Kind: deploy.OnChain, Strategy: deploy.StrategyAuto, Commander: chain.ID, At: d.Trigger.At, Commit: d.Trigger.Commit,
			StrategySummary: "Block " + string(rune('0'+block)) + " of deployment chain " + chain.ID}
		if diff := cmp.Diff(want, d.Trigger); diff != "" || d.Trigger.Commit.Hash != head || d.ChainID != chain.ID || d.ChainBlock != block {
			t.Errorf("%s: commit %s, chain %s, block %d (-want +got):\n%s", dir, d.Trigger.Commit.Hash, d.ChainID, d.ChainBlock, diff)
		}
	}
	for _, dir := range []string{"off", "gone", "other"} {
		if got := l.deployments(dir); got != nil {
			t.Errorf("deployments of %s: %v", dir, got)
		}
	}
	l.finish("web", deploy.Success)
	l.finish("db", deploy.Success)
	chain, _ = l.chain("web")
	if turn, reason := chain.Turn(2); turn != deploy.ChainGo {
		t.Errorf("block 2 is to wait: %s", reason)
	}
}

// TestChainsBegin states which deployments begin a chain.
func TestChainsBegin(t *testing.T) {
	begins := func(l *env) bool {
		ds := l.all("web")
		d := ds[len(ds)-1]
		return d.ChainID != "" && d.ChainBlock == 0
	}
	t.Run("one that a commit asks for", func(t *testing.T) {
		if l := newChainEnv(t); !begins(l) {
			t.Error("no chain")
		}
	})
	t.Run("one that a person asks for", func(t *testing.T) {
		l := newChainEnv(t)
		l.askSync("web")
		l.poll()
		if ds := l.all("web"); len(ds) != 2 || !begins(l) || ds[0].ChainID == ds[1].ChainID {
			t.Errorf("deployments %v", l.deployments("web"))
		}
	})
	t.Run("one that heals", func(t *testing.T) {
		l := newChainEnv(t)
		l.push("heal", map[string]string{"web/app.pipecd.yaml": appFile("web", healing, "  postSync: {chain: {applications: [{name: db}]}}")})
		l.finish("web", deploy.Success)
		l.drift("web")
		if l.heals("web") != 1 || !begins(l) {
			t.Errorf("deployments %v", l.deployments("web"))
		}
	})
	t.Run("not one that a chain asks for", func(t *testing.T) {
		l := newEnv(t)
		next := func(name string) string { return "  postSync: {chain: {applications: [{name: " + name + "}]}}" }
		l.push("begin", map[string]string{"a/app.pipecd.yaml": appFile("a", next("b")), "b/app.pipecd.yaml": appFile("b", chained, next("a"))})
		l.poll()
		l.poll()
		if got := l.deployments("a"); len(got) != 1 {
			t.Errorf("the chain came back to where it began: %v", got)
		}
		_, blocks := l.chain("b")
		if diff := cmp.Diff([]string{"a PENDING", "b PENDING"}, blocks); diff != "" {
			t.Errorf("chain (-want +got):\n%s", diff)
		}
	})
}

// TestRefusedChainSync: an application that cannot be deployed fails its block,
// with the reason.
func TestRefusedChainSync(t *testing.T) {
	cases := map[string]struct {
		do   func(t *testing.T, l *env)
		want string
	}{
		"onChain is disabled, the default": {func(t *testing.T, l *env) {
			l.upstream.Push(t, "default", map[string]string{"db/app.pipecd.yaml": appFile("db", "  trigger: {onCommit: {disabled: true}}")})
		}, "db/app.pipecd.yaml forbids syncs by a deployment chain (spec.trigger.onChain.disabled)"},
		"disabled": {func(t *testing.T, l *env) { must(t, l.store.SetDisabled(t.Context(), appID("db"), true)) }, "application db is disabled: enable it first"},
		"deleted":  {func(t *testing.T, l *env) { must(t, l.store.DeleteApplication(t.Context(), appID("db"))) }, "does not exist"},
		"invalid configuration": {func(t *testing.T, l *env) {
			l.upstream.Push(t, "break", map[string]string{"db/app.pipecd.yaml": appFile("db", "  timeout: nonsense")})
		}, "db/app.pipecd.yaml:5"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := newChainEnv(t)
			c.do(t, l)
			l.poll()
			l.finish("web", deploy.Success)
			chain, blocks := l.chain("web")
			if want := "db FAILURE"; !slices.Contains(blocks, want) {
				t.Fatalf("chain: %v", blocks)
			}
			if reason := chain.Blocks[1].Nodes[0].Reason; !strings.Contains(reason, c.want) {
				t.Errorf("the block failed because %q, want %q", reason, c.want)
			}
			if turn, reason := chain.Turn(2); turn != deploy.ChainCancel || reason != "Block 1 of the deployment chain did not succeed" {
				t.Errorf("block 2: %d because %q", turn, reason)
			}
			l.wantNoneOpen()
		})
	}
}

// TestChainOutlastsAnOutage: a repository that cannot be read for a while fails
// no chain.
func TestChainOutlastsAnOutage(t *testing.T) {
	l := newChainEnv(t)
	right := l.config
	l.config.Branch = "elsewhere"
	l.restart()
	l.poll()
	l.poll()
	if _, blocks := l.chain("web"); blocks[1] != "db PENDING" {
		t.Errorf("chain: %v", blocks)
	}
	l.config = right
	l.restart()
	l.poll()
	l.wantNoneOpen()
	if got := len(l.all("db")); got != 1 {
		t.Errorf("%d deployments of db", got)
	}
}

// TestCommitsAndChains: a newer commit supersedes the deployment that begins a
// chain, which cancels the chain, and none that a chain asked for.
func TestCommitsAndChains(t *testing.T) {
	l := newChainEnv(t)
	l.poll()
	first, _ := l.chain("web")
	l.push("on", map[string]string{
		"web/d.yaml": "1", "db/app.pipecd.yaml": appFile("db", "  trigger: {onChain: {disabled: false}, queue: replace}"),
	})
	again, err := l.store.Chain(t.Context(), first.ID)
	must(t, err)
	if turn, reason := again.Turn(1); turn != deploy.ChainCancel || reason != "Block 0 of the deployment chain did not succeed" {
		t.Errorf("the old chain: %d because %q", turn, reason)
	}
	if reason := again.Blocks[0].Nodes[0].Reason; !strings.Contains(reason, "Superseded") {
		t.Errorf("block 0 of the old chain failed because %q", reason)
	}
	if diff := cmp.Diff([]string{"first PENDING", "on PENDING"}, l.deployments("db")); diff != "" {
		t.Errorf("deployments of db (-want +got):\n%s", diff)
	}
	if newer, blocks := l.chain("web"); newer.ID == first.ID || blocks[0] != "web PENDING" {
		t.Errorf("the new chain: %v", blocks)
	}
}
