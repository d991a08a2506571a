package pullpreview

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strconv"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/source"
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
	app     deploy.Application
	config  *config.Application // of the merge; nil with a problem
	preview config.Preview
	host    string
	problem error  // why it cannot be deployed
	pending string // what its next deployment waits for, "" if it was created
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

// labelPullRequest is the label of preview applications.
const labelPullRequest = "pull-request"

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
	m, err := p.Repositories.Merge(ctx, r.ID, pr.Base, pr.Head, pr.Commit)
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
		if w := p.want(before, m.FS(), a, pr.Number); w != nil {
			out.apps = append(out.apps, *w)
		}
	}
	if len(out.apps) > 0 {
		out.commit, err = r.Git.Keep(m)
	}
	return out, err
}

// want returns the preview of an affected application, nil if it has none. What the branch says
// about previews counts: a pull request cannot permit itself more.
func (p *Previewer) want(before, after fs.FS, a deploy.AffectedApplication, number int) *wanted {
	if a.Removed {
		return nil
	}
	base, merged := p.configOf(before, a.Application.Git), p.configOf(after, a.Application.Git)
	isNew := base == nil
	if isNew {
		base = merged
	}
	if base == nil || base.Preview == nil {
		return nil
	}
	w := &wanted{app: a.Application, config: merged, preview: *base.Preview, problem: a.Problem}
	w.app.Git.PullRequest = number
	w.app.ID = deploy.ApplicationID(w.app.Git)
	w.app.Name = previewName(a.Application.Name, number)
	w.app.Labels = map[string]string{labelPullRequest: strconv.Itoa(number)}
	for name, value := range a.Application.Labels {
		w.app.Labels[name] = value
	}
	w.app.LastTriggered, w.app.LastSuccessful, w.app.Hold, w.app.EvaluatedCommit, w.app.Former = nil, nil, nil, "", nil
	switch {
	case w.problem != nil:
	case merged == nil:
		w.problem = deploy.Errorf(deploy.Invalid, "%s cannot be read", a.Application.Git.ConfigPath())
	case !isNew && !reflect.DeepEqual(base.Preview, merged.Preview):
		w.problem = deploy.Errorf(deploy.Invalid, "%s: the pull request changes spec.preview, which counts when it is merged", a.Application.Git.ConfigPath())
	default:
		w.host, w.problem = w.preview.HostOf(number)
	}
	return w
}

// configOf returns the configuration of an application in a tree, nil if there is no valid one.
func (p *Previewer) configOf(tree fs.FS, at deploy.GitPath) *config.Application {
	return source.CandidateAt(tree, at.ConfigPath(), p.Kinds).Config
}

// labelled returns the applications of a plan whose label a pull request has.
func (pl plan) labelled(pr githost.OpenRequest) (out []wanted) {
	for _, w := range pl.apps {
		if w.preview.Label == "" || slices.Contains(pr.Labels, w.preview.Label) {
			out = append(out, w)
		}
	}
	return out
}
