package webhook

import (
	"time"

	"github.com/c785c783/piped/piped/deploy"
	"github.com/c785c783/piped/piped/notify"
)

// message is the posted body. The names are those of PipeCD's Go struct.
type message struct {
	Type     int      `json:"Type"`
	Metadata metadata `json:"Metadata"`
}

// metadata has the fields of all PipeCD messages NotificationEvent...; each event sets
// those of its message. Rollout is an extension of this agent.
type metadata struct {
	Deployment  *deployment  `json:"deployment,omitempty"`
	Stage       *stage       `json:"stage,omitempty"`
	Application *application `json:"application,omitempty"`
	State       *syncState   `json:"state,omitempty"`

	Summary       string `json:"summary,omitempty"`
	Approver      string `json:"approver,omitempty"`
	Reason        string `json:"reason,omitempty"`
	Commander     string `json:"commander,omitempty"`
	CommitHash    string `json:"commit_hash,omitempty"`
	CommitMessage string `json:"commit_message,omitempty"`

	MentionedAccounts []string `json:"mentioned_accounts,omitempty"`
	MentionedGroups   []string `json:"mentioned_groups,omitempty"`

	// For events of the agent itself.
	ID        string `json:"id,omitempty"`
	Name      string `json:"name,omitempty"`
	Version   string `json:"version,omitempty"`
	ProjectID string `json:"project_id,omitempty"`

	Rollout *rollout `json:"rollout,omitempty"`
}

// message returns the body for n.
func (s *Sender) message(n notify.Notice) message {
	var m metadata
	m.MentionedAccounts, m.MentionedGroups = n.Mentioned()
	switch n.Event.Type.Group() {
	case deploy.GroupPiped:
		if p := n.Details.Piped; p != nil {
			m.ID, m.Name, m.Version, m.ProjectID = p.ID, p.Name, p.Version, p.ProjectID
		}
	case deploy.GroupStage:
		m.Deployment, m.Stage = s.deployment(n), s.stage(n)
	case deploy.GroupRollout:
		m.Rollout, m.Reason = rolloutOf(n.Details), n.Details.Reason
		if n.Event.ApplicationID != "" || n.ApplicationName() != "" {
			m.Application = s.application(n)
		}
		if n.Event.DeploymentID != "" {
			m.Deployment = s.deployment(n)
		}
	case deploy.GroupApplicationSync, deploy.GroupApplicationHealth:
		s.ofApplication(n, &m)
	default:
		s.ofDeployment(n, &m)
	}
	return message{n.Event.Type.Number(), m}
}

// ofDeployment sets the fields of notices about a deployment: the deployment and the
// additional values of its event. A failed trigger has no deployment; its notice has the
// application and the commit.
func (s *Sender) ofDeployment(n notify.Notice, m *metadata) {
	if n.Event.Type == deploy.EventTriggerFailed {
		m.Application, m.Reason = s.application(n), n.Details.Reason
		if c := n.Commit(); c != nil {
			m.CommitHash, m.CommitMessage = c.Hash, c.Message
		}
		return
	}
	m.Deployment = s.deployment(n)
	switch n.Event.Type {
	case deploy.EventPlanned:
		m.Summary = n.Details.Summary
	case deploy.EventApproved:
		m.Approver = n.Details.Approver
	case deploy.EventFailed:
		m.Reason = n.Details.Reason
	case deploy.EventCancelled:
		m.Commander = n.Details.Commander
	}
}

// ofApplication sets the fields of notices about an application: its state, the reason, and
// the deployment if there is one.
func (s *Sender) ofApplication(n notify.Notice, m *metadata) {
	m.Application = s.application(n)
	switch n.Event.Type {
	case deploy.EventSynced:
		m.State = &syncState{Status: number(deploy.SyncStatuses(), deploy.Synced), ShortReason: n.Details.Reason, Timestamp: seconds(n.Event.At)}
	case deploy.EventOutOfSync:
		m.State = &syncState{Status: number(deploy.SyncStatuses(), deploy.OutOfSync), ShortReason: n.Details.Reason, Timestamp: seconds(n.Event.At)}
	default:
		m.Reason = n.Details.Reason
	}
	if n.Event.DeploymentID != "" {
		m.Deployment = s.deployment(n)
	}
}

// seconds returns t in Unix seconds, 0 for the zero time.
func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// number returns the PipeCD enum number of value, which is its index in list.
func number[T comparable](list []T, value T) int {
	for i, v := range list {
		if v == value {
			return i
		}
	}
	return 0
}
