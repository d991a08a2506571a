package trigger

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
)

// listCandidates stores the application configurations of the commit that the agent does
// not deploy, with the reason.
func (w *watcher) listCandidates(ctx context.Context, apps map[string]deploy.Application) error {
	var out []deploy.Candidate
	for id, e := range w.catalog.entries {
		if app, ok := apps[id]; !ok || app.Deleted {
			out = append(out, w.asCandidate(e, app.Deleted))
		}
	}
	_, err := w.Store.SetCandidates(ctx, w.repo.Config.RepoID, out)
	return err
}

// asCandidate describes a configuration that the agent does not deploy; deleted reports
// whether it was an application before.
func (w *watcher) asCandidate(e entry, deleted bool) deploy.Candidate {
	c := deploy.Candidate{Git: e.git, Kind: cmp.Or(e.candidate.Kind, w.Kinds[0].File), State: deploy.CandidateUnregistered}
	var unsupported *config.UnsupportedKind
	if errors.As(e.candidate.Err, &unsupported) {
		c.Kind, c.State, c.Reason = unsupported.Kind, deploy.CandidateUnsupported, unsupported.Error()
		return c
	}
	c.Reason = fmt.Sprintf("Nothing selects it: add it as an application, or let discover of repository %s in the agent's configuration select its path or labels", e.git.RepoID)
	switch {
	case deleted:
		c.State, c.Reason = deploy.CandidateDeleted, "The application was deleted: add it again to have it deployed"
	case replaced(e, w.catalog.found):
		c.Reason = fmt.Sprintf("%s is next to it and replaces it: remove it, or add it as an application", config.DefaultName)
	case e.refused != nil:
		c.Reason = "It is not read, because the head does not count for it: " + e.refused.Error()
		return c
	}
	if e.candidate.Err != nil {
		c.Reason += ". It cannot be used as it is: " + e.candidate.Err.Error()
		return c
	}
	c.Name, c.Labels = deploy.NameOf(e.candidate.Config.Name, deploy.Registration{}, e.git), e.candidate.Config.Labels
	return c
}
