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

// Live reads what runs on the platform providers.
type Live interface {
	// RunningCommits returns the commits that the live objects of an application, as
	// it is at the given commit, name as theirs; none when nothing of it is there.
	RunningCommits(ctx context.Context, provider string, git deploy.GitPath, commit string) ([]string, error)
	// Foreign returns the live objects that stand where the objects of an application
	// belong, as it is at the given commit, and are not its own, in a stable order. An
	// error of kind Invalid or NotFound concerns this application alone.
	Foreign(ctx context.Context, provider string, app deploy.Application, commit string) ([]deploy.AdoptedObject, error)
}

// SourceError is a Live's error for an application that cannot be rendered now: its
// chart or its Git base is unreachable, for example. It concerns that application
// alone; the cluster was not asked.
type SourceError struct{ Err error }

// Error returns the cause's text.
func (e *SourceError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *SourceError) Unwrap() error { return e.Err }

// maxLookups is how many applications of a provider are looked up at a time.
const maxLookups = 16

// lookupKey identifies a lookup: of an application, for the passes or for a command.
type lookupKey struct{ applicationID, commandID string }

// lookups are the running lookups, by platform provider.
type lookups map[string]*background.Jobs[lookupKey, lookup]

// lookup is the result of looking up an application in its cluster.
type lookup struct {
	hashes  []string               // the commits that its live objects name
	foreign []deploy.AdoptedObject // only if a user must permit what is taken over
	silent  error                  // why its cluster does not answer, or it cannot be rendered now
}

// takenOver is the result of takeOvers, by application ID.
type takenOver struct {
	running map[string]deploy.Commit   // the commit to take over
	awaited map[string]deploy.Adoption // what a user must permit first
	held    map[string]error           // why the cluster could not be asked, a *SourceError or a *background.Running
	failed  map[string]error           // other errors
}

// takeOvers finds, for applications without a success of their own, the commits of
// the branch that their live objects were applied from, by PipeCD or by an agent
// before it lost its database. Deploying such a commit again changes nothing but
// whose the objects are; what the branch has brought since is then planned with
// something to compare it with and to return to. It is tried once, and not with a
// commit that the application was deployed from here: what a failed deployment
// left behind is no state to return to. Applications whose cluster does not answer
// are held, lest what runs be replaced unseen, and so is an application that cannot be
// rendered now, or whose rendering takes long: that goes on while the pass does, and its
// end begins another pass. What fails for another reason is tried again with the next pass.
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
		asking.Go(func() { a.lookup, a.err = w.ask(ctx, pass, head, s, "") })
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

// ask looks up an application in its cluster, in the background, for a command or for the
// passes (""). While the lookup runs, silent is a *background.Running; its end begins
// another pass.
func (w *watcher) ask(ctx context.Context, pass time.Time, commit deploy.Commit, s subject, commandID string) (lookup, error) {
	found, err := w.lookups[s.provider].Do(ctx, lookupKey{s.app.ID, commandID}, commit.Hash, w.pollSoon, func(ctx context.Context) (lookup, error) {
		return w.lookUp(ctx, pass, commit, s)
	})
	var running *background.Running
	switch {
	case errors.As(err, &running):
		return lookup{silent: running}, nil
	case deploy.IsKind(err, deploy.Unavailable) && ctx.Err() == nil: // it was cancelled, because too many take long
		err = &SourceError{Err: err}
		w.silent.begin(sourceRespondent(s.app.ID), err, pass, w.Now())
		return lookup{silent: err}, nil
	}
	return found, err
}

// lookUp asks an application's cluster for the commits that run and, if a user must permit
// it, for the objects that the application would take over.
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

// question runs one query about an application against its provider's cluster. It returns
// the stored error while the cluster or the rendering is in backoff.
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
			w.log.Warn("cannot render an application to look for what runs of it; the application is held", "app", s.app.Name, "error", err)
		}
		return err, nil
	default:
		if w.silent.begin(cluster, err, pass, w.Now()) {
			w.log.Warn("cannot look for what runs; applications that may run there are held", "cluster", s.provider, "error", err)
		}
		return err, nil
	}
	if err == nil {
		if w.silent.end(cluster, pass) {
			w.log.Info("what runs can be looked for again", "cluster", s.provider)
		}
		w.silent.end(rendering, pass)
	}
	return nil, err
}

// taken returns the newest of these commits that the branch has, without those
// from which the application was deployed here; the zero commit if there is none.
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
			return deploy.Commit{}, nil // it has failed, and would again
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

// takeOverRequest returns the deployment that takes over what runs at a commit,
// nil when the application cannot be deployed from there.
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
	r.reason, r.Chain, r.Deployment.ChainID = summary, nil, "" // nothing new comes of it
	return &r, err
}

// takingOver reports whether the application's last deployment takes over what
// runs and has not ended: what the branch has brought since waits for it.
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
