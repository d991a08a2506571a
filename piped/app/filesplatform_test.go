package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/c785c783/piped/executor/analysis"
	"github.com/c785c783/piped/piped/cluster/apply"
	clusterlive "github.com/c785c783/piped/piped/cluster/live"
	"github.com/c785c783/piped/piped/config"
	pipeline "github.com/c785c783/piped/piped/config/platform"
	"github.com/c785c783/piped/piped/config/strict"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/drift"
	"github.com/c785c783/piped/piped/manifest"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/source/render"
	"github.com/c785c783/piped/planner"
	"github.com/c785c783/piped/scheduler"
)

// This file is a second platform, as its rooms would be: it deploys the files of an
// application's directory to a directory of this machine.

const (
	filesKind = "FILES"
	stageCopy = "FILES_COPY"
	// poison is a text that no file can be deployed with.
	poison = "poison"
	// ownerFile holds the ID of the application that a directory belongs to.
	ownerFile = ".application"
)

// filesSpec is what only a FilesApp says.
type filesSpec struct {
	// Header is written before the text of each file.
	Header string `yaml:"header"`
}

func (s *filesSpec) Complete(d *strict.Document, stages []pipeline.Stage) {
	if strings.Contains(s.Header, "\n") {
		d.Problemf("header", "expected one line")
	}
}

func (s *filesSpec) RollbackSwitch() (string, *bool) { return "", nil }

// filesProvider is the config of a platform provider of type FILES.
type filesProvider struct {
	Path string `yaml:"path"`
}

func (p *filesProvider) Complete(d *strict.Document, field string, resolve func(field, path string) string) {
	p.Path = resolve(field+".path", p.Path)
}

func (p *filesProvider) Files() []string { return nil }

// copyOptions are the options of FILES_COPY.
type copyOptions struct{}

// filesEntry registers the platform with the agent; nothing else does.
func filesEntry() entry {
	return entry{open: openFiles, kind: config.Kind{
		Name: filesKind, File: "FilesApp", Plugin: "files",
		Spec:     func() config.Spec { return &filesSpec{} },
		Stages:   func() map[string]any { return map[string]any{stageCopy: &copyOptions{}} },
		Applies:  []string{stageCopy},
		Provider: func() config.ProviderConfig { return &filesProvider{} },
	}}
}

// filesPlatform deploys to directories, one for each provider.
type filesPlatform struct {
	platformEnv

	mu    sync.Mutex
	roots map[string]string // by provider
}

func openFiles(env platformEnv) platform {
	p := &filesPlatform{platformEnv: env, roots: map[string]string{}}
	env.app.parts.add("files", p.run)
	return p
}

// run requests comparisons when files change.
func (p *filesPlatform) run(ctx context.Context) error {
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		}
		sum := sha256.New()
		for _, provider := range p.Providers() {
			_ = filepath.WalkDir(p.root(provider), func(name string, entry fs.DirEntry, err error) error {
				data, _ := os.ReadFile(name)
				fmt.Fprintf(sum, "%s %q\n", name, data)
				return nil
			})
		}
		if now := hex.EncodeToString(sum.Sum(nil)); now != last {
			last = now
			p.wake("")
		}
	}
}

func (p *filesPlatform) Use(providers []config.PlatformProvider) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.roots)
	for _, provider := range providers {
		p.roots[provider.Name] = provider.Config.(*filesProvider).Path
	}
}

func (p *filesPlatform) Providers() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range p.roots {
		names = append(names, name)
	}
	return names
}

func (p *filesPlatform) root(provider string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.roots[provider]
}

// Source: each file of the directory is an object.

func (p *filesPlatform) Renderer() render.Renderer { return p }

func (p *filesPlatform) Fingerprint() string { return "" }

func (p *filesPlatform) Context(context.Context, render.Request) string { return "" }

func (p *filesPlatform) Render(_ context.Context, req render.Request) (out render.Result, err error) {
	entries, err := fs.ReadDir(req.Files, path.Clean(req.At.Dir))
	if err != nil {
		return out, err
	}
	for _, e := range entries {
		if e.IsDir() || config.IsApplicationConfig(e.Name()) {
			continue
		}
		data, err := render.ReadFile(req.Files, path.Join(req.At.Dir, e.Name()), 1<<20)
		if err != nil {
			return out, err
		}
		out.Bytes += int64(len(data))
		out.Objects = append(out.Objects, manifest.Object{Origin: manifest.Origin{File: e.Name()}, Unstructured: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "files.test/v1", "kind": "File", "metadata": map[string]any{"namespace": path.Base(req.At.Dir), "name": e.Name()},
			"text": req.Config.Platform.(*filesSpec).Header + string(data),
		}}})
	}
	return out, nil
}

// Planner: every deployment copies the files.

func (p *filesPlatform) Decider() planner.Decider { return p }

func (p *filesPlatform) Decide(_ context.Context, app deploy.Application, _ deploy.Deployment, target *source.Source, _ func(context.Context) (*source.Source, error)) (deploy.Plan, error) {
	stages := []deploy.Stage{{ID: "copy", Name: stageCopy, Visible: true}}
	if app.LastSuccessful != nil {
		stages = append(stages, deploy.Stage{ID: deploy.RollbackID, Name: deploy.StageRollback, Rollback: true, Index: 1})
	}
	return deploy.Plan{
		Strategy: deploy.StrategyQuickSync, Summary: fmt.Sprintf("Copy %d files", len(target.Objects)), Stages: stages,
		Timeout: target.Config.Timeout, RollbackTimeout: target.Config.Rollback.Timeout, NoAutoRollback: !target.Config.AutoRollback(),
	}, nil
}

func (p *filesPlatform) Changes(_ context.Context, _ deploy.Deployment, running, target *source.Source) (out deploy.Effect) {
	var before []manifest.Object
	if running != nil {
		before = running.Objects
	}
	for _, diff := range manifest.Compare(before, target.Objects) {
		out.Changes = append(out.Changes, deploy.PlannedChange{Object: diff.Ref(), Action: deploy.PlannedUpdate, Diff: diff.Hunks()})
	}
	return out
}

// Executor: the stages write the files.

func (p *filesPlatform) Stages(*analysis.Executor) map[string]scheduler.Executor {
	return map[string]scheduler.Executor{stageCopy: p, deploy.StageRollback: p}
}

func (p *filesPlatform) Execute(ctx context.Context, run deploy.StageRun) deploy.StageResult {
	if err := p.copyFiles(ctx, run); err != nil {
		return deploy.StageResult{Status: deploy.StageFailure, Reason: err.Error()}
	}
	return deploy.StageResult{Status: deploy.StageSuccess}
}

func (p *filesPlatform) copyFiles(ctx context.Context, run deploy.StageRun) error {
	d := run.Deployment
	git, commit := d.Git, d.Trigger.Commit.Hash
	if run.Stage.Rollback {
		git, commit = d.RunningGit(), d.RunningCommit
	}
	src, err := p.sources.loader.Load(ctx, git, commit)
	if err != nil {
		return err
	}
	dir := filepath.Join(p.root(d.Provider), path.Base(git.Dir))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(d.ApplicationID), 0o600); err != nil {
		return err
	}
	var refs []deploy.ObjectRef
	for _, o := range src.Objects {
		text, _, _ := unstructured.NestedString(o.Object, "text")
		if err := os.WriteFile(filepath.Join(dir, o.GetName()), []byte(text), 0o600); err != nil {
			return err
		}
		if strings.Contains(text, poison) {
			return errors.New(o.GetName() + " is poisoned")
		}
		refs = append(refs, manifest.Ref(o.Unstructured))
		run.Log.Infof("Wrote %s", o.GetName())
	}
	if err := p.prune(ctx, d, dir, refs); err != nil {
		return err
	}
	return p.record(ctx, d, src, refs)
}

// prune removes the files that are not wanted.
func (p *filesPlatform) prune(ctx context.Context, d deploy.Deployment, dir string, wanted []deploy.ObjectRef) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ref := fileRef(filepath.Base(dir), e.Name()); e.Name() != ownerFile && !slices.Contains(wanted, ref) {
			if err := errors.Join(os.Remove(filepath.Join(dir, e.Name())), p.store.DeleteInventory(ctx, d.ApplicationID, d.Provider, ref)); err != nil {
				return err
			}
		}
	}
	return nil
}

// record stores what was applied.
func (p *filesPlatform) record(ctx context.Context, d deploy.Deployment, src *source.Source, refs []deploy.ObjectRef) error {
	var objects []*unstructured.Unstructured
	for _, o := range src.Objects {
		objects = append(objects, o.Unstructured)
	}
	data, err := json.Marshal(objects)
	if err != nil {
		return err
	}
	set := deploy.AppliedSet{ApplicationID: d.ApplicationID, DeploymentID: d.ID, Commit: src.Commit, Objects: data}
	if err := p.store.SaveAppliedSet(ctx, set); err != nil {
		return err
	}
	var items []deploy.InventoryItem
	for _, ref := range refs {
		m, _ := shelf{p, d.Provider}.Get(ref)
		items = append(items, deploy.InventoryItem{
			ApplicationID: d.ApplicationID, Cluster: d.Provider, Object: ref, Variant: "primary", UID: m.UID, OwnedHash: m.OwnedHash, Mark: m.Mark,
			DeploymentID: d.ID, UpdatedAt: p.options.Now(),
		})
	}
	return p.store.PutInventory(ctx, items...)
}

func fileRef(dir, name string) deploy.ObjectRef {
	return deploy.ObjectRef{Group: "files.test", Version: "v1", Kind: "File", Namespace: dir, Name: name}
}

// Trigger: nothing runs that is not in the store.

func (p *filesPlatform) RunningCommits(context.Context, string, deploy.GitPath, string) ([]string, error) {
	return nil, nil
}

func (p *filesPlatform) Foreign(context.Context, string, deploy.Application, string) ([]deploy.AdoptedObject, error) {
	return nil, nil
}

// Drift: files are compared by their text.

func (p *filesPlatform) Members(provider string) (drift.Members, time.Time, error) {
	return shelf{p, provider}, time.Time{}, nil
}

func (p *filesPlatform) Hold(provider string, _ deploy.Application) (drift.Comparer, func(), error) {
	return shelf{p, provider}, func() {}, nil
}

func (p *filesPlatform) Expected(set deploy.AppliedSet, _ deploy.Deployment, _ []deploy.InventoryItem) (out drift.Expected, err error) {
	out.Commit = set.Commit
	var objects []*unstructured.Unstructured
	err = json.Unmarshal(set.Objects, &objects)
	for _, o := range objects {
		out.Objects = append(out.Objects, manifest.Object{Unstructured: o})
	}
	return out, err
}

// shelf are the files of one provider.
type shelf struct {
	*filesPlatform
	provider string
}

func (f shelf) Follow([]deploy.ObjectRef) {}

func (f shelf) Ready(deploy.ObjectRef) (time.Time, error) { return time.Time{}, nil }

func (f shelf) Get(ref deploy.ObjectRef) (clusterlive.Member, bool) {
	dir := filepath.Join(f.root(f.provider), ref.Namespace)
	data, err := os.ReadFile(filepath.Join(dir, ref.Name))
	if err != nil {
		return clusterlive.Member{}, false
	}
	owner, _ := os.ReadFile(filepath.Join(dir, ownerFile))
	sum := sha256.Sum256(data)
	mark := hex.EncodeToString(sum[:])
	return clusterlive.Member{
		Object: ref, UID: ref.Key(), OwnedHash: "file", Mark: mark, ResourceVersion: mark, Application: string(owner), Piped: f.cfg.PipedID,
	}, true
}

func (f shelf) Of(applicationID string) (out []clusterlive.Member) {
	names, _ := filepath.Glob(filepath.Join(f.root(f.provider), "*", "*"))
	for _, name := range names {
		m, _ := f.Get(fileRef(filepath.Base(filepath.Dir(name)), filepath.Base(name)))
		if m.Application == applicationID && m.Object.Name != ownerFile {
			out = append(out, m)
		}
	}
	return out
}

func (f shelf) Compare(_ context.Context, req apply.CompareRequest) (out []apply.Compared, err error) {
	for _, o := range req.Objects {
		ref := manifest.Ref(o.Unstructured)
		if !slices.Contains(req.Only, ref) {
			continue
		}
		m, there := f.Get(ref)
		c := apply.Compared{Object: ref, UID: m.UID, OwnedHash: m.OwnedHash, Mark: m.Mark, ResourceVersion: m.ResourceVersion, Missing: !there}
		text, _, _ := unstructured.NestedString(o.Object, "text")
		live, _ := os.ReadFile(filepath.Join(f.root(f.provider), ref.Namespace, ref.Name))
		switch {
		case !there:
			c.Drift = &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftMissing}
		case string(live) != text:
			c.Drift = &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftChanged, Fields: []deploy.FieldDrift{{Path: "text", Git: text, Live: string(live)}}}
		default:
			c.Unchanged = true
		}
		out = append(out, c)
	}
	return out, nil
}

func (f shelf) DescribeExtra(_ context.Context, req apply.CompareRequest) (out []apply.Compared, err error) {
	for _, ref := range req.Only {
		m, there := f.Get(ref)
		c := apply.Compared{Object: ref, UID: m.UID, ResourceVersion: m.ResourceVersion, Missing: !there}
		if there {
			c.Drift = &deploy.ObjectDrift{Object: ref, Kind: deploy.DriftExtra}
		}
		out = append(out, c)
	}
	return out, nil
}

// LiveState reads which files are there.
func (p *filesPlatform) LiveState(ctx context.Context, app deploy.Application, _ deploy.LiveChildren) (deploy.LiveState, error) {
	state := deploy.LiveState{ApplicationID: app.ID, ReadAt: p.options.Now(), Health: deploy.Healthy}
	items, err := p.store.Inventory(ctx, app.ID)
	for _, item := range items {
		o := deploy.LiveObject{Cluster: item.Cluster, Object: item.Object, Variant: item.Variant, Declared: true, Health: deploy.Healthy}
		if _, there := (shelf{p, item.Cluster}).Get(item.Object); !there {
			o.Health, state.Health = deploy.HealthMissing, deploy.HealthMissing
		}
		state.Objects = append(state.Objects, o)
	}
	return state, err
}
