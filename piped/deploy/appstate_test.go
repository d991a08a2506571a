package deploy

import (
	"slices"
	"testing"
	"time"
)

// clockTimes of the tests: now is 15:00 in a zone two hours east of UTC.
var (
	zone  = time.FixedZone("east", 2*60*60)
	today = time.Date(2026, 5, 4, 15, 0, 0, 0, zone)
	at    = func(clock string) time.Time {
		t, err := time.ParseInLocation("15:04", clock, zone)
		if err != nil {
			panic(err)
		}
		return time.Date(2026, 5, 4, t.Hour(), t.Minute(), 0, 0, zone).UTC()
	}
)

const (
	newHash = "1f2ac83aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	oldHash = "84e16d9bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func success(hash string) *DeploymentRef {
	return &DeploymentRef{Trigger: Trigger{Commit: Commit{Hash: hash, Author: "Ana"}}, CompletedAt: at("14:02")}
}

func inState(status SyncStatus, reason string) Application {
	return Application{Name: "web", LastSuccessful: success(oldHash), Sync: SyncState{Status: status, ShortReason: reason, At: at("14:10")}}
}

func toNew(status Status, reason string, stages ...Stage) *Deployment {
	return &Deployment{
		Status: status, StatusReason: reason, Trigger: Trigger{Commit: Commit{Hash: newHash}}, Stages: stages,
		CreatedAt: at("14:30"), UpdatedAt: at("14:31"), CompletedAt: at("14:40"),
	}
}

func runs(name string) Stage {
	return Stage{ID: name, Name: name, Status: StageRunning, StartedAt: at("14:32")}
}

// TestStateAndHeadline holds the state of each situation against the table of states, and its
// sentence against what a person would say.
func TestStateAndHeadline(t *testing.T) {
	held := inState(Synced, "")
	held.Hold = &Hold{Commit: Commit{Hash: oldHash}, By: "bob", Reason: "login is broken", Since: at("14:20")}
	disabled := inState(Synced, "")
	disabled.Disabled = true
	chain := Chain{Blocks: []ChainBlock{block(Running), block(Pending)}}
	_, waitsForChain := chain.Turn(1)
	rollback := toNew(RollingBack, "rolling back", Stage{ID: "s", Name: StageK8sSync, Status: StageFailure}, Stage{ID: "r", Name: StageRollback, Rollback: true, Status: StageRunning, StartedAt: at("14:33")})
	rollback.OutcomeReason = "the image cannot be pulled"
	ofChain := inState(Synced, "")
	ofChain.LastSuccessful.Trigger.Kind, ofChain.LastSuccessful.Trigger.Commander = OnChain, "0123456789abcdef"
	for name, c := range map[string]struct {
		in       Situation
		state    AppState
		word     string
		headline string
	}{
		"synced": {
			Situation{App: inState(Synced, "")}, StateSynced, "Synced",
			"web is live at 84e16d9 since 14:02, by Ana; nothing differs.",
		},
		"synced by a chain": {
			Situation{App: ofChain}, StateSynced, "Synced",
			"web is live at 84e16d9 since 14:02, by deployment chain 01234567; nothing differs.",
		},
		"disabled": {
			Situation{App: disabled}, StateSynced, "Synced",
			"web is live at 84e16d9 since 14:02, by Ana; nothing differs; it is disabled.",
		},
		"deploying": {
			Situation{App: inState(Synced, ""), Current: toNew(Running, "", runs(StageK8sSync), Stage{ID: "w", Name: StageWait})}, StateDeploying, "K8S_SYNC 1 of 2",
			"web is not live at 1f2ac83 yet: K8S_SYNC 1 of 2 is under way since 14:32; 84e16d9 is live.",
		},
		"rolling back": {
			Situation{App: inState(Synced, ""), Current: rollback}, StateDeploying, "ROLLBACK 1 of 1",
			"web is not live at 1f2ac83 yet: the image cannot be pulled, ROLLBACK 1 of 1 is under way since 14:33; 84e16d9 is live.",
		},
		"to be planned": {
			Situation{App: Application{Name: "web"}, Current: toNew(Pending, ReasonToPlan)}, StateDeploying, "Deploying",
			"web is not live at 1f2ac83 yet: it waits for its plan since 14:30; no earlier version is live.",
		},
		"waits for a person": {
			Situation{App: inState(Synced, ""), Current: toNew(Running, "", Stage{
				ID: "a", Name: StageWaitApproval, Status: StageRunning, StartedAt: at("14:32"), Options: []byte(`{"approvers":["jane"]}`),
			})}, StateWaiting, "Waiting for approval",
			"web is not live at 1f2ac83 yet: it waits for 1 approval of jane since 14:32; 84e16d9 is live.",
		},
		"held by a rollback": {
			Situation{App: held}, StateHeld, "Held",
			"web is live at 84e16d9 since 14:02, by Ana; it is held by bob: login is broken.",
		},
		"held by a window": {
			Situation{App: inState(OutOfSync, "behind"), Current: toNew(Pending, "Held: no deployments on Fridays")}, StateHeld, "Held",
			"web is not live at 1f2ac83 yet: its deployment is held since 14:30: no deployments on Fridays; 84e16d9 is live.",
		},
		"held by a chain": {
			Situation{App: inState(OutOfSync, "behind"), Current: toNew(Pending, waitsForChain)}, StateHeld, "Held",
			"web is not live at 1f2ac83 yet: its deployment is held since 14:30: block 0 of the deployment chain; 84e16d9 is live.",
		},
		"held by an adoption": {
			Situation{App: Application{Name: "web"}, AdoptionSince: at("13:00")}, StateHeld, "Held",
			"web is held since 13:00: live objects await the decision whether the application takes them over; no earlier version is live.",
		},
		"drifted": {
			Situation{App: inState(OutOfSync, "1 object differs"), Drift: DriftReport{BeganAt: at("14:15"), Objects: []ObjectDrift{
				{Kind: DriftChanged, Fields: []FieldDrift{{Path: "spec.replicas", Git: "3", Live: "5", Manager: "kubectl-edit"}}},
			}}}, StateDrifted, "Drifted",
			"web is live at 84e16d9 since 14:02, by Ana; 1 field differs: spec.replicas 3 → 5, changed by kubectl-edit.",
		},
		"drifted, without a report": {
			Situation{App: inState(OutOfSync, "2 commits are not deployed")}, StateDrifted, "Drifted",
			"web is live at 84e16d9 since 14:02, by Ana; 2 commits are not deployed.",
		},
		"failed": {
			Situation{App: inState(Synced, ""), Last: toNew(Failure, "registry.example/web:v9 cannot be pulled.\nmore")}, StateFailed, "Failed, 84e16d9 live",
			"web is not live at 1f2ac83: registry.example/web:v9 cannot be pulled; 84e16d9 is live.",
		},
		"failed at first": {
			Situation{App: Application{Name: "web"}, Last: toNew(Failure, "")}, StateFailed, "Failed",
			"web is not live at 1f2ac83: its deployment failed; no earlier version is live.",
		},
		"cancelled": {
			Situation{App: inState(Synced, ""), Last: toNew(Cancelled, "by bob")}, StateSynced, "Synced",
			"web is live at 84e16d9 since 14:02, by Ana; nothing differs.",
		},
		"degraded": {
			Situation{App: inState(Synced, ""), Health: HealthDegraded, HealthReason: "its pods crash", HealthSince: at("14:50")}, StateDegraded, "Degraded",
			"web is not live: its pods crash since 14:50; 84e16d9 was deployed last.",
		},
		"invalid": {
			Situation{App: inState(SyncInvalidConfig, "unknown field specc"), Last: toNew(Failure, "x")}, StateInvalidConfig, "Invalid config",
			"web is live at 84e16d9 since 14:02, by Ana; its configuration is invalid: unknown field specc.",
		},
		"invalid, with the place": {
			Situation{App: Application{Name: "web", Sync: SyncState{Status: SyncInvalidConfig, ShortReason: "The application configuration is invalid", Reason: "web/app.pipecd.yaml:3: unknown field specc\nmore"}}}, StateInvalidConfig, "Invalid config",
			"web has no successful deployment; its configuration is invalid: web/app.pipecd.yaml:3: unknown field specc.",
		},
		"not known": {
			Situation{App: inState(SyncUnknown, "cluster eu-2 does not answer")}, StateUnknown, "Unknown since 14:10",
			"It is not known since 14:10 whether web is live: cluster eu-2 does not answer; 84e16d9 was deployed last.",
		},
		"never deployed": {
			Situation{App: Application{Name: "web"}}, StateUnknown, "Unknown", "web is not live: it was never deployed.",
		},
		"deleted": {
			Situation{App: Application{Name: "web", Deleted: true}}, StateUnknown, "Unknown", "web is deleted.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := StateOf(c.in)
			if got.State != c.state || got.Word(today) != c.word {
				t.Errorf("state %s %q, want %s %q", got.State, got.Word(today), c.state, c.word)
			}
			if !slices.Contains(AppStates(), got.State) {
				t.Errorf("AppStates lacks %s", got.State)
			}
			if got := Headline(c.in, today); got != c.headline {
				t.Errorf("headline:\n got %s\nwant %s", got, c.headline)
			}
		})
	}
}

func TestWordOfAnotherDayHasTheDate(t *testing.T) {
	s := AppStatus{State: StateUnknown, Since: at("14:02")}
	if got := s.Word(today.Add(24 * time.Hour)); got != "Unknown since 2026-05-04 14:02" {
		t.Error(got)
	}
}

func TestDriftLine(t *testing.T) {
	field := func(path, manager string) FieldDrift { return FieldDrift{Path: path, Manager: manager} }
	for want, objects := range map[string][]ObjectDrift{
		"": nil,
		"1 field differs: data.password, changed by eve": {{Fields: []FieldDrift{{Path: "data.password", Git: "a", Live: "b", Masked: true, Manager: "eve"}}}},
		"3 fields differ, changed by ana, bob":           {{Fields: []FieldDrift{field("a", "bob"), field("b", "ana")}}, {Fields: []FieldDrift{field("c", "bob")}}},
		"1 object is missing, 2 objects are not in Git":  {{Kind: DriftMissing}, {Kind: DriftExtra}, {Kind: DriftExtra}},
		"1 field differs: spec.paused (none) → true":     {{Fields: []FieldDrift{{Path: "spec.paused", Live: "true"}}}},
	} {
		if got := (DriftReport{Objects: objects}).Line().Text; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := (DriftReport{Undeployed: []string{"a", "b"}}).Line().Text; got != "2 commits are not deployed" {
		t.Error(got)
	}
}
