package trigger

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/background"
	"github.com/c785c783/piped/piped/deploy"
)

// minSilence and maxSilence bound the backoff of queries to a cluster that does not answer,
// because each query delays the pass over the repository.
const (
	minSilence = 15 * time.Second
	maxSilence = 2 * time.Minute
)

// respondent identifies what must work to find live objects: a cluster, or the rendering of
// one application. One of the fields is set.
type respondent struct{ provider, applicationID string }

func clusterRespondent(provider string) respondent { return respondent{provider: provider} }

func sourceRespondent(applicationID string) respondent {
	return respondent{applicationID: applicationID}
}

// silences contains the respondents that did not answer, each with its backoff.
type silences struct {
	mu sync.Mutex
	by map[respondent]silence
}

// silence is the backoff of a respondent that did not answer.
type silence struct {
	times int       // consecutive queries without an answer
	until time.Time // end of the backoff
	err   error     // of the last query
}

// resting returns the last error of a respondent that is in backoff when a pass begins, nil
// if it is not: then it may be queried.
func (s *silences) resting(asked respondent, pass time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.by[asked]; known.until.After(pass) {
		return known.err
	}
	return nil
}

// begin records that a respondent did not answer in a pass that began at a time, and starts
// its backoff. first reports whether it answered before.
func (s *silences) begin(asked respondent, err error, pass, now time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, again := s.by[asked]
	if known.until.After(pass) {
		return false // another query of this pass has recorded it
	}
	rest := min(minSilence<<min(known.times, 10), maxSilence)
	s.by[asked] = silence{times: known.times + 1, until: now.Add(rest), err: err}
	return !again
}

// end records that a respondent has answered, and reports whether it had failed to before.
// It does nothing if the backoff ends after now: then another query of the same pass has
// failed.
func (s *silences) end(asked respondent, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, was := s.by[asked]
	if known.until.After(now) {
		return false
	}
	delete(s.by, asked)
	return was
}

// keep removes all respondents except those for which held returns true: an application
// waits for them.
func (s *silences) keep(held func(respondent) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.by, func(asked respondent, _ silence) bool { return !held(asked) })
}

// due reports whether the backoff of a respondent has ended.
func (s *silences) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.by {
		if !known.until.After(now) {
			return true
		}
	}
	return false
}

// waiting begins the notice on an application that is held.
const waiting = "Not deployed yet: "

// sayHeld stores on each held application a notice that explains why it is held, and
// removes that notice from the others.
func (w *watcher) sayHeld(ctx context.Context, apps map[string]deploy.Application, held map[string]error, awaited map[string]deploy.Adoption) error {
	var errs []error
	for id, app := range apps {
		notice := ""
		if err := held[id]; working(err) {
			continue
		} else if err != nil {
			notice = waiting + w.heldNotice(err)
		} else if a, ok := awaited[id]; ok {
			notice = waiting + awaitedNotice(a)
		}
		if notice == "" && strings.HasPrefix(app.Notice, waiting) {
			notice = w.unreadNotice(id)
		}
		if notice == app.Notice || notice == "" && !strings.HasPrefix(app.Notice, waiting) || app.Deleted {
			continue
		}
		_, err := w.Store.SetNotice(ctx, id, notice, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// working reports whether an application is held only because its rendering has not ended,
// and the rendering waits for nothing outside of the agent. It ends soon, so that no notice
// is needed.
func working(err error) bool {
	var running *background.Running
	return errors.As(err, &running) && running.On == ""
}

// heldNotice explains why an application is held, when the agent tries again, and what a
// user can do.
func (w *watcher) heldNotice(err error) string {
	every := ", at least every " + strings.TrimSuffix(maxSilence.String(), "0s")
	var running *background.Running
	if errors.As(err, &running) {
		return "its rendering takes long: " + err.Error() + ". It is deployed when that has come; no other application waits for it"
	}
	var unreadable *SourceError
	if errors.As(err, &unreadable) {
		return "it cannot be rendered now: " + err.Error() + ". It is tried again" + every + "; no other application waits for it"
	}
	notice := "whether something of it runs already could not be found out: " + err.Error() + ". The cluster is asked again" + every
	if !w.Review {
		notice += "; to deploy without waiting for it, sync by hand"
	}
	return notice
}
