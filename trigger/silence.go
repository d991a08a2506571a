package trigger

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// minSilence and maxSilence bound how long a cluster that does not answer is left
// alone before it is asked again: asking holds up the repository.
const (
	minSilence = 15 * time.Second
	maxSilence = 2 * time.Minute
)

// silences are the clusters that did not answer what runs in them, by provider.
// They are asked again after a while, less and less often.
type silences struct {
	mu         sync.Mutex
	byProvider map[string]silence
}

type silence struct {
	times int       // that it was asked in vain, one after the other
	until time.Time // from when on it is asked again
	err   error     // what came instead of the last answer
}

// resting returns why a cluster is not to be asked in a pass that began at a time,
// nil if it is.
func (s *silences) resting(provider string, pass time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.byProvider[provider]; known.until.After(pass) {
		return known.err
	}
	return nil
}

// begin notes that a cluster did not answer in a pass that began at a time; now it
// rests. First tells whether it did answer before.
func (s *silences) begin(provider string, err error, pass, now time.Time) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, again := s.byProvider[provider]
	if known.until.After(pass) {
		return false // by another question of the pass
	}
	rest := min(minSilence<<min(known.times, 10), maxSilence)
	s.byProvider[provider] = silence{times: known.times + 1, until: now.Add(rest), err: err}
	return !again
}

// end notes that a cluster answers, and tells whether it did not before. One that
// has left another question of the same time without an answer stays silent.
func (s *silences) end(provider string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, was := s.byProvider[provider]
	if known.until.After(now) {
		return false
	}
	delete(s.byProvider, provider)
	return was
}

// keep forgets all clusters but these: nobody waits for the others any more.
func (s *silences) keep(providers map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for provider := range s.byProvider {
		if !providers[provider] {
			delete(s.byProvider, provider)
		}
	}
}

// due reports whether one of them is to be asked again.
func (s *silences) due(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, known := range s.byProvider {
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
		if err := held[id]; err != nil {
			notice = waiting + "whether something of it runs already could not be found out: " + err.Error() +
				". The cluster is asked again, at least every " + strings.TrimSuffix(maxSilence.String(), "0s")
			if !w.Review {
				notice += "; to deploy without waiting for it, sync by hand"
			}
		} else if a, ok := awaited[id]; ok {
			notice = waiting + awaitedNotice(a)
		}
		if notice == app.Notice || notice == "" && !strings.HasPrefix(app.Notice, waiting) || app.Deleted {
			continue
		}
		_, err := w.Store.SetNotice(ctx, id, notice, nil)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
