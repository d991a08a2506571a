package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the cases, whatever the machine has

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fataler is a test of either kind.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func windows(tb fataler, lines ...string) SyncWindows {
	tb.Helper()
	spec := "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  syncWindows:\n"
	for _, l := range lines {
		spec += "    - {" + l + "}\n"
	}
	app, err := kinds.ParseApplication("app.pipecd.yaml", []byte(spec))
	if err != nil {
		tb.Fatal(err)
	}
	return app.SyncWindows
}

func moment(tb testing.TB, text string) time.Time {
	tb.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		tb.Fatal(err)
	}
	return at
}

const (
	office  = `kind: allow, schedule: "0 9 * * 1-5", duration: 8h`
	lunch   = `kind: deny, schedule: "0 12 * * *", duration: 1h`
	freeze  = `kind: deny, schedule: "0 0 20 12 *", duration: 336h, manualSync: false`
	always  = `kind: deny, schedule: "* * * * *", duration: 2m`
	evening = `kind: allow, schedule: "0 20 * * *", duration: 1h, manualSync: false`
	berlin  = `kind: allow, schedule: "0 9 * * *", duration: 8h, timeZone: Europe/Berlin`
)

// TestHold states when deployments may start. 2026-03-02 is a Monday.
func TestHold(t *testing.T) {
	const override = "sync by hand with pipectl application sync to override"
	tests := []struct {
		name, now string
		windows   []string
		until     string // "" when it may start
		reason    string
		byHand    bool // may a sync by hand start
	}{
		{"no windows", "2026-03-02T03:00:00Z", nil, "", "", true},
		{"inside an allowed time", "2026-03-02T09:00:00Z", []string{office}, "", "", true},
		{"up to its last moment", "2026-03-02T16:59:59.999Z", []string{office}, "", "", true},
		{"its end is outside", "2026-03-02T17:00:00Z", []string{office}, "2026-03-03T09:00:00Z",
			"outside the sync windows: next opens at 2026-03-03 09:00 UTC; " + override, true},
		{"just before it begins", "2026-03-02T08:59:59.5Z", []string{office}, "2026-03-02T09:00:00Z",
			"outside the sync windows: next opens at 2026-03-02 09:00 UTC; " + override, true},
		{"over a weekend", "2026-03-06T18:00:00Z", []string{office}, "2026-03-09T09:00:00Z",
			"outside the sync windows: next opens at 2026-03-09 09:00 UTC; " + override, true},
		{"a denied time", "2026-03-02T12:30:00Z", []string{lunch}, "2026-03-02T13:00:00Z",
			"a sync window (0 12 * * * for 1h0m0s, UTC) denies deployments: next opens at 2026-03-02 13:00 UTC; " + override, true},
		{"from its first moment", "2026-03-02T12:00:00Z", []string{lunch}, "2026-03-02T13:00:00Z",
			"a sync window (0 12 * * * for 1h0m0s, UTC) denies deployments: next opens at 2026-03-02 13:00 UTC; " + override, true},
		{"outside a denied time", "2026-03-02T13:00:00Z", []string{lunch}, "", "", true},
		{"deny wins over allow", "2026-03-02T12:30:00Z", []string{office, lunch}, "2026-03-02T13:00:00Z",
			"a sync window (0 12 * * * for 1h0m0s, UTC) denies deployments: next opens at 2026-03-02 13:00 UTC; " + override, true},
		{"an allowed time that a denied one covers is not the next", "2026-12-18T18:00:00Z", []string{office, freeze}, "2027-01-04T09:00:00Z",
			"outside the sync windows: next opens at 2027-01-04 09:00 UTC; " + override, true},
		{"one that no hand opens", "2026-12-24T10:00:00Z", []string{freeze}, "2027-01-03T00:00:00Z",
			"a sync window (0 0 20 12 * for 336h0m0s, UTC) denies deployments: next opens at 2027-01-03 00:00 UTC; syncs by hand are held as well, unless with --override-sync-windows", false},
		{"one of two allows no hand outside of both", "2026-03-02T18:00:00Z", []string{office, evening}, "2026-03-02T20:00:00Z",
			"outside the sync windows: next opens at 2026-03-02 20:00 UTC; syncs by hand are held as well, unless with --override-sync-windows", false},
		{"but inside of one of them", "2026-03-02T10:00:00Z", []string{office, evening}, "", "", true},
		{"never", "2026-03-02T10:00:00Z", []string{always}, "2026-03-05T21:21:00Z",
			"a sync window (* * * * * for 2m0s, UTC) denies deployments: does not open before 2026-03-05 21:21 UTC; " + override, true},
		{"in its own time zone", "2026-03-02T07:59:00Z", []string{berlin}, "2026-03-02T08:00:00Z",
			"outside the sync windows: next opens at 2026-03-02 09:00 CET; " + override, true},
		{"also in summer", "2026-07-02T06:59:00Z", []string{berlin}, "2026-07-02T07:00:00Z",
			"outside the sync windows: next opens at 2026-07-02 09:00 CEST; " + override, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, now := windows(t, tt.windows...), moment(t, tt.now)
			until, reason := w.Hold(now, false)
			if reason != tt.reason {
				t.Errorf("got  %q\nwant %q", reason, tt.reason)
			}
			if want := tt.until; want == "" && !until.IsZero() || want != "" && !until.Equal(moment(t, want)) {
				t.Errorf("got until %s, want %s", until, want)
			}
			if _, reason := w.Hold(now, true); (reason == "") != tt.byHand {
				t.Errorf("by hand: %q", reason)
			}
		})
	}
}

func schedule(tb testing.TB, text string) (s Schedule) {
	tb.Helper()
	if err := s.UnmarshalText([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	return s
}

// TestScheduleWhereClocksChange: what a clock skips does not come, what it
// repeats comes twice, and no day is lost where there is no midnight.
func TestScheduleWhereClocksChange(t *testing.T) {
	tests := []struct{ zone, schedule, from, want string }{
		{"Africa/Cairo", "0 12 * * 5", "2026-04-20 00:00 EET", "2026-04-24 12:00 EEST"}, // no midnight that day
		{"Africa/Cairo", "30 0 * * *", "2026-04-23 12:00 EET", "2026-04-25 00:30 EEST"},
		{"America/Havana", "0 12 * * 0", "2026-03-07 12:00 CST", "2026-03-08 12:00 CDT"}, // no midnight either
		{"America/Havana", "30 0 * * *", "2026-10-31 12:00 CDT", "2026-11-01 00:30 CDT"}, // midnight twice
		{"America/Havana", "30 0 * * *", "2026-11-01 00:30 CDT", "2026-11-01 00:30 CST"},
		{"America/Havana", "0 0 1 * *", "2026-10-31 12:00 CDT", "2026-11-01 00:00 CDT"},
		{"Europe/Berlin", "30 2 * * *", "2026-03-28 12:00 CET", "2026-03-30 02:30 CEST"},
		{"Europe/Berlin", "30 2 * * *", "2026-10-25 02:30 CEST", "2026-10-25 02:30 CET"},
		{"UTC", "0 0 29 2 *", "2026-03-01 00:00 UTC", "2028-02-29 00:00 UTC"},
		{"UTC", "0 0 29 2 *", "2096-03-01 00:00 UTC", "2104-02-29 00:00 UTC"},
		{"UTC", "59 23 31 12 *", "2026-12-31 23:59 UTC", "2027-12-31 23:59 UTC"},
	}
	for _, tt := range tests {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		const layout = "2006-01-02 15:04 MST"
		from, err := time.ParseInLocation(layout, tt.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		if got := schedule(t, tt.schedule).next(from).Format(layout); got != tt.want {
			t.Errorf("%s: %s after %s: got %s, want %s", tt.zone, tt.schedule, tt.from, got, tt.want)
		}
	}
}

func TestSyncWindowFields(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := SyncWindows{
		{Kind: WindowAllow, Schedule: schedule(t, "0 9 * * 1-5"), Duration: 8 * time.Hour, TimeZone: TimeZone{berlin}, ManualSync: true},
		{Kind: WindowDeny, Schedule: schedule(t, "*/30 12 1,15 JAN-JUN SUN"), Duration: 90 * time.Minute},
		{Kind: WindowDeny, Schedule: schedule(t, "0 0 29 2 *"), Duration: 24 * time.Hour, ManualSync: true},
	}
	if diff := cmp.Diff(want, parseCase(t, "valid-sync-windows").SyncWindows); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// cronField is one field of a cron expression, with the values it stands for.
type cronField struct {
	text   string
	values []int
}

func (f cronField) has(v int) bool { return slices.Contains(f.values, v) }

func drawField(t *rapid.T, name string, low, high int) cronField {
	all := func(step int) (values []int) {
		for v := low; v <= high; v += step {
			values = append(values, v)
		}
		return values
	}
	a, b := rapid.IntRange(low, high).Draw(t, name), rapid.IntRange(low, high).Draw(t, name)
	a, b = min(a, b), max(a, b)
	return rapid.SampledFrom([]cronField{
		{"*", all(1)},
		{"*/7", all(7)},
		{fmt.Sprint(a), []int{a}},
		{fmt.Sprintf("%d-%d", a, b), all(1)[a-low : b-low+1]},
		{fmt.Sprintf("%d,%d", a, b), []int{a, b}},
	}).Draw(t, name)
}

// model is a window that is evaluated at every minute.
type model struct {
	minute, hour, dom, dow cronField
	kind                   WindowKind
	minutes                int
	zone                   *time.Location
	manual                 bool
}

func drawModel(t *rapid.T) model {
	zones := []string{"UTC", "Europe/Berlin", "Asia/Kolkata", "Africa/Cairo", "America/Havana", "Australia/Lord_Howe"}
	zone, err := time.LoadLocation(rapid.SampledFrom(zones).Draw(t, "zone"))
	if err != nil {
		t.Fatal(err)
	}
	return model{
		minute: drawField(t, "minute", 0, 59), hour: drawField(t, "hour", 0, 23),
		dom: drawField(t, "day of month", 1, 31), dow: drawField(t, "day of week", 0, 6),
		kind:    rapid.SampledFrom([]WindowKind{WindowAllow, WindowDeny}).Draw(t, "kind"),
		minutes: rapid.SampledFrom([]int{1, 20, 60, 600, 3000}).Draw(t, "minutes"),
		zone:    zone, manual: rapid.Bool().Draw(t, "manualSync"),
	}
}

func (m model) text() string {
	return fmt.Sprintf(`kind: %s, schedule: "%s %s %s * %s", duration: %dm, timeZone: %s, manualSync: %t`,
		m.kind, m.minute.text, m.hour.text, m.dom.text, m.dow.text, m.minutes, m.zone, m.manual)
}

func (m model) begins(t time.Time) bool {
	t = t.In(m.zone)
	day := m.dom.has(t.Day()) || m.dow.has(int(t.Weekday()))
	if m.dom.text == "*" || m.dow.text == "*" {
		day = m.dom.has(t.Day()) && m.dow.has(int(t.Weekday()))
	}
	return m.minute.has(t.Minute()) && m.hour.has(t.Hour()) && day
}

// timeline is which minutes from a start on the windows are active in.
func (m model) timeline(start time.Time, minutes int) []bool {
	active, left := make([]bool, minutes), 0
	for at := start.Add(-time.Duration(m.minutes) * time.Minute); ; at = at.Add(time.Minute) {
		i := int(at.Sub(start) / time.Minute)
		if i >= minutes {
			return active
		}
		if m.begins(at) {
			left = m.minutes
		}
		if i >= 0 {
			active[i] = left > 0
		}
		left--
	}
}

// open reports for each minute whether a deployment may start.
func open(models []model, start time.Time, minutes int, manual bool) []bool {
	denied, allowed, allows, firm := make([]bool, minutes), make([]bool, minutes), false, false
	for _, m := range models {
		if m.kind == WindowAllow {
			allows, firm = true, firm || !m.manual
		} else if manual && m.manual {
			continue
		}
		for i, active := range m.timeline(start, minutes) {
			denied[i] = denied[i] || active && m.kind == WindowDeny
			allowed[i] = allowed[i] || active && m.kind == WindowAllow
		}
	}
	may := make([]bool, minutes)
	for i := range may {
		may[i] = !denied[i] && (allowed[i] || !allows || manual && !firm)
	}
	return may
}

// TestHoldAgreesWithCheckingEveryMinute: whatever the windows, Hold says what
// checking every minute says, and until is the first open one.
func TestHoldAgreesWithCheckingEveryMinute(t *testing.T) {
	const ahead = 5 * 24 * 60
	rapid.Check(t, func(t *rapid.T) {
		models := rapid.SliceOfN(rapid.Custom(drawModel), 1, 3).Draw(t, "windows")
		var texts []string
		for _, m := range models {
			texts = append(texts, m.text())
		}
		w := windows(t, texts...)
		days := rapid.IntRange(0, 365).Draw(t, "day")
		start := time.Date(2026, 1, 1, 0, rapid.IntRange(0, 24*60).Draw(t, "minute"), 0, 0, time.UTC).AddDate(0, 0, days)
		manual := rapid.Bool().Draw(t, "manual")
		may := open(models, start, ahead, manual)

		now := start.Add(time.Duration(rapid.IntRange(0, 59_999).Draw(t, "milliseconds")) * time.Millisecond)
		until, reason := w.Hold(now, manual)
		if (reason == "") != may[0] {
			t.Fatalf("got %q, want open: %t", reason, may[0])
		}
		if reason == "" {
			return
		}
		first := slices.Index(may, true)
		switch {
		case first >= 0 && strings.Contains(reason, "next opens") && !until.Equal(start.Add(time.Duration(first)*time.Minute)):
			t.Fatalf("got until %s, want %s: %s", until, start.Add(time.Duration(first)*time.Minute), reason)
		case first >= 0 && until.After(start.Add(time.Duration(first)*time.Minute)):
			t.Fatalf("got until %s, but it opens at %s: %s", until, start.Add(time.Duration(first)*time.Minute), reason)
		case first < 0 && until.Before(start.Add(ahead*time.Minute)) && strings.Contains(reason, "next opens"):
			t.Fatalf("got until %s, but it is closed then: %s", until, reason)
		}
	})
}

func TestTooManyWindowsAreRefused(t *testing.T) {
	spec := "apiVersion: pipecd.dev/v1beta1\nkind: KubernetesApp\nspec:\n  name: web\n  syncWindows:\n" + strings.Repeat("    - {"+office+"}\n", 101)
	_, err := kinds.ParseApplication("app.pipecd.yaml", []byte(spec))
	if want := "app.pipecd.yaml:6: spec.syncWindows: expected at most 100 windows, found 101"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
