package control

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/c785c783/piped/piped/deploy"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

var testConverter = converter{pipedID: "piped-1", projectID: "project-1"}

func filledApplication() deploy.Application {
	a := filled[deploy.Application]()
	a.Kind = "ECS" // the domain's only kind is number 0
	return a
}

// waitingDeployment returns a deployment with all fields set that waits for an approval.
func waitingDeployment() deploy.Deployment {
	d := filled[deploy.Deployment]()
	d.Stages[0].Name, d.Stages[0].Status = deploy.StageWaitApproval, deploy.StageRunning
	d.Stages[0].Metadata[deploy.MetaApprovalRecord] = `{"approvals": [{"by": "ann", "command": "c", "reason": "tested", "at": "2026-01-02T03:04:05Z"}]}`
	return d
}

// unset returns the unset fields of m and its nested messages.
func unset(m protoreflect.Message, path string) []string {
	var out []string
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		name := path + "." + string(fd.Name())
		switch {
		case !m.Has(fd):
			out = append(out, name)
		case fd.IsMap() && fd.MapValue().Message() != nil:
			m.Get(fd).Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				out = append(out, unset(v.Message(), name)...)
				return true
			})
		case fd.IsList() && fd.Message() != nil:
			for j := range m.Get(fd).List().Len() {
				out = append(out, unset(m.Get(fd).List().Get(j).Message(), name)...)
			}
		case !fd.IsMap() && !fd.IsList() && fd.Message() != nil:
			out = append(out, unset(m.Get(fd).Message(), name)...)
		}
	}
	return out
}

// TestEveryWireFieldIsSet lists, with the reason, the wire fields that a completely filled
// domain value leaves unset.
func TestEveryWireFieldIsSet(t *testing.T) {
	const (
		older    = "older name of platform_provider"
		hosting  = "the agent knows no pages of Git hosts"
		noSource = "nothing in the domain says so"
		other    = "belongs to another type of command"
	)
	commit := func(path string) map[string]string {
		return map[string]string{path + ".commit.pull_request": hosting}
	}
	tests := map[string]struct {
		message  proto.Message
		expected map[string]string
	}{
		"application": {
			message: testConverter.application(filledApplication()),
			expected: merge(
				commit("application.most_recently_successful_deployment.trigger"),
				commit("application.most_recently_triggered_deployment.trigger"),
				map[string]string{
					"application.cloud_provider":   older,
					"application.git_path.url":     hosting,
					"application.adoption_pending": noSource,
					"application.last_deployment":  "of another row",
					"application.last_failure":     "of another row",
				}),
		},
		"application's deployment": {message: applicationDeployment(waitingDeployment())},
		"deployment": {
			message: testConverter.deployment(waitingDeployment(), []deploy.Transition{
				{From: "PLANNED", To: "RUNNING", Reason: "started \xff", At: time.UnixMilli(1), StageID: ""},
			}),
			expected: merge(commit("deployment.trigger"), map[string]string{
				"deployment.cloud_provider":       older,
				"deployment.git_path.url":         hosting,
				"deployment.metadata_v2.plugins":  noSource,
				"deployment.stages.predefined":    noSource,
				"deployment.stages.retried_count": "stages are not retried",
				"deployment.transitions.stage_id": "this transition is the deployment's own",
			}),
		},
		"command": {
			message: testConverter.command(filled[deploy.Command]()),
			expected: map[string]string{
				"command.sync_application":          other,
				"command.update_application_config": other,
				"command.approve_stage":             other,
				"command.build_plan_preview":        other,
				"command.chain_sync_application":    other,
				"command.skip_stage":                other,
				"command.restart_piped":             other,
				"command.reject_stage":              other,
				"command.rollback_application":      other,
				"command.retry_deployment":          other,
				"command.delete_application":        other,
				"command.decide_adoption":           other,
				"command.release_state_lock":        other,
			},
		},
		"drift": {message: driftState{app: deploy.Application{Name: "web", Hold: filled[*deploy.Hold]()}, report: filled[deploy.DriftReport]()}.message(), expected: map[string]string{
			"drift.objects.object.uid": noSource,
		}},
		"event":   {message: testConverter.registeredEvent(filled[deploy.RegisteredEvent]())},
		"api key": {message: testConverter.apiKey(filled[deploy.APIKey]())},
		"log":     {message: logBlock(filled[deploy.LogBlock]())},
		"session": {message: func() proto.Message {
			v := filled[deploy.Session]()
			return sessionMessage(v, v.ID)
		}()},
		"disabled user": {message: disabledUser(filled[deploy.DisabledUser]())},
		"audit record":  {message: auditMessage(filled[deploy.AuditRecord]())},
		"transition": {
			message: transition(deploy.Transition{From: "RUNNING", To: "SUCCESS", Reason: "done", At: time.UnixMilli(1), StageID: "s"}),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			want := slices.Sorted(maps.Keys(tc.expected))
			got := unset(tc.message.ProtoReflect(), name)
			slices.Sort(got)
			if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
				t.Errorf("fields not set (-expected +found):\n%s", diff)
			}
			if _, err := proto.Marshal(tc.message); err != nil {
				t.Errorf("a text that is not UTF-8 came through: %v", err)
			}
		})
	}
}

func merge(list ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range list {
		maps.Copy(out, m)
	}
	return out
}

// ignored returns the fields of a filled T, including nested ones, that do not affect the
// message.
func ignored[T any](convert func(T) proto.Message) []string {
	full := filled[T]()
	before := convert(full)
	var out []string
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, name := v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, ".")
			inner := f
			if f.Kind() == reflect.Pointer || f.Kind() == reflect.Slice && f.Len() == 1 {
				if inner = reflect.Indirect(f); f.Kind() == reflect.Slice {
					inner = f.Index(0)
				}
			}
			if inner.Kind() == reflect.Struct && inner.Type() != reflect.TypeFor[time.Time]() && inner.Type() != reflect.TypeFor[deploy.ObjectRef]() {
				walk(inner, name)
				continue
			}
			old := reflect.New(f.Type()).Elem()
			old.Set(f)
			f.SetZero()
			if proto.Equal(before, convert(full)) {
				out = append(out, name)
			}
			f.Set(old)
		}
	}
	walk(reflect.ValueOf(&full).Elem(), "")
	return out
}

// ofPlaces are fields about former paths of an application, used only inside the agent. The
// deployment that started a hold describes its commit.
var ofPlaces = []string{
	"Former.Branch", "Former.ConfigFile", "Former.Dir", "Former.Remote", "Former.RepoID",
	"Hold.Git.RepoID", "Hold.Git.Remote", "Hold.Git.Branch", "Hold.Git.Dir", "Hold.Git.ConfigFile", "Hold.Head", "Hold.Evaluated", "Hold.Previous",
	"Hold.Commit.Author", "Hold.Commit.At", "Hold.Commit.Branch", "Hold.Commit.Trace", "Hold.Commit.URL",
	"Hold.Commit.AuthorEmail", "Hold.Commit.Committer", "Hold.Commit.CommitterEmail",
	"Former.PullRequest", "Hold.Git.PullRequest", "Hold.Commit.Merged", // a preview has neither
	"Git.PullRequest", // the label pull-request
}

// TestEveryDomainFieldIsConverted lists the domain fields that clients do not get.
func TestEveryDomainFieldIsConverted(t *testing.T) {
	// Fields of other commands: delete, adopt, release a lock, preview.
	ofOthers := []string{"Accept", "Cascade", "Token", "LockID", "PlanPreview.BaseBranch", "PlanPreview.HeadBranch", "PlanPreview.HeadCommit", "PlanPreview.RepoID", "PlanPreview.Timeout"}
	only := func(what deploy.CommandType) []string {
		return ignored(func(c deploy.Command) proto.Message {
			c.Type = what
			return testConverter.command(c)
		})
	}
	common := []string{"Account", "CommanderGroups", "SupersededBy", "Type", "WaitForRunning", "ForceRollback", "ForceNoRollback", "Reason", "ChainID", "ChainBlock", "Strategy", "Commit", "OverrideWindows", "PermitPrune",
		"PlanPreview.PullRequest"} // reported in a comment of the pull request
	without := func(shown ...string) []string {
		return slices.DeleteFunc(slices.Concat(common, ofOthers), func(field string) bool { return slices.Contains(shown, field) })
	}
	tests := map[string]struct{ got, want []string }{
		"application": {
			got: ignored(func(a deploy.Application) proto.Message {
				a.Deploying = false
				return testConverter.application(a)
			}),
			want: append([]string{
				"Deploying", "ActiveID", "ActiveSince", // they replace the stored state
				"LastTriggered.Dir", "LastSuccessful.Dir", // path before a move
				"Sync.Commit",       // reported by the event of an invalid configuration
				"Sync.LeftOver",     // listed in the drift report
				"Registration.Name", // the application's name, unless configured otherwise
				// References name only the commit; the kind of trigger is in the deployment.
				"LastTriggered.Trigger.Kind", "LastSuccessful.Trigger.Kind",
				"LastTriggered.Trigger.Commit.Trace", "LastSuccessful.Trigger.Commit.Trace",
				"LastTriggered.Trigger.Commit.Merged", "LastSuccessful.Trigger.Commit.Merged",
				"LastTriggered.Trigger.OwnershipOnly", "LastSuccessful.Trigger.OwnershipOnly",
				"LastTriggered.Trigger.PermitPrune", "LastSuccessful.Trigger.PermitPrune",
				"LastTriggered.Trigger.RetryOf", "LastSuccessful.Trigger.RetryOf",
				"LastTriggered.Trigger.Commit.AuthorEmail", "LastTriggered.Trigger.Commit.Committer", "LastTriggered.Trigger.Commit.CommitterEmail",
				"LastSuccessful.Trigger.Commit.AuthorEmail", "LastSuccessful.Trigger.Commit.Committer", "LastSuccessful.Trigger.Commit.CommitterEmail",
			}, ofPlaces...),
		},
		"application that is deployed": {
			got: slices.DeleteFunc(ignored(func(a deploy.Application) proto.Message { return testConverter.application(a) }), func(field string) bool {
				return strings.HasPrefix(field, "Last") || field == "Kind"
			}),
			want: append([]string{"Sync.Reason", "Sync.HeadDeploymentID", "Sync.At", "Sync.Commit", "Sync.LeftOver", "Registration.Name"}, ofPlaces...), // shown again afterwards
		},
		"drift": {
			got: ignored(func(r deploy.DriftReport) proto.Message { return driftState{report: r}.message() }),
		},
		"deployment": {
			got: ignored(func(d deploy.Deployment) proto.Message { return testConverter.deployment(d, nil) }),
			want: []string{
				"Trigger.PermitPrune",   // shown in the request to permit it
				"Trigger.OwnershipOnly", // shown in the log of its stage
				"RunningDeploymentID", "RunningDir", "Timeout", "RollbackTimeout", "NoAutoRollback",
				"Strategy",                 // returned by GetPlan
				"Outcome", "OutcomeReason", // become status and reason
				// compared with those who approve
				"Trigger.Commit.AuthorEmail", "Trigger.Commit.Committer", "Trigger.Commit.CommitterEmail",
				// of previews: the label pull-request, and the head that the pull request shows
				"Git.PullRequest", "Trigger.Commit.Merged",
			},
		},
		"cancel command":     {got: only(deploy.CommandCancel), want: without("ForceRollback", "ForceNoRollback")},
		"sync command":       {got: only(deploy.CommandSync), want: without("Strategy", "Commit", "OverrideWindows")},
		"chain sync command": {got: only(deploy.CommandChainSync), want: without("Strategy", "ChainID", "ChainBlock")},
		"retry command":      {got: only(deploy.CommandRetry), want: without("PermitPrune")},
		"delete command":     {got: only(deploy.CommandDeleteApplication), want: without("Cascade")},
		"lock command":       {got: only(deploy.CommandReleaseStateLock), want: without("LockID")},
		"adoption command": {
			got:  only(deploy.CommandDecideAdoption),
			want: without("Accept"), // the token identifies the state
		},
		"preview command": {
			got:  only(deploy.CommandBuildPlanPreview),
			want: without("PlanPreview.BaseBranch", "PlanPreview.HeadBranch", "PlanPreview.HeadCommit", "PlanPreview.RepoID", "PlanPreview.Timeout"),
		},
		"event": {
			got: ignored(func(e deploy.RegisteredEvent) proto.Message { return testConverter.registeredEvent(e) }),
			want: []string{
				"Newer",                                                                           // implied by the status
				"Trigger.URL", "Trigger.Title", "Trigger.Message", "Trigger.Author", "Trigger.At", // the hash identifies the commit
				"Handlings.RepoID", "Handlings.PullRequest", "Handlings.Status", "Handlings.Description", "Handlings.At", // merged into those of the event
			},
		},
		"api key": {
			got:  ignored(func(k deploy.APIKey) proto.Message { return testConverter.apiKey(k) }),
			want: []string{"Hash"}, // derived from the secret
		},
		"session": {
			got:  ignored(func(v deploy.Session) proto.Message { return sessionMessage(v, "") }),
			want: []string{"Hash", "Refresh"}, // secrets
		},
		"disabled user": {got: ignored(func(u deploy.DisabledUser) proto.Message { return disabledUser(u) })},
		"audit record":  {got: ignored(func(r deploy.AuditRecord) proto.Message { return auditMessage(r) })},
		"log": {
			got:  ignored(func(b deploy.LogBlock) proto.Message { return logBlock(b) }),
			want: []string{"DeploymentID", "StageID"}, // known from the request and the key of the map
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			slices.Sort(tc.want)
			slices.Sort(tc.got)
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("fields not converted (-expected +found):\n%s", diff)
			}
		})
	}
}

func TestEnums(t *testing.T) {
	check := func(name, prefix string, domain []string, number func(string) protoreflect.Enum) {
		t.Run(name, func(t *testing.T) {
			reached := map[protoreflect.EnumNumber]bool{}
			var values protoreflect.EnumValueDescriptors
			for _, d := range domain {
				e := number(d)
				values = e.Descriptor().Values()
				reached[e.Number()] = true
				if got := string(values.ByNumber(e.Number()).Name()); got != prefix+d {
					t.Errorf("%s is %s on the wire, want %s", d, got, prefix+d)
				}
			}
			for i := range values.Len() {
				v := values.Get(i)
				ours := v.Number() >= 1000 || strings.HasSuffix(string(v.Name()), "_UNSPECIFIED")
				if !reached[v.Number()] && !ours {
					t.Errorf("%s (%d) is never set", v.Name(), v.Number())
				}
			}
		})
	}
	check("deployment status", "DEPLOYMENT_", names(deploy.Statuses()), func(s string) protoreflect.Enum { return deploymentStatus(deploy.Status(s)) })
	check("stage status", "STAGE_", names(deploy.StageStatuses()), func(s string) protoreflect.Enum { return stageStatus(deploy.StageStatus(s)) })
	check("strategy", "", names(deploy.Strategies()), func(s string) protoreflect.Enum { return strategy(deploy.Strategy(s)) })
	check("sync status", "", names(deploy.SyncStatuses()), func(s string) protoreflect.Enum {
		return testConverter.application(deploy.Application{Sync: deploy.SyncState{Status: deploy.SyncStatus(s)}}).SyncState.Status
	})
	check("drift kind", "DRIFT_KIND_", names([]deploy.DriftKind{deploy.DriftMissing, deploy.DriftChanged, deploy.DriftExtra}), func(s string) protoreflect.Enum {
		return objectDrift("", deploy.ObjectDrift{Kind: deploy.DriftKind(s)}).Kind
	})
	check("drift end", "DRIFT_END_", names([]deploy.DriftEnd{deploy.DriftDeployed, deploy.DriftReverted, deploy.DriftAccepted, deploy.DriftAbandoned}), func(s string) protoreflect.Enum {
		return driftState{report: deploy.DriftReport{End: deploy.DriftEnd(s)}}.message().End
	})
	check("command status", "COMMAND_", names(deploy.CommandStatuses()), func(s string) protoreflect.Enum {
		return testConverter.command(deploy.Command{Status: deploy.CommandStatus(s)}).Status
	})
	check("command type", "", names(deploy.CommandTypes()), func(s string) protoreflect.Enum {
		return testConverter.command(deploy.Command{Type: deploy.CommandType(s)}).Type
	})
	check("event status", "EVENT_", names(deploy.EventStatuses()), func(s string) protoreflect.Enum {
		return testConverter.registeredEvent(deploy.RegisteredEvent{Status: deploy.EventStatus(s)}).Status
	})
	check("severity", "", names([]deploy.Severity{deploy.SeverityInfo, deploy.SeveritySuccess, deploy.SeverityError}), func(s string) protoreflect.Enum {
		return logBlock(deploy.LogBlock{Severity: deploy.Severity(s)}).Severity
	})
	triggers := names([]deploy.TriggerKind{deploy.OnCommit, deploy.OnCommand, deploy.OnOutOfSync, deploy.OnChain})
	check("trigger kind", "TRIGGER_KIND_", triggers, func(s string) protoreflect.Enum {
		return testConverter.deployment(deploy.Deployment{Trigger: deploy.Trigger{Kind: deploy.TriggerKind(s)}}, nil).TriggerKind
	})
}

func names[S ~string](list []S) []string {
	var out []string
	for _, s := range list {
		out = append(out, string(s))
	}
	return out
}

func TestStatusNamesComeBack(t *testing.T) {
	for _, s := range deploy.Statuses() {
		got, ok := statusFromName(deploymentStatus(s).String())
		if !ok || got != s {
			t.Errorf("%s came back as %q, %v", s, got, ok)
		}
	}
	for _, name := range []string{"SUCCESS", "deployment_success", "DEPLOYMENT_", "STAGE_SUCCESS", "4"} {
		if got, ok := statusFromName(name); ok {
			t.Errorf("%q was taken for %q", name, got)
		}
	}
}

// TestCommandPayloads: each type of command has the payload of its type and no other.
func TestCommandPayloads(t *testing.T) {
	base := deploy.Command{ApplicationID: "a", DeploymentID: "d", StageID: "s", Strategy: deploy.StrategyQuickSync, ForceRollback: true,
		PlanPreview: &deploy.PlanPreviewRequest{RepoID: "r", HeadBranch: "h", HeadCommit: "c", BaseBranch: "b", Timeout: 90 * time.Second}}
	want := map[deploy.CommandType]proto.Message{
		deploy.CommandSync:         &modelv1.Command{SyncApplication: &modelv1.Command_SyncApplication{ApplicationId: "a", SyncStrategy: modelv1.SyncStrategy_QUICK_SYNC}},
		deploy.CommandChainSync:    &modelv1.Command{ChainSyncApplication: &modelv1.Command_ChainSyncApplication{ApplicationId: "a", SyncStrategy: modelv1.SyncStrategy_QUICK_SYNC}},
		deploy.CommandCancel:       &modelv1.Command{CancelDeployment: &modelv1.Command_CancelDeployment{DeploymentId: "d", ForceRollback: true}},
		deploy.CommandApproveStage: &modelv1.Command{ApproveStage: &modelv1.Command_ApproveStage{DeploymentId: "d", StageId: "s"}},
		deploy.CommandSkipStage:    &modelv1.Command{SkipStage: &modelv1.Command_SkipStage{DeploymentId: "d", StageId: "s"}},
		deploy.CommandBuildPlanPreview: &modelv1.Command{BuildPlanPreview: &modelv1.Command_BuildPlanPreview{
			RepositoryId: "r", HeadBranch: "h", HeadCommit: "c", BaseBranch: "b", Timeout: 90}},
		deploy.CommandRestartPiped: &modelv1.Command{RestartPiped: &modelv1.Command_RestartPiped{PipedId: "piped-1"}},
	}
	for _, kind := range deploy.CommandTypes() {
		base.Type = kind
		got := testConverter.command(base)
		if got.Type.String() != string(kind) {
			t.Errorf("%s has the type %s", kind, got.Type)
		}
		payload := &modelv1.Command{
			SyncApplication: got.SyncApplication, ChainSyncApplication: got.ChainSyncApplication, CancelDeployment: got.CancelDeployment,
			ApproveStage: got.ApproveStage, SkipStage: got.SkipStage, RestartPiped: got.RestartPiped,
			UpdateApplicationConfig: got.UpdateApplicationConfig, BuildPlanPreview: got.BuildPlanPreview,
		}
		expected := want[kind]
		if expected == nil {
			expected = &modelv1.Command{}
		}
		if !proto.Equal(payload, expected) {
			t.Errorf("%s carries %v, want %v", kind, payload, expected)
		}
	}
}

func TestTransitionsAndTimes(t *testing.T) {
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	got := testConverter.deployment(deploy.Deployment{Status: deploy.Success, CreatedAt: at(1500)}, []deploy.Transition{
		{To: "PENDING", At: at(1500), Reason: "commit"},
		{StageID: "s1", To: "NOT_STARTED_YET", At: at(1600)},
		{From: "PLANNED", To: "RUNNING", At: at(1700)},
		{StageID: "s1", From: "NOT_STARTED_YET", To: "RUNNING", At: at(1800)},
	})
	want := []*modelv1.Transition{
		{To: "DEPLOYMENT_PENDING", AtMs: 1500, Reason: "commit"},
		{StageId: "s1", To: "STAGE_NOT_STARTED_YET", AtMs: 1600},
		{From: "DEPLOYMENT_PLANNED", To: "DEPLOYMENT_RUNNING", AtMs: 1700},
		{StageId: "s1", From: "STAGE_NOT_STARTED_YET", To: "STAGE_RUNNING", AtMs: 1800},
	}
	if len(got.Transitions) != len(want) {
		t.Fatalf("%d transitions, want %d", len(got.Transitions), len(want))
	}
	for i := range want {
		if !proto.Equal(got.Transitions[i], want[i]) {
			t.Errorf("transition %d is %v, want %v", i, got.Transitions[i], want[i])
		}
	}
	if got.StartedAtMs != 1700 || got.CreatedAt != 1 || got.CreatedAtMs != 1500 || got.CompletedAt != 0 || got.CompletedAtMs != 0 {
		t.Errorf("times: started %d, created %d s %d ms, completed %d s %d ms", got.StartedAtMs, got.CreatedAt, got.CreatedAtMs, got.CompletedAt, got.CompletedAtMs)
	}
}

// TestDecisionsOfAnApproval: approvals and the rejection are the decisions of a stage, in their
// order; one of an older agent has no time.
func TestDecisionsOfAnApproval(t *testing.T) {
	s := deploy.Stage{Name: deploy.StageWaitApproval, Metadata: map[string]string{deploy.MetaApprovalRecord: `{
		"approvals": [{"by": "ann", "command": "a"}, {"by": "ben", "command": "b", "reason": "tested", "at": "1970-01-01T00:00:01Z"}],
		"rejection": {"by": "cleo", "command": "c", "reason": "not on a Friday", "at": "1970-01-01T00:00:02Z"}
	}`}}
	want := []*modelv1.StageDecision{
		{Verdict: modelv1.StageDecision_VERDICT_APPROVED, Subject: "ann"},
		{Verdict: modelv1.StageDecision_VERDICT_APPROVED, Subject: "ben", Reason: "tested", AtMs: 1000},
		{Verdict: modelv1.StageDecision_VERDICT_REJECTED, Subject: "cleo", Reason: "not on a Friday", AtMs: 2000},
	}
	if diff := cmp.Diff(want, stage(s).Decisions, protocmp.Transform()); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
}
