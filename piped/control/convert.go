package control

import (
	"cmp"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/config"
	"github.com/c785c783/piped/piped/deploy"
	modelv1 "github.com/c785c783/piped/proto/piped/model/v1"
)

// converter converts domain values to messages; no other type does. It makes every text valid
// UTF-8, because one invalid byte from a commit or a log would make the response fail.
type converter struct {
	pipedID, projectID string
}

// Prefixes of enum names that exist only on the wire.
const (
	deploymentPrefix = "DEPLOYMENT_"
	stagePrefix      = "STAGE_"
	commandPrefix    = "COMMAND_"
	triggerPrefix    = "TRIGGER_KIND_"
)

// pluginOf returns the name of the plugin of an application kind, for clients that use
// plugins.
func pluginOf(kind string) string { return strings.ToLower(cmp.Or(kind, deploy.KindKubernetes)) }

func (c converter) application(a deploy.Application) *modelv1.Application {
	sync := a.ShownSync()
	m := &modelv1.Application{
		Id: text(a.ID), Name: text(a.Name), PipedId: c.pipedID, ProjectId: c.projectID,
		Kind:                             kindNumber(a.Kind),
		GitPath:                          gitPath(a.Git),
		Description:                      text(a.Description),
		Labels:                           texts(a.Labels),
		MostRecentlySuccessfulDeployment: deploymentRef(a.LastSuccessful),
		MostRecentlyTriggeredDeployment:  deploymentRef(a.LastTriggered),
		SyncState: &modelv1.ApplicationSyncState{
			Status: syncStatus(sync.Status), ShortReason: text(sync.ShortReason), Reason: text(sync.Reason),
			HeadDeploymentId: text(sync.HeadDeploymentID), Timestamp: seconds(sync.At),
		},
		Deploying:             a.Deploying,
		PlatformProvider:      text(a.Provider),
		DeployTargetsByPlugin: deployTargets(a.Kind, a.Provider),
		DeletedAt:             seconds(a.DeletedAt),
		Deleted:               a.Deleted,
		Disabled:              a.Disabled,
		CreatedAt:             seconds(a.CreatedAt),
		UpdatedAt:             seconds(a.UpdatedAt),
		EvaluatedCommit:       text(a.EvaluatedCommit),
		Registration:          registration(a),
		SyncStateSinceMs:      millis(sync.At),
		Notice:                text(a.Notice),
		NoticeSinceMs:         millis(a.NoticeAt),
		Hold:                  hold(a.Hold),
	}
	if a.LastSuccessful != nil {
		m.RunningCommit = text(a.LastSuccessful.Trigger.Commit.Hash)
	}
	return m
}

func hold(h *deploy.Hold) *modelv1.ApplicationHold {
	if h == nil {
		return nil
	}
	return &modelv1.ApplicationHold{
		Commit: text(h.Commit.Hash), CommitMessage: text(h.Commit.Message), HeldBy: text(h.By), SinceMs: millis(h.Since),
		Reason: text(h.Reason), DeploymentId: text(h.DeploymentID),
	}
}

// registration returns how an application was registered: through the API or selected in
// Git.
func registration(a deploy.Application) *modelv1.ApplicationRegistration {
	m := &modelv1.ApplicationRegistration{
		Source: modelv1.ApplicationRegistration_SOURCE_DISCOVERED, RegisteredAtMs: millis(a.CreatedAt),
		PlatformProvider: text(a.Registration.Provider),
	}
	if a.Registration.By != "" {
		m.Source, m.RegisteredBy, m.RegisteredAtMs = modelv1.ApplicationRegistration_SOURCE_ADDED, text(a.Registration.By), millis(a.Registration.At)
	}
	return m
}

// deployment converts d with its transition log; a nil log is omitted.
func (c converter) deployment(d deploy.Deployment, log []deploy.Transition) *modelv1.Deployment {
	m := &modelv1.Deployment{
		Id: text(d.ID), ApplicationId: text(d.ApplicationID), ApplicationName: text(d.ApplicationName),
		PipedId: c.pipedID, ProjectId: c.projectID,
		Kind:                      kindNumber(d.Kind),
		GitPath:                   gitPath(d.Git),
		Labels:                    texts(d.Labels),
		PlatformProvider:          text(d.Provider),
		DeployTargetsByPlugin:     deployTargets(d.Kind, d.Provider),
		Trigger:                   trigger(d.Trigger),
		RunningCommitHash:         text(d.RunningCommit),
		Summary:                   text(d.Summary),
		Versions:                  versions(d.Versions),
		Status:                    deploymentStatus(d.Status),
		StatusReason:              text(d.StatusReason),
		Metadata:                  texts(d.Metadata),
		DeploymentChainId:         text(d.ChainID),
		DeploymentChainBlockIndex: uint32(d.ChainBlock),
		RunningConfigFilename:     text(d.RunningConfigFile),
		DeploymentTraceCommitHash: text(d.Trigger.Commit.Trace),
		CompletedAt:               seconds(d.CompletedAt),
		CreatedAt:                 seconds(d.CreatedAt),
		UpdatedAt:                 seconds(d.UpdatedAt),
		TriggerKind:               modelv1.TriggerKind(modelv1.TriggerKind_value[triggerPrefix+string(d.Trigger.Kind)]),
		CreatedAtMs:               millis(d.CreatedAt),
		CompletedAtMs:             millis(d.CompletedAt),
		DeadlineMs:                millis(d.Deadline),
		Revision:                  d.Revision,
		Wait:                      wait(d.Wait()),
		SupersededBy:              text(d.SupersededBy),
		RetryOf:                   text(d.Trigger.RetryOf),
	}
	if len(d.Metadata) > 0 {
		m.MetadataV2 = &modelv1.DeploymentMetadata{Shared: &modelv1.DeploymentMetadata_KeyValues{KeyValues: texts(d.Metadata)}}
	}
	for _, s := range d.Stages {
		m.Stages = append(m.Stages, stage(s))
	}
	for _, t := range log {
		m.Transitions = append(m.Transitions, transition(t))
		if t.StageID == "" && t.To == string(deploy.Running) {
			m.StartedAtMs = millis(t.At)
		}
	}
	return m
}

func stage(s deploy.Stage) *modelv1.PipelineStage {
	m := &modelv1.PipelineStage{
		Id: text(s.ID), Name: text(s.Name), Desc: text(s.Desc), Index: int32(s.Index),
		Requires: textList(s.Requires), Visible: s.Visible, Rollback: s.Rollback,
		Status: stageStatus(s.Status), StatusReason: text(s.StatusReason), Metadata: texts(s.ShownMetadata()),
		CompletedAt: seconds(s.CompletedAt), CreatedAt: seconds(s.CreatedAt), UpdatedAt: seconds(s.UpdatedAt),
		AvailableOperation: operation(s),
		StartedAtMs:        millis(s.StartedAt), CompletedAtMs: millis(s.CompletedAt), DeadlineMs: millis(s.Deadline),
		Options: text(config.ShownOptions(s.Options)), SkipOn: text(string(s.SkipOn)), TimeoutMs: s.Timeout.Milliseconds(),
	}
	if s.Name == deploy.StageWaitApproval {
		m.AuthorizedOperators, m.RequiredApprovals = approvals(s)
		m.Decisions = decisions(s)
	}
	return m
}

// operation returns what a user can do with a stage now.
func operation(s deploy.Stage) modelv1.ManualOperation {
	switch {
	case s.Status != deploy.StageRunning:
		return modelv1.ManualOperation_MANUAL_OPERATION_NONE
	case s.Name == deploy.StageWaitApproval:
		return modelv1.ManualOperation_MANUAL_OPERATION_APPROVE
	case deploy.Skippable(s.Name):
		return modelv1.ManualOperation_MANUAL_OPERATION_SKIP
	}
	return modelv1.ManualOperation_MANUAL_OPERATION_NONE
}

// approvals returns the approvers of a WAIT_APPROVAL and the required number. Invalid
// options are ignored here, since they fail the stage itself.
func approvals(s deploy.Stage) (approvers []string, required int32) {
	o, err := s.ApprovalOptions()
	if err != nil {
		return nil, 1
	}
	return textList(o.Approvers), int32(o.MinApproverNum)
}

// decisions returns the votes on a WAIT_APPROVAL, oldest first: a rejection ends the stage. A
// record that cannot be read fails the stage itself.
func decisions(s deploy.Stage) (out []*modelv1.StageDecision) {
	record, err := s.ApprovalRecord()
	if err != nil {
		return nil
	}
	for _, v := range record.Approvals {
		out = append(out, vote(v, modelv1.StageDecision_VERDICT_APPROVED))
	}
	if record.Rejection != nil {
		out = append(out, vote(*record.Rejection, modelv1.StageDecision_VERDICT_REJECTED))
	}
	return out
}

func vote(v deploy.ApprovalVote, verdict modelv1.StageDecision_Verdict) *modelv1.StageDecision {
	return &modelv1.StageDecision{Verdict: verdict, Subject: text(v.By), Reason: text(v.Reason), AtMs: millis(v.At)}
}

// transition converts a transition; that of a creation has no previous status.
func transition(t deploy.Transition) *modelv1.Transition {
	prefix := deploymentPrefix
	if t.StageID != "" {
		prefix = stagePrefix
	}
	m := &modelv1.Transition{To: prefix + t.To, Reason: text(t.Reason), AtMs: millis(t.At), StageId: text(t.StageID)}
	if t.From != "" {
		m.From = prefix + t.From
	}
	return m
}

func (c converter) command(d deploy.Command) *modelv1.Command {
	m := &modelv1.Command{
		Id: text(d.ID), PipedId: c.pipedID, ApplicationId: text(d.ApplicationID), DeploymentId: text(d.DeploymentID), StageId: text(d.StageID),
		Commander: text(d.Commander), ProjectId: c.projectID,
		Status:    modelv1.CommandStatus(modelv1.CommandStatus_value[commandPrefix+string(d.Status)]),
		Metadata:  texts(d.Metadata),
		HandledAt: seconds(d.HandledAt),
		Type:      modelv1.Command_Type(modelv1.Command_Type_value[string(d.Type)]),
		CreatedAt: seconds(d.CreatedAt),
		UpdatedAt: seconds(d.UpdatedAt),
	}
	switch d.Type {
	case deploy.CommandSync:
		m.SyncApplication = &modelv1.Command_SyncApplication{
			ApplicationId: text(d.ApplicationID), SyncStrategy: strategy(d.Strategy), Commit: text(d.Commit), OverrideSyncWindows: d.OverrideWindows,
		}
	case deploy.CommandRetry:
		m.RetryDeployment = &modelv1.Command_RetryDeployment{DeploymentId: text(d.DeploymentID), ConfirmPrune: len(d.PermitPrune) > 0}
	case deploy.CommandChainSync:
		m.ChainSyncApplication = &modelv1.Command_ChainSyncApplication{
			DeploymentChainId: text(d.ChainID), BlockIndex: uint32(d.ChainBlock),
			ApplicationId: text(d.ApplicationID), SyncStrategy: strategy(d.Strategy),
		}
	case deploy.CommandCancel:
		m.CancelDeployment = &modelv1.Command_CancelDeployment{
			DeploymentId: text(d.DeploymentID), ForceRollback: d.ForceRollback, ForceNoRollback: d.ForceNoRollback,
		}
	case deploy.CommandApproveStage:
		m.ApproveStage = &modelv1.Command_ApproveStage{DeploymentId: text(d.DeploymentID), StageId: text(d.StageID)}
	case deploy.CommandRejectStage:
		m.RejectStage = &modelv1.Command_RejectStage{DeploymentId: text(d.DeploymentID), StageId: text(d.StageID), Reason: text(d.Reason)}
	case deploy.CommandSkipStage:
		m.SkipStage = &modelv1.Command_SkipStage{DeploymentId: text(d.DeploymentID), StageId: text(d.StageID)}
	case deploy.CommandRestartPiped:
		m.RestartPiped = &modelv1.Command_RestartPiped{PipedId: c.pipedID}
	case deploy.CommandDeleteApplication:
		m.DeleteApplication = &modelv1.Command_DeleteApplication{ApplicationId: text(d.ApplicationID), Cascade: d.Cascade}
	case deploy.CommandReleaseStateLock:
		m.ReleaseStateLock = &modelv1.Command_ReleaseStateLock{DeploymentId: text(d.DeploymentID), LockId: text(d.LockID)}
	case deploy.CommandDecideAdoption:
		m.DecideAdoption = &modelv1.Command_DecideAdoption{ApplicationId: text(d.ApplicationID), Accept: d.Accept}
	case deploy.CommandBuildPlanPreview:
		if asked := d.PlanPreview; asked != nil {
			m.BuildPlanPreview = &modelv1.Command_BuildPlanPreview{
				RepositoryId: text(asked.RepoID), HeadBranch: text(asked.HeadBranch), HeadCommit: text(asked.HeadCommit),
				BaseBranch: text(asked.BaseBranch), Timeout: int64(asked.Timeout / time.Second),
			}
		}
	case deploy.CommandUpdateConfig:
		// These have no further fields in the domain.
	}
	return m
}

func logBlock(b deploy.LogBlock) *modelv1.LogBlock {
	return &modelv1.LogBlock{
		Index: b.Index, Log: text(b.Log),
		Severity:  modelv1.LogSeverity(modelv1.LogSeverity_value[string(b.Severity)]),
		CreatedAt: seconds(b.At), CreatedAtMs: millis(b.At),
	}
}

func gitPath(p deploy.GitPath) *modelv1.ApplicationGitPath {
	return &modelv1.ApplicationGitPath{
		Repo: &modelv1.ApplicationGitRepository{Id: text(p.RepoID), Remote: text(p.Remote), Branch: text(p.Branch)},
		Path: text(p.Dir), ConfigFilename: text(p.ConfigFile),
	}
}

func trigger(t deploy.Trigger) *modelv1.DeploymentTrigger {
	return &modelv1.DeploymentTrigger{
		Commit: &modelv1.Commit{
			Hash: text(t.Commit.Hash), Message: text(t.Commit.Message), Author: text(t.Commit.Author),
			Branch: text(t.Commit.Branch), Url: text(t.Commit.URL), CreatedAt: seconds(t.Commit.At),
		},
		Commander: text(t.Commander), Timestamp: seconds(t.At),
		SyncStrategy: strategy(t.Strategy), StrategySummary: text(t.StrategySummary),
		OverrideSyncWindows: t.OverrideWindows, TakeOver: t.TakeOver,
	}
}

func deploymentRef(r *deploy.DeploymentRef) *modelv1.ApplicationDeploymentReference {
	if r == nil {
		return nil
	}
	names := make([]string, len(r.Versions))
	for i, v := range r.Versions {
		names[i] = v.Version
	}
	return &modelv1.ApplicationDeploymentReference{
		DeploymentId: text(r.DeploymentID), Trigger: trigger(r.Trigger), Summary: text(r.Summary),
		Version: text(strings.Join(names, ", ")), ConfigFilename: text(r.ConfigFile), Versions: versions(r.Versions),
		StartedAt: seconds(r.StartedAt), CompletedAt: seconds(r.CompletedAt),
	}
}

func versions(list []deploy.ArtifactVersion) []*modelv1.ArtifactVersion {
	var out []*modelv1.ArtifactVersion
	for _, v := range list {
		out = append(out, &modelv1.ArtifactVersion{
			Kind:    modelv1.ArtifactVersion_Kind(modelv1.ArtifactVersion_Kind_value[v.Kind]),
			Version: text(v.Version), Name: text(v.Name), Url: text(v.URL),
		})
	}
	return out
}

func deployTargets(kind, provider string) map[string]*modelv1.DeployTargets {
	if provider == "" {
		return nil
	}
	return map[string]*modelv1.DeployTargets{pluginOf(kind): {DeployTargets: []string{text(provider)}}}
}

func deploymentStatus(s deploy.Status) modelv1.DeploymentStatus {
	return modelv1.DeploymentStatus(modelv1.DeploymentStatus_value[deploymentPrefix+string(s)])
}

// statusFromName returns the status with the wire name DEPLOYMENT_...
func statusFromName(name string) (deploy.Status, bool) {
	_, ok := modelv1.DeploymentStatus_value[name]
	return deploy.Status(strings.TrimPrefix(name, deploymentPrefix)), ok
}

func syncStatus(s deploy.SyncStatus) modelv1.ApplicationSyncStatus {
	return modelv1.ApplicationSyncStatus(modelv1.ApplicationSyncStatus_value[string(s)])
}

func stageStatus(s deploy.StageStatus) modelv1.StageStatus {
	return modelv1.StageStatus(modelv1.StageStatus_value[stagePrefix+string(s)])
}

func strategy(s deploy.Strategy) modelv1.SyncStrategy {
	return modelv1.SyncStrategy(modelv1.SyncStrategy_value[string(s)])
}

// unknownKind is the number of a kind that the wire format has no name for.
const unknownKind = modelv1.ApplicationKind(-1)

// kindNumber returns the number of a kind of application; "" is KUBERNETES. The wire format has
// no name for OPENTOFU, and clients of PipeCD know it as TERRAFORM.
func kindNumber(kind string) modelv1.ApplicationKind {
	if kind == deploy.KindOpenTofu {
		kind = deploy.KindTerraform
	}
	number, ok := modelv1.ApplicationKind_value[cmp.Or(kind, deploy.KindKubernetes)]
	if !ok {
		return unknownKind
	}
	return modelv1.ApplicationKind(number)
}

// fromSeconds returns the time of Unix seconds, the zero time for 0.
func fromSeconds(s int64) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

// seconds returns t in Unix seconds, 0 for the zero time.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// millis returns t in Unix milliseconds, 0 for the zero time.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// text makes s valid UTF-8.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func texts(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[text(k)] = text(v)
	}
	return out
}

func textList(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = text(s)
	}
	return out
}
