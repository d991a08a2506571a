package rollout

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/c785c783/piped/piped/deploy"
)

// late gives a workload of the stand the condition of a progress deadline that the
// controller finds exceeded now.
func (s *stand) late(name string, available, old int32) {
	s.show(name, available, old)
	s.set(func() {
		snapshot := s.live[name]
		w := *snapshot.Workload
		w.Progressing = Condition{Status: "False", Reason: "ProgressDeadlineExceeded", Updated: time.Now()}
		snapshot.Workload = &w
		s.live[name], s.cached[name] = snapshot, snapshot
	})
	s.wakes[name]()
}

// outage makes the cluster unreachable for a while.
func (s *stand) outage(lasts time.Duration) {
	s.set(func() { s.down = deploy.Errorf(deploy.Unavailable, "connection refused") })
	time.Sleep(lasts)
	s.set(func() { s.down = nil })
}

// TestDeadlineOfAnOutageIsNotBelieved: the controller's first write after an outage says
// that the progress deadline is exceeded, because its clock continued.
func TestDeadlineOfAnOutageIsNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name  string
		comes time.Duration // when the last pod comes, after the outage; 0: never
		phase deploy.RolloutPhase
		after time.Duration // when the rollout ends after the outage, at most presenceInterval later
	}{
		{"the pods come soon", 20 * time.Second, deploy.RolloutComplete, 20 * time.Second},
		{"the pods come late", 35 * time.Second, deploy.RolloutComplete, 35 * time.Second},
		{"no pod comes: 20 s of the 60 s had passed", 0, deploy.RolloutFailed, 40 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStand()
				rec := s.applied("web")
				s.show("web", 1, 2)
				result := startWait(t.Context(), s.request(rec))
				time.Sleep(20 * time.Second)
				s.outage(15 * time.Minute)
				back := time.Now()
				s.late("web", 1, 2)
				if c.comes > 0 {
					time.Sleep(c.comes)
					s.show("web", 3, 0)
				}
				ended, err := result()
				if err != nil || ended[0].Phase != c.phase {
					t.Fatalf("%+v, %v", ended, err)
				}
				if took := time.Since(back); took < c.after || took > c.after+presenceInterval+5*time.Second {
					t.Errorf("ended %s after the outage, want %s", took, c.after)
				}
			})
		})
	}
}

// TestClocksWaitForTheControllers: the API server answers, but the controllers do not
// renew their Lease. No clock may run until they do, and then they must have time to act.
func TestClocksWaitForTheControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		stopped := false
		began := time.Now()
		last := 0
		s.lease = func() Lease { // renewed every 2 s unless the controllers are stopped
			if !stopped {
				last = int(time.Since(began) / (2 * time.Second))
			}
			return Lease{Renewal: fmt.Sprint("renewal ", last), Lasts: 15 * time.Second}
		}
		rec := s.applied("web")
		s.show("web", 1, 2)
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(30 * time.Second)
		s.set(func() { stopped = true })
		s.outage(10 * time.Minute)
		time.Sleep(10 * time.Minute) // only the API server is back
		var phase deploy.RolloutPhase
		s.set(func() { phase = s.stored["web"].Phase })
		if phase != deploy.RolloutProgressing {
			t.Fatalf("%s while the controllers are away", phase)
		}
		s.set(func() { stopped = false })
		back := time.Now()
		s.late("web", 1, 2)
		ended, err := result()
		if err != nil || ended[0].Phase != deploy.RolloutFailed {
			t.Fatalf("%+v, %v", ended, err)
		}
		if took := time.Since(back); took < 30*time.Second || took > 30*time.Second+2*presenceInterval {
			t.Errorf("failed %s after the controllers were back; 30 s of the 60 s had passed", took)
		}
		if !strings.Contains(strings.Join(s.lines, "\n"), "kube-controller-manager does not renew its Lease, no clock runs until it does") {
			t.Errorf("the log does not say why nothing is decided:\n%s", strings.Join(s.lines, "\n"))
		}
	})
}

// TestAgentAwayWithTheCluster: the node that runs the cluster and the agent was off for
// an hour, and the agent resumes the rollout. By their clock, the controllers find the
// deadline exceeded.
func TestAgentAwayWithTheCluster(t *testing.T) {
	for _, c := range []struct {
		name  string
		begin time.Duration // the controllers', before or after the agent
		down  time.Duration // the API server, after the agent began
		pods  time.Duration // become available, after the agent began; 0: never
		phase deploy.RolloutPhase
		after time.Duration // the agent began
	}{
		{"the controllers began before the agent", -5 * time.Second, 0, 25 * time.Second, deploy.RolloutComplete, 25 * time.Second},
		{"the controllers begin after the agent", 30 * time.Second, 0, 50 * time.Second, deploy.RolloutComplete, 50 * time.Second},
		{"no pod comes: 20 s of the 60 s had passed", -5 * time.Second, 0, 0, deploy.RolloutFailed, 40 * time.Second},
		{"the API server answers after the agent began", 40 * time.Second, 30 * time.Second, 75 * time.Second, deploy.RolloutComplete, 75 * time.Second},
		{"the controllers begin before the API server answers the agent", 20 * time.Second, 30 * time.Second, 65 * time.Second, deploy.RolloutComplete, 65 * time.Second},
		{"no pod comes after the API server answers", 40 * time.Second, 30 * time.Second, 0, deploy.RolloutFailed, 80 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStand()
				rec := s.applied("web")
				s.show("web", 1, 2)
				time.Sleep(20 * time.Second)
				rec.UpdatedAt = time.Now()
				off := time.Now()
				time.Sleep(time.Hour)
				began, back := time.Now(), time.Now().Add(c.begin)
				s.lease = func() Lease { // renewed every 2 s
					if n := time.Since(back) / (2 * time.Second); time.Since(back) >= 0 {
						return Lease{Renewal: fmt.Sprint("new ", n), Lasts: 15 * time.Second, Acquired: back, Renewed: back.Add(n * 2 * time.Second)}
					}
					return Lease{Renewal: "old", Lasts: 15 * time.Second, Acquired: off.Add(-time.Hour), Renewed: off}
				}
				s.wakes["web"] = func() {}
				s.late("web", 1, 2)
				if c.down > 0 {
					s.down = deploy.Errorf(deploy.Unavailable, "connection refused")
				}
				result := startWait(t.Context(), s.request(rec))
				time.Sleep(c.down)
				s.set(func() { s.down = nil })
				if c.pods > 0 {
					time.Sleep(c.pods - c.down)
					s.show("web", 3, 0)
				}
				ended, err := result()
				if err != nil || ended[0].Phase != c.phase {
					t.Fatalf("%+v, %v\n%s", ended, err, strings.Join(s.lines, "\n"))
				}
				if took := time.Since(began); took < c.after || took > c.after+presenceInterval+35*time.Second {
					t.Errorf("ended %s after the agent began, want %s", took, c.after)
				}
			})
		})
	}
}

// TestControllersAwayAlone: the API server answers all the time.
func TestControllersAwayAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand()
		s.lease = func() Lease { return Lease{Renewal: "the last one", Lasts: 15 * time.Second} }
		rec := s.applied("web")
		s.show("web", 1, 2)
		result := startWait(t.Context(), s.request(rec))
		time.Sleep(time.Hour)
		s.show("web", 3, 0) // an observed end is valid
		ended, err := result()
		if err != nil || ended[0].Phase != deploy.RolloutComplete {
			t.Fatalf("%+v, %v", ended, err)
		}
	})
}

// TestPresence: the meaning of readings of the Lease. Each reading is a second and a
// renewal; "-" is an API server that does not answer, "." one without the Lease.
func TestPresence(t *testing.T) {
	type reading struct {
		at      int
		renewal string
	}
	cases := []struct {
		name string
		seen []reading
		want []string
	}{
		{"renewed", []reading{{0, "a"}, {10, "b"}, {20, "c"}}, []string{"0: there", "10: there", "20: there"}},
		{"not renewed for its duration", []reading{{0, "a"}, {10, "a"}, {20, "a"}, {21, "b"}}, []string{"0: there", "10: there", "20: away", "21: back after 21s"}},
		{"no Lease", []reading{{0, "."}, {10, "."}, {20, "."}}, []string{"0: there", "10: there", "20: there"}},
		{"the clock is set while it is renewed", []reading{{0, "a"}, {10, "b"}, {25210, "c"}, {25220, "d"}}, []string{"0: there", "10: there", "25210: back after 7h0m0s", "25220: there"}},
		{"the agent sleeps, and finds it not renewed", []reading{{0, "a"}, {10, "b"}, {100, "b"}, {101, "c"}}, []string{"0: there", "10: there", "100: away", "101: back after 1m31s"}},
		{"the clock is set back", []reading{{25210, "a"}, {10, "b"}, {20, "c"}}, []string{"25210: there", "10: there", "20: there"}},
		{"an outage without a Lease", []reading{{0, "."}, {10, "-"}, {50, "."}}, []string{"0: there", "10: away", "50: back after 50s"}},
		{"an outage, renewed in it before it was seen", []reading{{0, "a"}, {10, "-"}, {50, "b"}, {51, "b"}, {53, "c"}},
			[]string{"0: there", "10: away", "50: away", "51: away", "53: back after 53s"}},
		{"away from the beginning", []reading{{5, "-"}, {9, "a"}, {10, "b"}}, []string{"5: away", "9: away", "10: back after 5s"}},
		{"twice", []reading{{0, "a"}, {10, "-"}, {11, "a"}, {12, "b"}, {20, "-"}, {21, "b"}, {23, "c"}},
			[]string{"0: there", "10: away", "11: away", "12: back after 12s", "20: away", "21: away", "23: back after 11s"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var p Presence
			var got []string
			for _, r := range c.seen {
				now := epoch.Add(time.Duration(r.at) * time.Second)
				was := time.Duration(0)
				switch r.renewal {
				case "-":
					p.Lost(now, deploy.Errorf(deploy.Unavailable, "connection refused"))
				case ".":
					was = p.Seen(now, Lease{})
				default:
					was = p.Seen(now, Lease{Renewal: r.renewal, Lasts: 15 * time.Second})
				}
				state := "there"
				switch {
				case was > 0:
					state = fmt.Sprintf("back after %s", was)
				case p.Policy(Policy{}, epoch).Away != "":
					state = "away"
				}
				got = append(got, fmt.Sprintf("%d: %s", r.at, state))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
