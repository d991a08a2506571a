package pullpreview

import (
	"context"
	"slices"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// removeAgain is how long after a request to remove an application another one is made, if objects of it
// are left.
const removeAgain = time.Minute

// removeRouted removes the applications of a preview that are next to those of the branch, with their
// objects, and reports whether nothing of them is left.
func (p *Previewer) removeRouted(ctx context.Context, r Repository, number int, apps []deploy.Application, known deploy.PullPreview) (bool, error) {
	routed := slices.DeleteFunc(slices.Clone(apps), func(a deploy.Application) bool { return !isRouted(a) })
	if len(alive(routed)) == 0 {
		left, err := p.remaining(ctx, routed)
		return !left, err
	}
	if known.Head == "" { // the removal continues only for what is recorded
		known.RepoID, known.Number, known.Head, known.Phase = r.ID, number, headOf(apps, known), deploy.PreviewBuilding
		known.Since, known.CreatedAt, known.HeadAt = p.now(), p.now(), p.now()
		if err := p.Store.PutPullPreview(ctx, known); err != nil {
			return false, err
		}
	}
	for _, app := range alive(routed) {
		if err := p.removeApplication(ctx, app); err != nil {
			return false, err
		}
	}
	return false, nil
}

// remaining reports whether objects of removed applications are left next to those of the branch. It
// requests their removal again if it has failed.
func (p *Previewer) remaining(ctx context.Context, apps []deploy.Application) (left bool, err error) {
	for _, app := range apps {
		if !app.Deleted || !isRouted(app) {
			continue
		}
		items, err := p.Store.Inventory(ctx, app.ID)
		if err != nil {
			return true, err
		}
		if len(items) == 0 {
			delete(p.again, app.ID)
			continue
		}
		left, p.busy = true, true
		if p.Now().Sub(p.again[app.ID]) < removeAgain {
			continue
		}
		p.again[app.ID] = p.Now()
		if err := p.requestRemoval(ctx, app); err != nil {
			return true, err
		}
	}
	return left, nil
}
