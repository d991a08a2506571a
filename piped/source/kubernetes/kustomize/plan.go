package kustomize

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// maxDepth is the maximum length of a chain of remote bases.
const maxDepth = 5

// IsKustomization reports whether a name is one of Kustomize's names of kustomization files.
func IsKustomization(name string) bool { return isKustomization(name) }

func isKustomization(name string) bool {
	for _, known := range konfig.RecognizedKustomizationFileNames() {
		if name == known {
			return true
		}
	}
	return false
}

// plan is the first step of a build. It reads and rewrites the kustomization of the request and
// all that it refers to.
type plan struct {
	ctx     context.Context
	remotes Remotes
	limits  Limits
	left    Limits

	mounts    []*mount // the application's repository first
	remote    bool     // sets Result.Remote
	rewritten map[string][]byte
	made      map[string]made     // fetched files and rendered charts
	known     map[string]*planned // kustomizations by directory, also those being read
	managed   bool                // the request's kustomization requests the managed-by label
	schema    bool                // a kustomization sets the OpenAPI schema
	warnings  []string            // about kustomizations in the application's repository
	request   Request
}

// planned is a kustomization that the plan has read, or is reading.
type planned struct {
	file string
	// namespace is the namespace of the referring kustomizations, the default for charts;
	// inherited reports that a chart uses it.
	namespace string
	inherited bool
}

func newPlan(ctx context.Context, remotes Remotes, limits Limits, req Request) *plan {
	return &plan{
		ctx: ctx, remotes: remotes, limits: limits, left: limits, request: req,
		mounts: []*mount{{at: "/", tree: req.Tree}}, rewritten: map[string][]byte{}, made: map[string]made{}, known: map[string]*planned{},
	}
}

// files returns the file system for the second step.
func (p *plan) files() *files {
	return &files{
		FileSystem: filesys.MakeFsInMemory(), ctx: p.ctx, mounts: p.mounts, kustomizations: p.rewritten, made: p.made, managed: p.managed, schema: p.schema,
		left: p.limits, limits: p.limits,
	}
}

// directory plans the kustomization in a directory of a mount, and all that it refers to, once.
// namespace is the namespace of the referring kustomization. It returns the path of the
// kustomization file in the mount.
func (p *plan) directory(m *mount, dir, namespace string) (file string, err error) {
	at := m.path(dir)
	if was := p.known[at]; was != nil { // Kustomize reports a cycle
		if was.inherited && was.namespace != namespace {
			return "", deploy.Errorf(deploy.Invalid, "%s: it has a chart without a namespace and is used in namespace %q and in %q; set namespace of the chart", m.named(was.file), was.namespace, namespace)
		}
		return was.file, nil
	}
	k, file, err := p.read(m, dir)
	if err != nil {
		return "", err
	}
	p.known[at] = &planned{file: file, namespace: namespace}
	p.schema = p.schema || len(k.OpenAPI) > 0
	if m == p.mounts[0] {
		for _, what := range k.deprecated {
			p.warnings = append(p.warnings, m.named(file)+": "+what)
		}
	}
	if p.managed = p.managed || len(p.known) == 1 && slices.Contains(k.BuildMetadata, types.ManagedByLabelOption); p.managed {
		k.BuildMetadata = slices.DeleteFunc(k.BuildMetadata, func(option string) bool { return option == types.ManagedByLabelOption })
	}
	r := &rewriter{plan: p, mount: m, dir: dir, file: file, namespace: cmp.Or(k.Namespace, namespace), own: k.Namespace != ""}
	data, err := r.rewrite(k)
	if err != nil {
		return "", err
	}
	p.rewritten[m.path(file)] = data
	return file, nil
}

// read parses the kustomization in a directory and returns it with the path of its file.
func (p *plan) read(m *mount, dir string) (*kustomization, string, error) {
	if p.ctx.Err() != nil {
		return nil, "", context.Cause(p.ctx)
	}
	if p.left.Kustomizations--; p.left.Kustomizations < 0 {
		return nil, "", deploy.Errorf(deploy.Invalid, "%s: the build consists of more than %d kustomizations; split the application, or remove a symbolic link that leads to itself",
			m.named(dir), p.limits.Kustomizations)
	}
	file, err := find(m, dir)
	if err != nil {
		return nil, "", err
	}
	data, err := readFile(m, file, p.left.Bytes)
	if err != nil {
		return nil, "", fmt.Errorf("read the commit: %w", err)
	}
	p.left.Bytes -= int64(len(data))
	k, err := parse(data)
	if err != nil {
		return nil, "", deploy.Errorf(deploy.Invalid, "%s: invalid Kustomization: %s", m.named(file), firstLine(err.Error()))
	}
	return k, file, nil
}

// find returns the path of the only kustomization file in a directory.
func find(m *mount, dir string) (string, error) {
	entries, err := fs.ReadDir(m.tree, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", deploy.Errorf(deploy.Invalid, "%s: there is no such directory in the commit", m.named(dir))
	}
	if err != nil {
		return "", fmt.Errorf("list %s: %w", m.named(dir), err)
	}
	file := ""
	for _, e := range entries {
		if !isKustomization(e.Name()) {
			continue
		}
		if file != "" {
			return "", deploy.Errorf(deploy.Invalid, "%s: is next to %s; expected one kustomization in a directory", m.named(path.Join(dir, e.Name())), path.Base(file))
		}
		file = path.Join(dir, e.Name())
	}
	if file == "" {
		return "", deploy.Errorf(deploy.Invalid, "%s: the directory has no kustomization.yaml, which a base or component needs", m.named(dir))
	}
	return file, nil
}

// fetch mounts the tree of a remote base that a kustomization of m refers to.
func (p *plan) fetch(m *mount, ref remoteRef) (*mount, error) {
	if p.request.Offline {
		return nil, deploy.Errorf(deploy.Invalid, "remote bases are not fetched for the pull request of a fork; commit the base")
	}
	p.remote = true
	if p.remotes == nil {
		return nil, deploy.Errorf(deploy.Invalid, "remote bases are not available here; commit the base")
	}
	if m.depth == maxDepth {
		return nil, deploy.Errorf(deploy.Invalid, "remote bases refer to remote bases more than %d deep", maxDepth)
	}
	resume := background.Wait(p.ctx, "Git repository "+redacted(ref.remote))
	tree, commit, err := p.remotes.At(p.ctx, ref.remote, ref.ref)
	resume()
	if err != nil {
		return nil, err
	}
	id := ref.remote + " " + commit
	for _, known := range p.mounts {
		if known.id == id {
			return known, nil
		}
	}
	next := &mount{
		from: ref, id: id, at: fmt.Sprintf("%s%d", remotesDir, len(p.mounts)), tree: tree, depth: m.depth + 1,
		show: fmt.Sprintf("%s@%s:", redacted(ref.remote), deploy.ShortHash(commit)),
	}
	p.mounts = append(p.mounts, next)
	return next, nil
}
