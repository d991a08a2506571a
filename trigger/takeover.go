package trigger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/store"
)

// Live reads the live objects on the platform providers.
type Live interface {
	// RunningCommits returns the commits that the live objects of an application were applied
	// from, as recorded on them. The application's objects are those at the given commit. It
	// returns none if no object is live.
	RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) ([]string, error)
	// Foreign returns the live objects that an application would take over: they have the
	// names of its objects at the given commit, but do not belong to it. The order is stable.
	// An error of kind Invalid or NotFound concerns this application alone.
	Foreign(ctx context.Context, provider string, app deploy.Application, commit string) ([]deploy.AdoptedObject, error)
}

// SourceError is the error of Live for an application that cannot be rendered now, for
// example because its chart or its Git base is unreachable. It concerns that application
// alone; the cluster was not queried.
type SourceError struct{ Err error }

// Error returns the cause's text.
func (e *SourceError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// maxLookups is how many applications of a provider are looked up concurrently.
const maxLookups = 16

// lookupKey identifies a lookup of an application, for a command or, with commandID "", for
// the passes.
type lookupKey struct{ applicationID, commandID string }

// lookups are the running lookups, by platform provider.
type lookups map[string]*background.Jobs[lookupKey, lookup]

// lookup is the result of the search for an application's live objects.
type lookup struct {
	hashes  []string               // commits recorded on its live objects
	foreign []deploy.AdoptedObject // only if a user must permit what is taken over
	silent  error                  // why the cluster does not answer or the application cannot be rendered now
}

// takenOver is the result of takeOvers, by application ID.
type takenOver struct {
	running map[string]deploy.Commit   // the commit to take over
	awaited map[string]deploy.Adoption // what a user must permit first
	held    map[string]error           // why its live objects are unknown; may be a *SourceError or a *background.Running
	failed  map[string]error           // other errors
}

// takeOvers finds, for applications without a success of their own, the commits of the
// branch that their live objects were applied from, by PipeCD or by an agent that has lost
// its database. Deploying such a commit again changes only the owner of the objects. Newer
// commits are then planned against a running state, to which they can be rolled back.
//
// A takeover is tried once. It does not use a commit that this agent has deployed for the
// application, because the leftovers of a failed deployment are not a state to roll back
// to.
//
// An application is held while its cluster does not answer, so that the agent does not
// overwrite a running state without having read it. It is also held while it cannot be
// rendered. Rendering that takes long continues in the background; its end begins another
// pass. Other errors are retried in the next pass.
func (w *watcher) takeOvers(ctx context.Context, head deploy.Commit, subjects []subject) takenOver {
	found := takenOver{running: map[string]deploy.Commit{}, awaited: map[string]deploy.Adoption{}, held: map[string]error{}, failed: map[string]error{}}
	if w.Live == nil {
		return found
	}
	pass := w.Now()
	type answer struct {
		subject
		lookup
		err error
	}
	var answers []*answer
	var asking sync.WaitGroup
	for _, s := range subjects {
		if s.app.LastSuccessful != nil || s.byHand() && !w.Review {
			continue
		}
		a := &answer{subject: s}
		answers = append(answers, a)
		asking.Go(func() { a.lookup, a.err = w.startLookup(ctx, pass, head, s, "") })
	}
	asking.Wait()
	for _, a := range answers {
		var awaited *deploy.Adoption
		var commit deploy.Commit
		if a.err == nil && a.silent == nil {
			awaited, a.err = w.adoptionOf(ctx, head, a.subject, a.lookup)
		}
		if a.err == nil && a.silent == nil && awaited == nil && !a.byHand() {
			commit, a.err = w.taken(ctx, a.app, head, a.hashes)
		}
		switch {
		case a.silent != nil:
			found.held[a.app.ID] = a.silent
		case a.err != nil:
			found.failed[a.app.ID] = fmt.Errorf("find out what runs of it: %w", a.err)
		case awaited != nil:
			found.awaited[a.app.ID] = *awaited
		case commit.Hash != "":
			found.running[a.app.ID] = commit
		}
	}
	return found
}

// byHand reports whether commits to an application do not deploy it.
func (s subject) byHand() bool { return s.entry.candidate.Config.Trigger.OnCommit.Disabled }

// startLookup looks up an application in its cluster, in the background. commandID is the
// command that needs the result, "" for the passes. While the lookup runs, silent is a
// *background.Running; its end begins another pass.
func (w *watcher) startLookup(ctx context.Context, pass time.Time, commit deploy.Commit, s subject, commandID string) (lookup, error) {
	found, err := w.lookups[s.provider].Do(ctx, lookupKey{s.app.ID, commandID}, commit.Hash, w.pollSoon, func(ctx context.Context) (lookup, error) {
		return w.lookUp(ctx, pass, commit, s)
	})
	var running *background.Running
	switch {
	case errors.As(err, &running):
		return lookup{silent: running}, nil
	case deploy.IsKind(err, deploy.Unavailable) && ctx.Err() == nil: // the lookup was cancelled, because too many take long
		err = &SourceError{Err: err}
		w.silent.begin(sourceRespondent(s.app.ID), err, pass, w.Now())
		return lookup{silent: err}, nil
	}
	return found, err
}

// lookUp reads from an application's cluster the commits that run and, if a user must
// permit a takeover, the objects that the application would take over. If the latter cannot
// be determined, silent is the error, so that the application is held.
func (w *watcher) lookUp(ctx context.Context, pass time.Time, commit deploy.Commit, s subject) (found lookup, err error) {
	found.silent, err = w.question(ctx, pass, s, func() (err error) {
		found.hashes, err = w.Live.RunningCommits(ctx, s.provider, s.app.Git, commit.Hash)
		return err
	})
	if err != nil || found.silent != nil || !w.Review {
		return found, err
	}
	found.silent, err = w.question(ctx, pass, s, func() (err error) {
		found.foreign, err = w.Live.Foreign(ctx, s.provider, s.app, commit.Hash)
		return err
	})
	if deploy.IsKind(err, deploy.Invalid) || deploy.IsKind(err, deploy.NotFound) {
		found.silent, err = err, nil
	}
	return found, err
}

// question calls put, a query about an application to its provider's cluster, and records
// whether the cluster and the rendering respond. In their backoff it does not call put and
// returns the last error as silent.
func (w *watcher) question(ctx context.Context, pass time.Time, s subject, put func() error) (silent, err error) {
	cluster, rendering := clusterRespondent(s.provider), sourceRespondent(s.app.ID)
	for _, asked := range []respondent{cluster, rendering} {
		if silent = w.silent.resting(asked, pass); silent != nil {
			return silent, nil
		}
	}
	err = put()
	var unreadable *SourceError
	switch {
	case !deploy.IsKind(err, deploy.Unavailable) || ctx.Err() != nil:
	case errors.As(err, &unreadable):
		if w.silent.begin(rendering, err, pass, w.Now()) {
			w.log.Warn("cannot render an application to find its live objects; the application is held", "app", s.app.Name, "error", err)
		}
		return err, nil
	default:
		if w.silent.begin(cluster, err, pass, w.Now()) {
			w.log.Warn("cannot read live objects; applications that may run there are held", "cluster", s.provider, "error", err)
		}
		return err, nil
	}
	if err == nil {
		if w.silent.end(cluster, pass) {
			w.log.Info("live objects can be read again", "cluster", s.provider)
		}
		w.silent.end(rendering, pass)
	}
	return nil, err
}

// taken returns the newest of these commits in the branch from which the application was
// not deployed by this agent. It returns the zero commit if there is none, or if a takeover
// has been tried before.
func (w *watcher) taken(ctx context.Context, app deploy.Application, head deploy.Commit, hashes []string) (deploy.Commit, error) {
	if len(hashes) == 0 {
		return deploy.Commit{}, nil
	}
	own, _, err := w.Store.ListDeployments(ctx, store.DeploymentQuery{ApplicationIDs: []string{app.ID}})
	if err != nil {
		return deploy.Commit{}, err
	}
	deployed := map[string]bool{}
	for _, d := range own {
		if d.Trigger.TakeOver {
			return deploy.Commit{}, nil // that takeover failed, and would fail again
		}
		deployed[d.Trigger.Commit.Hash] = true
	}
	var others []string
	for _, hash := range hashes {
		if !deployed[hash] {
			others = append(others, hash)
		}
	}
	c, _, err := w.repo.Git.Newest(ctx, head.Hash, others)
	return c, err
}

// takeOverRequest returns the deployment that takes over the live objects of a commit, nil
// if the application cannot be deployed from that commit.
func (w *watcher) takeOverRequest(ctx context.Context, app deploy.Application, running deploy.Commit) (*request, error) {
	e, ok, err := w.readEntry(ctx, running, app.Git)
	if err != nil || !ok {
		return nil, err
	}
	provider, problem := e.problem(w.Trigger, app)
	if problem != nil {
		return nil, nil
	}
	summary := fmt.Sprintf("Taking over what runs: the live objects are those of commit %s", running.Short())
	r, err := w.newRequest(ctx, app, e, provider, deploy.Trigger{
		Kind: deploy.OnCommit, Commit: running, Strategy: deploy.StrategyQuickSync, StrategySummary: summary,
		TakeOver: true, OwnershipOnly: running.Hash != w.catalog.commit.Hash,
	})
	r.reason, r.Chain, r.Deployment.ChainID = summary, nil, "" // a takeover changes nothing that a chain should follow
	return &r, err
}

// takingOver reports whether the application's last deployment is a takeover that has not
// ended. Newer commits of the branch wait for its end.
func (w *watcher) takingOver(ctx context.Context, app deploy.Application) (bool, error) {
	if app.LastTriggered == nil || !app.LastTriggered.Trigger.TakeOver {
		return false, nil
	}
	d, err := w.Store.Deployment(ctx, app.LastTriggered.DeploymentID)
	if deploy.IsKind(err, deploy.NotFound) {
		return false, nil
	}
	return err == nil && !d.Status.Completed(), err
}
