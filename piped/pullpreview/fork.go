package pullpreview

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/githost"
	"github.com/c785c783/piped/piped/store"
)

// approve reports whether the head of a pull request of a fork may be merged and deployed: an
// application of the branch allows forks, and a maintainer has set its label for this very head: the host
// has listed the head without the label before. A head that is first listed with the label may have been
// pushed after the maintainer has read another one, so it needs the label anew.
func (p *Previewer) approve(ctx context.Context, r Repository, pr *request) (bool, error) {
	labels, err := p.forkLabels(ctx, r)
	if err != nil {
		return false, err
	}
	set := p.setSince(pullRequest{r.ID, pr.Number}, pr, labels)
	if err := p.withdraw(ctx, pr, labels); err != nil {
		return false, err
	}
	if len(has(pr, labels)) == 0 {
		return false, p.end(ctx, r, pr.Number, pr.apps, pr.known, "the pull request of a fork has no label that permits its preview")
	}
	switch {
	case pr.known.Approved == pr.Commit:
		return true, nil
	case pr.known.Approved == "" && set:
		return true, p.storeApproval(ctx, r, pr, labels) // before the head is read
	}
	why := "the pull request of a fork has a new commit"
	if pr.known.Approved == "" {
		why = "the label of the pull request of a fork counts for a commit that was there before the label"
	}
	return false, p.hold(ctx, r, pr, preview{waits: fmt.Sprintf("%s; a maintainer who has read %s removes the label and adds it again", why, deploy.ShortHash(pr.Commit))})
}

// seen is a pull request of a fork as it was listed last.
type seen struct {
	head   string
	labels []string
}

// setSince reports whether a label that permits the preview was set since the pull request was listed
// last, with the same head.
func (p *Previewer) setSince(id pullRequest, pr *request, labels []string) bool {
	last, ok := p.seen[id]
	return ok && last.head == pr.Commit && slices.ContainsFunc(has(pr, labels), func(label string) bool { return !slices.Contains(last.labels, label) })
}

// remember stores the pull requests of forks as they were listed, once they were handled without an
// error.
func (p *Previewer) remember(r Repository, pr githost.OpenRequest) {
	if pr.Fork {
		p.seen[pullRequest{r.ID, pr.Number}] = seen{pr.Commit, slices.Clone(pr.Labels)}
	}
}

// withdraw stores that the head is not approved any more once the host says that the pull request is
// open without any label of the approval, so that the label counts when it is set again. That the
// branch permits no forks at the moment withdraws nothing: the label may have stayed.
func (p *Previewer) withdraw(ctx context.Context, pr *request, labels []string) error {
	if pr.known.Approved == "" {
		return nil
	}
	next := pr.known
	for _, label := range has(pr, labels) { // set later, and not for a later head
		if !slices.Contains(next.ApprovedLabels, label) {
			next.ApprovedLabels = append(slices.Clone(next.ApprovedLabels), label)
		}
	}
	if len(next.ApprovedLabels)+len(labels) > 0 && len(has(pr, next.ApprovedLabels)) == 0 {
		next.Approved, next.ApprovedLabels = "", nil
	}
	if reflect.DeepEqual(next, pr.known) {
		return nil
	}
	pr.known = next
	return p.Store.PutPullPreview(ctx, next)
}

// has returns which of these labels a pull request has.
func has(pr *request, labels []string) (out []string) {
	for _, label := range labels {
		if slices.Contains(pr.Labels, label) && !slices.Contains(out, label) {
			out = append(out, label)
		}
	}
	return out
}

// storeApproval stores that a maintainer has set the label for the head. It stays stored as long as
// the pull request has the label, whatever becomes of the preview.
func (p *Previewer) storeApproval(ctx context.Context, r Repository, pr *request, labels []string) error {
	next := pr.known
	next.Approved, next.ApprovedLabels = pr.Commit, has(pr, labels)
	if next.Head == "" || next.Ended {
		next.Ended, next.Reason = false, ""
		now := p.now()
		next.RepoID, next.Number, next.Head, next.Branch, next.Base = r.ID, pr.Number, pr.Commit, pr.OpenRequest.Head, pr.Base
		next.Phase, next.CreatedAt, next.HeadAt, next.Since = deploy.PreviewBuilding, now, now, now
	}
	next.Fork = true
	if err := p.Store.PutPullPreview(ctx, next); err != nil {
		return err
	}
	pr.known = next
	return nil
}

// forkLabels returns the labels with which applications of the branch permit previews of forks.
func (p *Previewer) forkLabels(ctx context.Context, r Repository) ([]string, error) {
	head, ok := r.Git.Head()
	if !ok {
		return nil, deploy.Errorf(deploy.Unavailable, "the repository has not been read yet")
	}
	apps, _, err := p.Store.ListApplications(ctx, store.ApplicationQuery{RepoID: r.ID})
	if err != nil {
		return nil, err
	}
	found := forkLabels{head: head.Hash}
	for _, app := range apps { // they are registered after the head is read
		found.apps = append(found.apps, app.Git)
	}
	if known := p.forks[r.ID]; known.head == found.head && slices.Equal(known.apps, found.apps) {
		return known.labels, nil
	}
	tree, err := r.Git.At(head.Hash)
	if err != nil {
		return nil, err
	}
	for _, app := range apps {
		if preview := p.previewOf(tree, app.Git); preview != nil && preview.AllowForks && preview.Label != "" {
			found.labels = append(found.labels, preview.Label)
		}
	}
	p.forks[r.ID] = found
	return found.labels, nil
}

// forkLabels are the labels that permit previews of forks as of a head of the branch and the
// applications that are known.
type forkLabels struct {
	head   string
	apps   []deploy.GitPath
	labels []string
}
