package pullpreview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strconv"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/git"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/source"
	"github.com/c785c783/piped/piped/store"
)

// plan is what the merge of a pull request would preview, whatever its labels.
type plan struct {
	head, base string // the merged commits
	commit     deploy.Commit
	apps       []wanted
	problem    error // why the pull request cannot be merged
}

// wanted is a preview application of a plan.
type wanted struct {
	base     string // name of the application of the branch
	required bool   // only because others require it
	app      deploy.Application
	config   *config.Application // of the merge; nil with a problem
	preview  config.Preview
	host     string
	route    Route  // with mode route
	problem  error  // why it cannot be deployed
	denied   bool   // what was deployed is removed, too
	pending  string // what its next deployment waits for, "" if it was created
}

// maxNameLength is that of a DNS label.
const maxNameLength = 63

// previewName returns the name of the preview of an application.
func previewName(name string, number int) string {
	suffix := "-pr-" + strconv.Itoa(number)
	for len(name)+len(suffix) > maxNameLength {
		runes := []rune(name)
		name = string(runes[:len(runes)-1])
	}
	return name + suffix
}

// Labels of preview applications.
const (
	labelPullRequest = "pull-request"
	labelMode        = "preview-mode" // with another mode than namespace
)

// isRouted reports whether a preview application is next to that of the branch.
func isRouted(app deploy.Application) bool {
	return app.Labels[labelMode] == string(config.PreviewRoute)
}

// plan returns the plan of a pull request. It is made again when either branch has a new head.
func (p *Previewer) plan(ctx context.Context, r Repository, pr githost.OpenRequest) (plan, error) {
	id := pullRequest{r.ID, pr.Number}
	base, ok := r.Git.Head()
	if !ok {
		return plan{}, deploy.Errorf(deploy.Unavailable, "the repository has not been read yet")
	}
	if known, ok := p.plans[id]; ok && known.head == pr.Commit && known.base == base.Hash {
		return known, nil
	}
	made, err := p.makePlan(ctx, r, pr)
	if deploy.IsKind(err, deploy.Invalid) {
		made, err = plan{head: pr.Commit, base: base.Hash, problem: err}, nil
	}
	if err == nil {
		p.plans[id] = made
	}
	return made, err
}

func (p *Previewer) makePlan(ctx context.Context, r Repository, pr githost.OpenRequest) (out plan, err error) {
	m, err := p.merge(ctx, r, pr)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	out.head, out.base = m.Head.Hash, m.Base.Hash
	before, err := r.Git.At(m.Base.Hash)
	if err != nil {
		return out, err
	}
	affected, err := p.Repositories.Foresee(ctx, r.ID, m)
	if err != nil {
		return out, fmt.Errorf("find the applications that it touches: %w", err)
	}
	for _, a := range affected {
		if w := p.want(before, m.FS(), a, pr); w != nil {
			out.apps = append(out.apps, *w)
		}
	}
	if err := p.require(ctx, r, &out, before, m.FS(), pr); err != nil {
		return out, err
	}
	if len(out.apps) > 0 {
		if out.commit, err = r.Git.Keep(m); err == nil {
			err = p.routes(ctx, out)
		}
		out.shareHosts()
	}
	return out, err
}

// routes reads what leads to the previews with mode route, and what they do not have. One that is not
// possible is a problem of its application.
func (p *Previewer) routes(ctx context.Context, pl plan) error {
	for i := range pl.apps {
		w := &pl.apps[i]
		if w.preview.Mode != config.PreviewRoute || w.problem != nil {
			continue
		}
		route, err := p.Route(ctx, w.app.Git, pl.commit.Hash)
		switch {
		case deploy.IsKind(err, deploy.Invalid):
			w.problem = err
		case err != nil:
			return fmt.Errorf("prepare the preview of %s: %w", w.base, err)
		case route.ByHeader:
			route.Header = fmt.Sprintf("%s: %s", w.preview.Header, config.PreviewName(w.app.Git.RepoID, w.app.Git.PullRequest))
		}
		w.route = route
	}
	return nil
}

// merge merges the head of a pull request. That of a fork is no branch of the repository.
func (p *Previewer) merge(ctx context.Context, r Repository, pr githost.OpenRequest) (*git.Merge, error) {
	if pr.Fork {
		return p.Repositories.MergeRef(ctx, r.ID, pr.Base, pr.Ref, pr.Commit)
	}
	return p.Repositories.Merge(ctx, r.ID, pr.Base, pr.Head, pr.Commit)
}

// require adds the applications that those of a plan require, and those that these require. One
// that cannot be previewed is a problem of what requires it.
func (p *Previewer) require(ctx context.Context, r Repository, pl *plan, before, after fs.FS, pr githost.OpenRequest) error {
	var all []deploy.Application // read when one is required
	for i := 0; i < len(pl.apps); i++ {
		for _, name := range pl.apps[i].preview.Requires {
			if slices.ContainsFunc(pl.apps, func(w wanted) bool { return w.base == name }) {
				continue
			}
			if all == nil {
				var err error
				if all, _, err = p.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: r.ID}); err != nil {
					return err
				}
			}
			var w *wanted
			if at := slices.IndexFunc(all, func(a deploy.Application) bool { return a.Name == name && !a.IsPreview() }); at >= 0 {
				w = p.want(before, after, deploy.AffectedApplication{Application: all[at]}, pr)
			}
			if w == nil {
				pl.apps[i].problem = cmp.Or(pl.apps[i].problem, error(deploy.Errorf(deploy.Invalid,
					"it requires %q, which is no application of the repository that has spec.preview", name)))
				continue
			}
			w.required = true
			pl.apps = append(pl.apps, *w)
		}
	}
	return nil
}

// want returns the preview of an affected application, nil if it has none. What the branch says
// about previews, and its cluster and labels count: a pull request cannot permit itself more.
func (p *Previewer) want(before, after fs.FS, a deploy.AffectedApplication, pr githost.OpenRequest) *wanted {
	if a.Removed {
		return nil
	}
	base, merged := p.configOf(before, a.Application.Git), p.configOf(after, a.Application.Git)
	isNew := base == nil
	if isNew {
		base = merged
	}
	if base == nil || base.Preview == nil || pr.Fork && (isNew || !base.Preview.AllowForks || base.Preview.Label == "") {
		return nil
	}
	number := pr.Number
	w := &wanted{base: a.Application.Name, app: a.Application, config: merged, preview: *base.Preview, problem: a.Problem}
	w.app.Git.PullRequest = number
	w.app.ID = deploy.ApplicationID(w.app.Git)
	w.app.Name = previewName(a.Application.Name, number)
	w.app.Labels = map[string]string{labelPullRequest: strconv.Itoa(number)}
	for name, value := range base.Labels {
		if name != labelPullRequest && name != labelMode {
			w.app.Labels[name] = value
		}
	}
	if base.Preview.Mode != config.PreviewNamespace {
		w.app.Labels[labelMode] = string(base.Preview.Mode)
	}
	w.app.LastTriggered, w.app.LastSuccessful, w.app.Hold, w.app.EvaluatedCommit, w.app.Former = nil, nil, nil, "", nil
	switch {
	case w.problem != nil:
	case merged == nil:
		w.problem = deploy.Errorf(deploy.Invalid, "%s cannot be read", a.Application.Git.ConfigPath())
	case isNew && base.Preview.Mode == config.PreviewRoute:
		w.problem = deploy.Errorf(deploy.Invalid, "%s: a preview with mode route needs the application on the branch, which it shares everything else with: merge it first, or use mode: namespace in spec.preview", a.Application.Git.ConfigPath())
	case !isNew && !reflect.DeepEqual(base.Preview, merged.Preview):
		w.problem = deploy.Errorf(deploy.Invalid, "%s: the pull request changes spec.preview, which counts when it is merged", a.Application.Git.ConfigPath())
	case !isNew && base.PlatformProvider != merged.PlatformProvider:
		w.problem = deploy.Errorf(deploy.Invalid, "%s: the pull request changes spec.platformProvider, which counts when it is merged", a.Application.Git.ConfigPath())
	default:
		host, err := p.hostOf(w, number)
		if err != nil {
			w.deny(err)
			break
		}
		w.host = host
	}
	return w
}

// configOf returns the configuration of an application in a tree, nil if there is no valid one.
func (p *Previewer) configOf(tree fs.FS, at deploy.GitPath) *config.Application {
	return source.CandidateAt(tree, at.ConfigPath(), p.Kinds).Config
}

// labelled returns the applications of a plan whose label a pull request has, and those that they
// require.
func (pl plan) labelled(pr githost.OpenRequest) (out []wanted) {
	in := make([]bool, len(pl.apps))
	var add func(i int)
	add = func(i int) {
		if in[i] {
			return
		}
		in[i] = true
		for j, w := range pl.apps {
			if slices.Contains(pl.apps[i].preview.Requires, w.base) {
				add(j)
			}
		}
	}
	for i, w := range pl.apps {
		if !w.required && (w.preview.Label == "" || slices.Contains(pr.Labels, w.preview.Label)) {
			add(i)
		}
	}
	for i, w := range pl.apps {
		if in[i] {
			out = append(out, w)
		}
	}
	return out
}
