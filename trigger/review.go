package trigger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// reviewEvery is the interval in which pending adoptions are evaluated again: live objects
// change without a notification.
const reviewEvery = 30 * time.Second

// adoptionOf returns the takeover of live objects that a user must permit before the first
// deployment from the commit. It returns nil if no objects are to be taken over, or if a
// user has permitted all of them.
func (w *watcher) adoptionOf(ctx context.Context, head deploy.Commit, s subject, found lookup) (*deploy.Adoption, error) {
	if len(found.foreign) == 0 {
		return nil, nil
	}
	if known, ok, err := w.Store.Adoption(ctx, s.app.ID); err != nil || ok && known.Accepted && known.Covers(found.foreign) {
		return nil, err
	}
	newest, _, err := w.repo.Git.Newest(ctx, head.Hash, found.hashes)
	if err != nil {
		return nil, err
	}
	a := &deploy.Adoption{ApplicationID: s.app.ID, Objects: found.foreign, RunningCommit: newest.Hash}
	if a.RunningCommit == "" && len(found.hashes) == 1 {
		a.RunningCommit = found.hashes[0] // it is no longer in the branch
	}
	a.Token, err = tokenOf(*a)
	return a, err
}

// tokenOf returns a hash of the adoption's content. A user's decision contains it, so that
// the decision applies to this list only.
func tokenOf(a deploy.Adoption) (string, error) {
	text, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encode what is to be taken over: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// maxShown is how many objects a notice names.
const maxShown = 5

// awaitedNotice returns the notice for an application whose live objects await a user's
// decision.
func awaitedNotice(a deploy.Adoption) string {
	var names []string
	for _, o := range a.Objects[:min(len(a.Objects), maxShown)] {
		names = append(names, o.Object.String())
	}
	if more := len(a.Objects) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%d live objects are not the application's, and are taken over only if a person permits it: %s. "+
		"See them with pipectl application adoptions, and decide with pipectl application adopt --app-id=%s, against it with --reject", len(a.Objects), strings.Join(names, ", "), a.ApplicationID)
}

// keepAdoptions stores the pending adoptions, deletes those that the evaluated applications
// no longer have, and schedules the next evaluation. Held applications are evaluated again
// as well, because the listing may have failed for their own objects only.
func (w *watcher) keepAdoptions(ctx context.Context, evaluated []subject, awaited map[string]deploy.Adoption, held map[string]error) error {
	w.reviewAt = time.Time{}
	if len(awaited) > 0 || w.Review && len(held) > 0 {
		w.reviewAt = w.Now().Add(reviewEvery)
	}
	stored, err := w.Store.Adoptions(ctx)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, a := range stored {
		known[a.ApplicationID] = true
	}
	var errs []error
	for _, s := range evaluated {
		a, waits := awaited[s.app.ID]
		switch {
		case waits:
			changed, err := w.Store.SetAdoption(ctx, a)
			errs = append(errs, err)
			if changed {
				w.log.Warn("live objects await a decision on taking them over", "app", s.app.Name, "objects", len(a.Objects))
			}
		case known[s.app.ID]:
			errs = append(errs, w.Store.DropAdoption(ctx, s.app.ID))
		}
	}
	return errors.Join(errs...)
}

// unreviewed returns why a command must not deploy an application for the first time, "" if
// it may. A user must first decide about the live objects that the application would take
// over.
func (w *watcher) unreviewed(ctx context.Context, commit deploy.Commit, s subject, commandID string) (refusal string, err error) {
	if w.Live == nil {
		return "", nil
	}
	a, silent, err := w.survey(ctx, commit, s, commandID)
	switch {
	case err != nil:
		return "", err
	case silent != nil:
		return "whether something of the application runs already could not be found out: " + silent.Error(), nil
	case a == nil:
		return "", nil
	}
	_, err = w.Store.SetAdoption(ctx, *a)
	return awaitedNotice(*a), err
}

// survey is adoptionOf for a command. The error is a *background.Running while the lookup
// runs. silent explains why the live objects cannot be read now.
func (w *watcher) survey(ctx context.Context, commit deploy.Commit, s subject, commandID string) (a *deploy.Adoption, silent, err error) {
	if !w.Review || s.app.LastSuccessful != nil {
		return nil, nil, nil
	}
	found, err := w.startLookup(ctx, w.Now(), commit, s, commandID)
	var running *background.Running
	if errors.As(found.silent, &running) {
		return nil, nil, running
	}
	if found.silent != nil || err != nil {
		return nil, found.silent, err
	}
	a, err = w.adoptionOf(ctx, commit, s, found)
	return a, nil, err
}

// decideAdoption applies a user's decision about an adoption. It refuses the command if the
// adoption has changed since it was listed.
func (w *watcher) decideAdoption(ctx context.Context, head deploy.Commit, c deploy.Command, lookup error) error {
	refusal, err := w.checkDecision(ctx, head, c, lookup)
	if err == nil && refusal == "" {
		err = w.Store.DecideAdoption(ctx, c)
		if deploy.IsKind(err, deploy.Illegal) || deploy.IsKind(err, deploy.NotFound) {
			refusal, err = err.Error(), nil
		}
	}
	switch {
	case err != nil:
		return err
	case refusal != "":
		return w.refuse(ctx, c, refusal)
	}
	w.log.Info("taking over live objects was decided on", "appID", c.ApplicationID, "accepted", c.Accept, "by", c.Commander)
	w.reconciled = false
	w.wake(nil) // an accepted application is deployed in the next pass
	return nil
}

// checkDecision returns why a decision is refused, "" if it is not. A rejection by the user
// needs no query of the cluster.
func (w *watcher) checkDecision(ctx context.Context, head deploy.Commit, c deploy.Command, lookup error) (refusal string, err error) {
	if !c.Accept {
		return "", nil
	}
	if lookup != nil {
		return "the repository cannot be read: " + lookup.Error(), nil
	}
	app, err := w.Store.Application(ctx, c.ApplicationID)
	if err != nil {
		return "", err
	}
	e, ok := w.catalog.entries[app.ID]
	if !ok {
		return fmt.Sprintf("%s does not exist at commit %s", app.Git.ConfigPath(), head.Short()), nil
	}
	provider, problem := e.problem(w.Trigger, app)
	if problem != nil {
		return problem.Error(), nil
	}
	current, silent, err := w.survey(ctx, head, subject{app, e, provider}, c.ID)
	switch {
	case err != nil:
		return "", err
	case silent != nil:
		return "whether the live objects are still those that were listed could not be found out: " + silent.Error(), nil
	case current == nil:
		return "there is nothing to take over any more: the application is deployed without a decision", w.Store.DropAdoption(ctx, app.ID)
	case current.Token != c.Token:
		_, err := w.Store.SetAdoption(ctx, *current)
		return fmt.Sprintf("what application %s would take over has changed since it was listed: list it again and decide on that", app.ID), err
	}
	return "", nil
}
