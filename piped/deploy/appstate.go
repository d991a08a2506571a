package deploy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// AppState is the state of an application in one word. Lists and pages show the same one.
type AppState string

// The states of an application.
const (
	StateSynced        AppState = "SYNCED"               // live, and nothing differs
	StateDeploying     AppState = "DEPLOYING"            // a deployment is under way
	StateWaiting       AppState = "WAITING_FOR_APPROVAL" // a deployment waits for a user
	StateHeld          AppState = "HELD"                 // by a rollback, a window, a chain or an adoption
	StateDrifted       AppState = "DRIFTED"              // differs from Git
	StateFailed        AppState = "FAILED"               // the last deployment failed
	StateDegraded      AppState = "DEGRADED"             // without a deployment
	StateInvalidConfig AppState = "INVALID_CONFIG"
	StateUnknown       AppState = "UNKNOWN" // such as while the cluster does not answer
)

// AppStates lists every state, the worst first.
func AppStates() []AppState {
	return []AppState{
		StateFailed, StateDegraded, StateInvalidConfig, StateDrifted, StateUnknown, StateWaiting, StateHeld, StateDeploying, StateSynced,
	}
}

// Situation is what is known of an application.
type Situation struct {
	App Application
	// Current is the active deployment, else the last triggered one if it has not ended; nil
	// without one.
	Current *Deployment
	// Last is the last triggered deployment; nil before the first.
	Last *Deployment
	// Health is the worst health of the objects, "" if it is not known.
	Health       Health
	HealthReason string
	HealthSince  time.Time // zero if not known
	// AdoptionSince is when a decision about live objects was first required; zero if none is.
	AdoptionSince time.Time
	// Drift is the report of the current period of drift; zero without one.
	Drift DriftReport
}

// AppStatus is a state with its reason.
type AppStatus struct {
	State  AppState
	Detail string // StateDeploying: the stage and its place; StateFailed: the live commit; "" for none
	Reason string // one line; "" if there is nothing to explain
	Since  time.Time
}

// StateOf returns the state of an application: that of a deployment that has not ended, else
// the first of invalid config, held by an adoption, failed, degraded, drifted, held, unknown
// and synced that applies.
func StateOf(s Situation) AppStatus {
	if s.Current != nil && !s.Current.Status.Completed() {
		return underWay(s.Current)
	}
	sync := s.App.Sync
	reason := firstLine(cmp.Or(sync.ShortReason, sync.Reason))
	switch {
	case sync.Status == SyncInvalidConfig:
		return AppStatus{State: StateInvalidConfig, Reason: firstLine(cmp.Or(sync.Reason, sync.ShortReason)), Since: sync.At}
	case !s.AdoptionSince.IsZero():
		return AppStatus{State: StateHeld, Reason: "live objects await the decision whether the application takes them over", Since: s.AdoptionSince}
	case s.Last != nil && s.Last.Status == Failure:
		failed := AppStatus{State: StateFailed, Reason: firstLine(cmp.Or(s.Last.OutcomeReason, s.Last.StatusReason)), Since: s.Last.CompletedAt}
		if s.App.LastSuccessful != nil {
			failed.Detail = s.App.LastSuccessful.Trigger.Commit.Short()
		}
		return failed
	case s.Health == HealthDegraded:
		return AppStatus{State: StateDegraded, Reason: firstLine(s.HealthReason), Since: s.HealthSince}
	case sync.Status == OutOfSync:
		since := s.Drift.BeganAt
		if since.IsZero() {
			since = sync.At
		}
		return AppStatus{State: StateDrifted, Reason: cmp.Or(s.Drift.Line().Text, reason), Since: since}
	case s.App.Hold != nil:
		return AppStatus{State: StateHeld, Reason: heldBy(s.App.Hold), Since: s.App.Hold.Since}
	case sync.Status == Synced:
		return AppStatus{State: StateSynced, Since: sync.At}
	}
	return AppStatus{State: StateUnknown, Reason: reason, Since: sync.At}
}

// underWay returns the state of an application with a deployment that has not ended.
func underWay(d *Deployment) AppStatus {
	w := d.Wait()
	switch {
	case w == nil: // between two stages
		return AppStatus{State: StateDeploying, Detail: stagePlace(d, ""), Since: d.UpdatedAt}
	case w.Approval:
		return AppStatus{State: StateWaiting, Reason: w.For, Since: w.Since}
	case d.isHeld():
		return AppStatus{State: StateHeld, Reason: strings.TrimPrefix(firstLine(w.For), heldPrefix), Since: w.Since}
	case d.Status == RollingBack:
		return AppStatus{State: StateDeploying, Detail: stagePlace(d, w.StageID), Reason: firstLine(d.OutcomeReason), Since: w.Since}
	case w.StageID == "":
		return AppStatus{State: StateDeploying, Reason: "it waits for " + firstLine(w.For), Since: w.Since}
	}
	return AppStatus{State: StateDeploying, Detail: stagePlace(d, w.StageID), Since: w.Since}
}

// heldPrefix begins the status reason of a deployment that a sync window or another agent
// holds.
const heldPrefix = "Held: "

// isHeld reports whether a sync window, another agent or the deployment chain holds d.
func (d *Deployment) isHeld() bool {
	return d.Status == Pending && (strings.HasPrefix(d.StatusReason, heldPrefix) || strings.HasSuffix(d.StatusReason, "of the deployment chain"))
}

// stagePlace returns the name of a stage and its place among those that run in the same phase,
// such as "K8S_SYNC 1 of 2"; "" for no stage.
func stagePlace(d *Deployment, id string) string {
	stage := d.Stage(id)
	if stage == nil {
		return ""
	}
	place, all := 0, 0
	for _, other := range d.Stages {
		if other.Rollback != stage.Rollback {
			continue
		}
		if all++; other.ID == id {
			place = all
		}
	}
	return fmt.Sprintf("%s %d of %d", stage.Name, place, all)
}

// heldBy describes a hold without its commit and time.
func heldBy(h *Hold) string {
	if h.Reason == "" {
		return "held by " + h.By
	}
	return "held by " + h.By + ": " + firstLine(h.Reason)
}

// Word returns the state in words. Times are in the location of now.
func (s AppStatus) Word(now time.Time) string {
	switch s.State {
	case StateDeploying:
		return cmp.Or(s.Detail, "Deploying")
	case StateWaiting:
		return "Waiting for approval"
	case StateHeld:
		return "Held"
	case StateDrifted:
		return "Drifted"
	case StateFailed:
		if s.Detail != "" {
			return "Failed, " + s.Detail + " live"
		}
		return "Failed"
	case StateDegraded:
		return "Degraded"
	case StateInvalidConfig:
		return "Invalid config"
	case StateUnknown:
		return "Unknown" + since(s.Since, now)
	}
	return "Synced"
}

// since returns " since" with the time, "" for the zero time. The date is omitted today.
func since(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	t = t.In(now.Location())
	layout := "2006-01-02 15:04"
	if t.Format(time.DateOnly) == now.Format(time.DateOnly) {
		layout = "15:04"
	}
	return " since " + t.Format(layout)
}

// Headline answers in one sentence whether an application is live, and if not, why. Times are
// in the location of now.
func Headline(s Situation, now time.Time) string {
	name, status := s.App.Name, StateOf(s)
	if s.App.Deleted {
		return name + " is deleted."
	}
	text := ""
	switch status.State {
	case StateDeploying, StateWaiting:
		text = fmt.Sprintf("%s is not live at %s yet: %s%s; %s", name, s.Current.Trigger.Commit.Short(), obstacle(status), since(status.Since, now), s.live())
	case StateHeld:
		text = s.heldHeadline(status, now)
	case StateFailed:
		text = fmt.Sprintf("%s is not live at %s: %s; %s", name, s.Last.Trigger.Commit.Short(), clause(status.Reason, "its deployment failed"), s.live())
	case StateDegraded:
		text = fmt.Sprintf("%s is not live: %s%s; %s", name, clause(status.Reason, "it is degraded"), since(status.Since, now), s.deployed())
	case StateInvalidConfig:
		text = s.lead(now) + "; its configuration is invalid: " + clause(status.Reason, "no reason is known")
	case StateDrifted:
		text = s.lead(now) + "; " + clause(status.Reason, "it differs from Git")
	case StateUnknown:
		text = s.unknownHeadline(status, now)
	default:
		text = s.lead(now) + "; nothing differs"
	}
	if s.App.Disabled {
		text += "; it is disabled"
	}
	return text + "."
}

// obstacle says what a deployment under way does or waits for.
func obstacle(s AppStatus) string {
	switch {
	case s.State == StateWaiting:
		return "it waits for " + s.Reason
	case s.Detail == "":
		return clause(s.Reason, "its deployment is under way")
	case s.Reason != "":
		return fmt.Sprintf("%s, %s is under way", clause(s.Reason, ""), s.Detail)
	}
	return s.Detail + " is under way"
}

func (s Situation) heldHeadline(status AppStatus, now time.Time) string {
	switch {
	case s.Current != nil && !s.Current.Status.Completed():
		return fmt.Sprintf("%s is not live at %s yet: its deployment is held%s: %s; %s",
			s.App.Name, s.Current.Trigger.Commit.Short(), since(status.Since, now), clause(status.Reason, ""), s.live())
	case !s.AdoptionSince.IsZero():
		return fmt.Sprintf("%s is held%s: %s; %s", s.App.Name, since(status.Since, now), status.Reason, s.live())
	}
	return s.lead(now) + "; it is " + clause(status.Reason, "")
}

func (s Situation) unknownHeadline(status AppStatus, now time.Time) string {
	if s.App.LastSuccessful == nil && s.Last == nil {
		return s.App.Name + " is not live: it was never deployed"
	}
	return fmt.Sprintf("It is not known%s whether %s is live: %s; %s",
		since(status.Since, now), s.App.Name, clause(status.Reason, "it was not compared with its cluster yet"), s.deployed())
}

// lead says where an application is live, since when and by whom.
func (s Situation) lead(now time.Time) string {
	last := s.App.LastSuccessful
	if last == nil {
		if s.App.Sync.Status == Synced {
			return s.App.Name + " is live"
		}
		return s.App.Name + " has no successful deployment"
	}
	text := s.App.Name + " is live at " + last.Trigger.Commit.Short() + since(last.CompletedAt, now)
	if by := last.Trigger.By(); by != "" {
		text += ", by " + by
	}
	return text
}

// live names the commit that is live meanwhile.
func (s Situation) live() string {
	if s.App.LastSuccessful == nil {
		return "no earlier version is live"
	}
	return s.App.LastSuccessful.Trigger.Commit.Short() + " is live"
}

// deployed names the commit that was deployed last.
func (s Situation) deployed() string {
	if s.App.LastSuccessful == nil {
		return "no deployment has succeeded"
	}
	return s.App.LastSuccessful.Trigger.Commit.Short() + " was deployed last"
}

// By returns the user who requested a deployment, else the author of its commit. A deployment
// chain requests those of its later blocks.
func (t Trigger) By() string {
	if t.Kind == OnChain && t.Commander != "" {
		return "deployment chain " + t.Commander[:min(len(t.Commander), 8)]
	}
	return cmp.Or(t.Commander, t.Commit.Author)
}

// clause returns text without its end of sentence, or other if it is empty.
func clause(text, other string) string {
	return cmp.Or(strings.TrimRight(firstLine(text), ". "), other)
}

// maxLine limits the reasons in lists.
const maxLine = 300

// firstLine returns the first line of a text, shortened to maxLine runes.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(line); len(runes) > maxLine {
		return string(runes[:maxLine-1]) + "…"
	}
	return strings.TrimSpace(line)
}

// DriftLine describes a drift report in one line.
type DriftLine struct {
	Text     string // "" without a difference
	Objects  int
	Fields   int
	Managers []string // sorted
}

// Line describes the differences in one line.
func (r DriftReport) Line() DriftLine {
	l := DriftLine{Objects: len(r.Objects)}
	var only *FieldDrift
	missing, extra := 0, 0
	for _, o := range r.Objects {
		switch o.Kind {
		case DriftMissing:
			missing++
		case DriftExtra:
			extra++
		}
		for i := range o.Fields {
			l.Fields, only = l.Fields+1, &o.Fields[i]
			if m := o.Fields[i].Manager; m != "" {
				l.Managers = append(l.Managers, m)
			}
		}
	}
	slices.Sort(l.Managers)
	l.Managers = slices.Compact(l.Managers)
	var parts []string
	if l.Fields == 1 {
		parts = append(parts, "1 field differs: "+only.String())
	} else if l.Fields > 1 {
		parts = append(parts, fmt.Sprintf("%d fields differ", l.Fields))
	}
	for _, c := range []struct {
		n         int
		one, many string
	}{
		{missing, "1 object is missing", "%d objects are missing"}, {extra, "1 object is not in Git", "%d objects are not in Git"},
		{len(r.Undeployed), "1 commit is not deployed", "%d commits are not deployed"},
	} {
		if c.n == 1 {
			parts = append(parts, c.one)
		} else if c.n > 1 {
			parts = append(parts, fmt.Sprintf(c.many, c.n))
		}
	}
	if l.Text = strings.Join(parts, ", "); len(l.Managers) > 0 {
		l.Text += ", changed by " + strings.Join(l.Managers, ", ")
	}
	return l
}

// String describes the field, such as "spec.replicas 3 → 5". Values that are secret or long
// are omitted.
func (f FieldDrift) String() string {
	if f.Masked || len(f.Git)+len(f.Live) > maxValues {
		return f.Path
	}
	return fmt.Sprintf("%s %s → %s", f.Path, cmp.Or(f.Git, "(none)"), cmp.Or(f.Live, "(none)"))
}

// maxValues limits the values in a FieldDrift's text.
const maxValues = 80
