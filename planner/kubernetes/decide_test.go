package kubernetes

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	sourcekube "github.com/c785c783/piped/piped/source/kubernetes"
	"github.com/c785c783/piped/piped/source/render"
)

var update = flag.Bool("update", false, "rewrite what the cases want")

// TestDecisions decides the cases of testdata/decide, whose names state them and
// begin with the number of the rule in PipeCD's order. A case holds
//
//	new/…, old/…  the application's directory at the commit to deploy, and at the
//	              last success; without old there is none, and files directly in
//	              the root are in both
//	trigger       fields of the trigger, as YAML
//	gone          why the commit of the last success cannot be opened
//	want          the decision, its reason, and whether the running state was loaded
func TestDecisions(t *testing.T) {
	eachCase(t, "decide", func(t *testing.T, c decisionCase) string { return c.decide(t) })
}

// eachCase compares the answers for the cases of a testdata directory with their want
// files, or rewrites these.
func eachCase(t *testing.T, dir string, answer func(t *testing.T, c decisionCase) string) {
	files, err := filepath.Glob("testdata/" + dir + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := readCase(t, archive)
			got := answer(t, c)
			if *update {
				rewrite(t, file, archive, got)
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s-want +got:\n%s", archive.Comment, diff)
			}
		})
	}
}

// TestOrderOfManifests: a decision does not depend on the order of the manifests.
func TestOrderOfManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/decide/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		archive, err := txtar.ParseFile(rapid.SampledFrom(files).Draw(rt, "case"))
		if err != nil {
			rt.Fatal(err)
		}
		c := readCase(t, archive)
		plan, _, err := c.plan(t, func(objects []manifest.Object) {
			copy(objects, rapid.Permutation(slices.Clone(objects)).Draw(rt, "order"))
		})
		if lines := strings.Split(c.want, "\n"); err == nil && (string(plan.Strategy) != lines[0] || plan.Summary != lines[1]) {
			rt.Errorf("%s because %q, want\n%s", plan.Strategy, plan.Summary, c.want)
		}
	})
}

// TestRunningThatCannotBeReadNow: a temporary error of the running state delays the
// decision.
func TestRunningThatCannotBeReadNow(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/decide/10-image-updated.txtar")
	if err != nil {
		t.Fatal(err)
	}
	c := readCase(t, archive)
	c.gone, c.goneKind = "the disk is not there", deploy.Unavailable
	if plan, _, err := c.plan(t, func([]manifest.Object) {}); !deploy.IsKind(err, deploy.Unavailable) {
		t.Errorf("%s because %q, %v", plan.Strategy, plan.Summary, err)
	}
}

// decisionCase is one file of testdata/decide.
type decisionCase struct {
	commits  map[string]fstest.MapFS // by hash: old and new
	trigger  deploy.Trigger
	gone     string
	goneKind deploy.Kind
	want     string
}

func readCase(t *testing.T, archive *txtar.Archive) decisionCase {
	t.Helper()
	c := decisionCase{goneKind: deploy.NotFound, commits: map[string]fstest.MapFS{"new": {}}, trigger: deploy.Trigger{Kind: deploy.OnCommit, Strategy: deploy.StrategyAuto}}
	for _, f := range archive.Files {
		if strings.HasPrefix(f.Name, "old/") || f.Name == "gone" {
			c.commits["old"] = fstest.MapFS{}
		}
	}
	for _, f := range archive.Files {
		commit, name, inOne := strings.Cut(f.Name, "/")
		switch {
		case f.Name == "trigger":
			c.trigger = readTrigger(t, f.Data)
		case f.Name == "gone":
			c.gone = strings.TrimSpace(string(f.Data))
		case f.Name == "want":
			c.want = string(f.Data)
		case inOne:
			c.commits[commit]["web/"+name] = &fstest.MapFile{Data: f.Data}
		default:
			for _, files := range c.commits {
				files["web/"+f.Name] = &fstest.MapFile{Data: f.Data}
			}
		}
	}
	return c
}

func readTrigger(t *testing.T, data []byte) deploy.Trigger {
	t.Helper()
	var in struct {
		Strategy  deploy.Strategy `yaml:"strategy"`
		Summary   string          `yaml:"summary"`
		Commander string          `yaml:"commander"`
		Message   string          `yaml:"message"` // the commit's
	}
	in.Strategy = deploy.StrategyAuto
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&in); err != nil {
		t.Fatal(err)
	}
	return deploy.Trigger{Strategy: in.Strategy, StrategySummary: in.Summary, Commander: in.Commander, Commit: deploy.Commit{Message: in.Message}}
}

// decide returns the decision on the case.
func (c decisionCase) decide(t *testing.T) string {
	t.Helper()
	plan, compared, err := c.plan(t, func([]manifest.Object) {})
	loaded := "the running state is not loaded"
	if compared {
		loaded = "the running state is loaded"
	}
	if err != nil {
		return fmt.Sprintf("%s error\n%s\n%s\n", deploy.KindOf(err), err, loaded)
	}
	return fmt.Sprintf("%s\n%s\n%s\n", plan.Strategy, plan.Summary, loaded)
}

// plan plans the case's deployment with the objects of both commits reordered by
// arrange. compared reports whether the running state was loaded.
func (c decisionCase) plan(t *testing.T, arrange func([]manifest.Object)) (plan deploy.Plan, compared bool, err error) {
	t.Helper()
	loader := &source.Loader{Kinds: config.Kinds{config.Kubernetes()}, Renderers: map[string]render.Renderer{deploy.KindKubernetes: sourcekube.New(sourcekube.Config{})}, Tree: func(_, commit string) (fs.FS, error) {
		if commit == "old" && c.gone != "" {
			return nil, deploy.Errorf(c.goneKind, "%s", c.gone)
		}
		return c.commits[commit], nil
	}}
	git := deploy.GitPath{RepoID: "repo", Dir: "web", ConfigFile: "app.pipecd.yaml"}
	target, err := loader.Load(t.Context(), git, "new")
	if err != nil {
		t.Fatal(err)
	}
	arrange(target.Objects)
	var app deploy.Application
	if c.commits["old"] != nil {
		app.LastSuccessful = &deploy.DeploymentRef{Trigger: deploy.Trigger{Commit: deploy.Commit{Hash: "old"}}}
	}
	plan, err = Decider{}.Decide(t.Context(), app, deploy.Deployment{Git: git, Trigger: c.trigger}, target,
		func(ctx context.Context) (*source.Source, error) {
			compared = true
			running, err := loader.Load(ctx, git, "old")
			if err == nil {
				arrange(running.Objects)
			}
			return running, err
		})
	return plan, compared, err
}

// rewrite updates the want file of a case.
func rewrite(t *testing.T, file string, archive *txtar.Archive, want string) {
	t.Helper()
	kept := archive.Files[:0]
	for _, f := range archive.Files {
		if f.Name != "want" {
			kept = append(kept, f)
		}
	}
	archive.Files = append(kept, txtar.File{Name: "want", Data: []byte(want)})
	if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
		t.Fatal(err)
	}
}
