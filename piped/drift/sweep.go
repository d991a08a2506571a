package drift

import (
	"hash/fnv"
	"time"
)

// sweepInterval is how often objects are looked for whose time has come.
const sweepInterval = 10 * time.Second

// sweep has the objects compared whose time came after from and not after to. Each
// has its time in every SweepEvery by its UID alone, so that they are spread evenly,
// and stay so over restarts.
func (d *Detector) sweep(from, to time.Time) {
	if !to.After(from) {
		return // the clock was put back
	}
	d.mu.Lock()
	subjects := make([]*subject, 0, len(d.subjects))
	for _, s := range d.subjects {
		subjects = append(subjects, s)
	}
	d.mu.Unlock()
	for _, s := range subjects {
		if due := s.due(from, to, d.SweepEvery); len(due) > 0 {
			d.hint(s.id, func(h *hints) {
				for _, k := range due {
					h.addSweep(k)
				}
			})
			d.later(s.id, 0)
		}
	}
}

// due returns the keys of the objects whose time has come. While they are judged there
// are none; the next time there are more.
func (s *subject) due(from, to time.Time, every time.Duration) (keys []string) {
	if !s.mu.TryLock() {
		return nil
	}
	defer s.mu.Unlock()
	if !s.sweptTo.IsZero() {
		from = s.sweptTo // it may have been passed over
	}
	s.sweptTo = to
	if s.expected == nil {
		return nil
	}
	for k, t := range s.expected.objects {
		if t.wanted && !t.ignored && t.uid != "" && falls(t.uid, from, to, every) {
			keys = append(keys, k)
		}
	}
	return keys
}

// falls reports whether the time of a UID lies after from and not after to.
func falls(uid string, from, to time.Time, every time.Duration) bool {
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
