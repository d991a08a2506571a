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

// minSilence and maxSilence bound how long a cluster that does not answer is left
// alone before it is asked again: asking holds up the repository.
const (
	minSilence = 15 * time.Second
	maxSilence = 2 * time.Minute
)

// respondent is what a question about live objects depends on: a cluster, or the
// source of one application.
type respondent struct{ provider, applicationID string }

func clusterRespondent(provider string) respondent { return respondent{provider: provider} }

func sourceRespondent(applicationID string) respondent {
	return respondent{applicationID: applicationID}
}

// silences are the respondents that did not answer what runs. They are asked again
// after a while, less and less often.
type silences struct {
	mu sync.Mutex
	by map[respondent]silence
}

type silence struct {
	times int       // consecutive queries without an answer
	until time.Time // from when on it is asked again
	err   error     // what came instead of the last answer
}

// resting returns why a respondent is not to be asked in a pass that began at a time,
// nil if it is.
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
		return false // by another question of the pass
	}
	rest := min(minSilence<<min(known.times, 10), maxSilence)
	s.by[asked] = silence{times: known.times + 1, until: now.Add(rest), err: err}
	return !again
}

// end records that a respondent answers, and reports whether it did not before. It stays
// silent if it left another query of the same time without an answer.
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

// keep forgets all respondents but those for which held reports that an application
// waits.
func (s *silences) keep(held func(respondent) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.by, func(asked respondent, _ silence) bool { return !held(asked) })
}

// due reports whether one of them is to be asked again.
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

// waiting begins the notice on an application whose cluster is silent.
const waiting = "Not deployed yet: "

// sayHeld says on the applications that are held why they are, and takes it back
// where they are not any more.
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

// working reports whether an application is held for no other reason than that its
// rendering, which waits for nothing outside of the agent, has not ended: it soon does.
func working(err error) bool {
	var running *background.Running
	return errors.As(err, &running) && running.On == ""
}

// heldNotice says why an application is held, when that is tried again, and what a
// person can do.
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
