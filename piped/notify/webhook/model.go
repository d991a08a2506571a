package webhook

import (
	"strings"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// The messages of PipeCD's model, limited to the fields that this agent has values for.
// Times are in Unix seconds, enums are numbers. The kind of an application is omitted,
// since that of Kubernetes is 0.
type (
	deployment struct {
		ID                        string              `json:"id,omitempty"`
		ApplicationID             string              `json:"application_id,omitempty"`
		ApplicationName           string              `json:"application_name,omitempty"`
		PipedID                   string              `json:"piped_id,omitempty"`
		ProjectID                 string              `json:"project_id,omitempty"`
		GitPath                   *gitPath            `json:"git_path,omitempty"`
		PlatformProvider          string              `json:"platform_provider,omitempty"`
		Labels                    map[string]string   `json:"labels,omitempty"`
		Trigger                   *deploymentTrigger  `json:"trigger,omitempty"`
		Summary                   string              `json:"summary,omitempty"`
		Versions                  []artifactVersion   `json:"versions,omitempty"`
		RunningCommitHash         string              `json:"running_commit_hash,omitempty"`
		RunningConfigFilename     string              `json:"running_config_filename,omitempty"`
		Status                    int                 `json:"status,omitempty"`
		StatusReason              string              `json:"status_reason,omitempty"`
		Stages                    []*stage            `json:"stages,omitempty"`
		Metadata                  map[string]string   `json:"metadata,omitempty"`
		MetadataV2                *deploymentMetadata `json:"metadata_v2,omitempty"`
		DeploymentChainID         string              `json:"deployment_chain_id,omitempty"`
		DeploymentChainBlockIndex int                 `json:"deployment_chain_block_index,omitempty"`
		CompletedAt               int64               `json:"completed_at,omitempty"`
		CreatedAt                 int64               `json:"created_at,omitempty"`
		UpdatedAt                 int64               `json:"updated_at,omitempty"`
	}
	deploymentMetadata struct {
		Shared struct {
			KeyValues map[string]string `json:"keyValues,omitempty"`
		} `json:"shared"`
	}
	deploymentTrigger struct {
		Commit          *commit `json:"commit,omitempty"`
		Commander       string  `json:"commander,omitempty"`
		Timestamp       int64   `json:"timestamp,omitempty"`
		SyncStrategy    int     `json:"sync_strategy,omitempty"`
		StrategySummary string  `json:"strategy_summary,omitempty"`
	}
	commit struct {
		Hash      string `json:"hash,omitempty"`
		Message   string `json:"message,omitempty"`
		Author    string `json:"author,omitempty"`
		Branch    string `json:"branch,omitempty"`
		URL       string `json:"url,omitempty"`
		CreatedAt int64  `json:"created_at,omitempty"`
	}
	artifactVersion struct {
		Kind    int    `json:"kind,omitempty"`
		Version string `json:"version,omitempty"`
		Name    string `json:"name,omitempty"`
		URL     string `json:"url,omitempty"`
	}
	stage struct {
		ID           string            `json:"id,omitempty"`
		Name         string            `json:"name,omitempty"`
		Desc         string            `json:"desc,omitempty"`
		Index        int               `json:"index,omitempty"`
		Requires     []string          `json:"requires,omitempty"`
		Visible      bool              `json:"visible,omitempty"`
		Status       int               `json:"status,omitempty"`
		StatusReason string            `json:"status_reason,omitempty"`
		Metadata     map[string]string `json:"metadata,omitempty"`
		Rollback     bool              `json:"rollback,omitempty"`
		CompletedAt  int64             `json:"completed_at,omitempty"`
		CreatedAt    int64             `json:"created_at,omitempty"`
		UpdatedAt    int64             `json:"updated_at,omitempty"`
	}
	gitPath struct {
		Repo           gitRepository `json:"repo"`
		Path           string        `json:"path,omitempty"`
		ConfigFilename string        `json:"config_filename,omitempty"`
	}
	gitRepository struct {
		ID     string `json:"id,omitempty"`
		Remote string `json:"remote,omitempty"`
		Branch string `json:"branch,omitempty"`
	}
	application struct {
		ID                               string               `json:"id,omitempty"`
		Name                             string               `json:"name,omitempty"`
		PipedID                          string               `json:"piped_id,omitempty"`
		ProjectID                        string               `json:"project_id,omitempty"`
		GitPath                          *gitPath             `json:"git_path,omitempty"`
		PlatformProvider                 string               `json:"platform_provider,omitempty"`
		Description                      string               `json:"description,omitempty"`
		Labels                           map[string]string    `json:"labels,omitempty"`
		MostRecentlySuccessfulDeployment *deploymentReference `json:"most_recently_successful_deployment,omitempty"`
		MostRecentlyTriggeredDeployment  *deploymentReference `json:"most_recently_triggered_deployment,omitempty"`
		SyncState                        *syncState           `json:"sync_state,omitempty"`
		Deploying                        bool                 `json:"deploying,omitempty"`
		DeletedAt                        int64                `json:"deleted_at,omitempty"`
		Deleted                          bool                 `json:"deleted,omitempty"`
		Disabled                         bool                 `json:"disabled,omitempty"`
		CreatedAt                        int64                `json:"created_at,omitempty"`
		UpdatedAt                        int64                `json:"updated_at,omitempty"`
	}
	syncState struct {
		Status           int    `json:"status,omitempty"`
		ShortReason      string `json:"short_reason,omitempty"`
		Reason           string `json:"reason,omitempty"`
		HeadDeploymentID string `json:"head_deployment_id,omitempty"`
		Timestamp        int64  `json:"timestamp,omitempty"`
	}
	deploymentReference struct {
		DeploymentID   string             `json:"deployment_id,omitempty"`
		Trigger        *deploymentTrigger `json:"trigger,omitempty"`
		Summary        string             `json:"summary,omitempty"`
		Version        string             `json:"version,omitempty"`
		ConfigFilename string             `json:"config_filename,omitempty"`
		Versions       []artifactVersion  `json:"versions,omitempty"`
		StartedAt      int64              `json:"started_at,omitempty"`
		CompletedAt    int64              `json:"completed_at,omitempty"`
	}
)

// deployment returns the deployment of n. If it was deleted, only the fields known from
// the event are set.
func (s *Sender) deployment(n notify.Notice) *deployment {
	d := n.Deployment
	if d == nil {
		return &deployment{
			ID: n.Event.DeploymentID, ApplicationID: n.Event.ApplicationID, ApplicationName: n.ApplicationName(),
			PipedID: s.PipedID, ProjectID: s.ProjectID,
		}
	}
	m := &deployment{
		ID: d.ID, ApplicationID: d.ApplicationID, ApplicationName: d.ApplicationName, PipedID: s.PipedID, ProjectID: s.ProjectID,
		GitPath: pathOf(d.Git), PlatformProvider: d.Provider, Labels: d.Labels, Trigger: triggerOf(d.Trigger),
		Summary: d.Summary, Versions: versionsOf(d.Versions), RunningCommitHash: d.RunningCommit, RunningConfigFilename: d.RunningConfigFile,
		Status: number(deploy.Statuses(), d.Status), StatusReason: d.StatusReason, Metadata: d.Metadata,
		DeploymentChainID: d.ChainID, DeploymentChainBlockIndex: d.ChainBlock,
		CompletedAt: seconds(d.CompletedAt), CreatedAt: seconds(d.CreatedAt), UpdatedAt: seconds(d.UpdatedAt),
	}
	if len(d.Metadata) > 0 {
		m.MetadataV2 = &deploymentMetadata{}
		m.MetadataV2.Shared.KeyValues = d.Metadata
	}
	for _, st := range d.Stages {
		m.Stages = append(m.Stages, stageOf(st))
	}
	return m
}

func (s *Sender) stage(n notify.Notice) *stage {
	if n.Stage == nil {
		return &stage{ID: n.Event.StageID, Status: number(deploy.StageStatuses(), deploy.StageStatus(n.Details.To)), StatusReason: n.Details.Reason}
	}
	return stageOf(*n.Stage)
}

func stageOf(s deploy.Stage) *stage {
	return &stage{
		ID: s.ID, Name: s.Name, Desc: s.Desc, Index: s.Index, Requires: s.Requires, Visible: s.Visible, Rollback: s.Rollback,
		Status: number(deploy.StageStatuses(), s.Status), StatusReason: s.StatusReason, Metadata: s.ShownMetadata(),
		CompletedAt: seconds(s.CompletedAt), CreatedAt: seconds(s.CreatedAt), UpdatedAt: seconds(s.UpdatedAt),
	}
}

// application returns the application of n. If it is not stored, only the fields known
// from the event are set.
func (s *Sender) application(n notify.Notice) *application {
	a := n.Application
	if a == nil {
		return &application{ID: n.Event.ApplicationID, Name: n.ApplicationName(), PipedID: s.PipedID, ProjectID: s.ProjectID}
	}
	sync := a.ShownSync()
	return &application{
		ID: a.ID, Name: a.Name, PipedID: s.PipedID, ProjectID: s.ProjectID, GitPath: pathOf(a.Git), PlatformProvider: a.Provider,
		Description: a.Description, Labels: a.Labels,
		MostRecentlySuccessfulDeployment: referenceOf(a.LastSuccessful), MostRecentlyTriggeredDeployment: referenceOf(a.LastTriggered),
		SyncState: &syncState{
			Status: number(deploy.SyncStatuses(), sync.Status), ShortReason: sync.ShortReason, Reason: sync.Reason,
			HeadDeploymentID: sync.HeadDeploymentID, Timestamp: seconds(sync.At),
		},
		Deploying: a.Deploying, DeletedAt: seconds(a.DeletedAt), Deleted: a.Deleted, Disabled: a.Disabled,
		CreatedAt: seconds(a.CreatedAt), UpdatedAt: seconds(a.UpdatedAt),
	}
}

func pathOf(p deploy.GitPath) *gitPath {
	return &gitPath{Repo: gitRepository{ID: p.RepoID, Remote: p.Remote, Branch: p.Branch}, Path: p.Dir, ConfigFilename: p.ConfigFile}
}

func triggerOf(t deploy.Trigger) *deploymentTrigger {
	c := t.Commit
	return &deploymentTrigger{
		Commit:    &commit{Hash: c.Hash, Message: c.Message, Author: c.Author, Branch: c.Branch, URL: c.URL, CreatedAt: seconds(c.At)},
		Commander: t.Commander, Timestamp: seconds(t.At), SyncStrategy: number(deploy.Strategies(), t.Strategy), StrategySummary: t.StrategySummary,
	}
}

func referenceOf(r *deploy.DeploymentRef) *deploymentReference {
	if r == nil {
		return nil
	}
	names := make([]string, len(r.Versions))
	for i, v := range r.Versions {
		names[i] = v.Version
	}
	return &deploymentReference{
		DeploymentID: r.DeploymentID, Trigger: triggerOf(r.Trigger), Summary: r.Summary, Version: strings.Join(names, ", "),
		ConfigFilename: r.ConfigFile, Versions: versionsOf(r.Versions), StartedAt: seconds(r.StartedAt), CompletedAt: seconds(r.CompletedAt),
	}
}

func versionsOf(list []deploy.ArtifactVersion) []artifactVersion {
	var out []artifactVersion
	for _, v := range list {
		out = append(out, artifactVersion{number([]string{"UNKNOWN", "CONTAINER_IMAGE"}, v.Kind), v.Version, v.Name, v.URL})
	}
	return out
}
