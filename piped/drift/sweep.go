package drift

import (
	"hash/fnv"
	"time"
)

// sweepInterval is the interval of sweeps for due objects.
const sweepInterval = 10 * time.Second

// sweep enqueues the objects due between from (exclusive) and to (inclusive). An object's
// UID determines its time within SweepEvery, so that restarts do not affect it.
func (d *Detector) sweep(from, to time.Time) {
	if !to.After(from) {
		return // the clock was set back
	}
	d.mu.Lock()
	apps := make([]*appState, 0, len(d.apps))
	for _, s := range d.apps {
		apps = append(apps, s)
	}
	d.mu.Unlock()
	for _, s := range apps {
		if due := s.due(from, to, d.SweepEvery); len(due) > 0 {
			d.hint(s.id, func(h *hints) {
				for _, k := range due {
					h.addSweep(k)
				}
			})
			d.enqueueAfter(s.id, 0)
		}
	}
}

// due returns the keys of the due objects. During an evaluation it returns none; the
// next call includes them.
func (s *appState) due(from, to time.Time, every time.Duration) (keys []string) {
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	if !s.sweptTo.IsZero() {
		from = s.sweptTo // include skipped intervals
	}
	s.sweptTo = to
	if s.expected == nil {
		return nil
	}
	for k, t := range s.expected.objects {
		if t.wanted && !t.ignored && t.uid != "" && isDue(t.uid, from, to, every) {
			keys = append(keys, k)
		}
	}
	return keys
}

// isDue reports whether an object is to be compared between from (exclusive) and to
// (inclusive). Each object is due once in every; a hash of its UID says when, so that the
// comparisons are spread evenly.
func isDue(uid string, from, to time.Time, every time.Duration) bool {
	h := fnv.New64a()
	h.Write([]byte(uid))
	offset := int64(h.Sum64() % uint64(every))
	round := func(at time.Time) int64 { return (at.UnixNano() - offset) / int64(every) }
	return round(to) > round(from)
}

func (h *hints) addSweep(key string) {
	if h.sweep == nil {
		h.sweep = map[string]bool{}
	}
	h.sweep[key] = true
}
