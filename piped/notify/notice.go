package notify

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/c785c783/piped/piped/deploy"
)

// Notice is an event as it is delivered to a receiver, with the objects that it concerns.
// Receivers must not change it.
type Notice struct {
	Event   deploy.Event
	Key     string // idempotency key: the same in each attempt, unique per notice
	Attempt int    // counts from 1

	Details deploy.EventPayload // the decoded payload of the event

	// Application is nil when the event concerns no application, or one that is not
	// stored.
	Application *deploy.Application
	// Deployment has the status that it had at the time of the event. It is nil when the
	// event concerns no deployment, or one that was deleted. Stage is one of its stages.
	Deployment *deploy.Deployment
	Stage      *deploy.Stage

	// Mentions are those of the application's configuration.
	Mentions []deploy.Mention
}

// ApplicationName returns the name of the application, or "" when the event concerns none.
func (n Notice) ApplicationName() string {
	switch {
	case n.Deployment != nil:
		return n.Deployment.ApplicationName
	case n.Application != nil:
		return n.Application.Name
	}
	return n.Details.Application
}

// IsPreview reports whether the event concerns the preview of a pull request.
func (n Notice) IsPreview() bool {
	switch {
	case n.Deployment != nil:
		return n.Deployment.Git.PullRequest != 0
	case n.Application != nil:
		return n.Application.IsPreview()
	}
	return false
}

// Labels returns the application's labels. For an event of a deployment they are the labels
// from the time when the deployment was created.
func (n Notice) Labels() map[string]string {
	switch {
	case n.Deployment != nil:
		return n.Deployment.Labels
	case n.Application != nil:
		return n.Application.Labels
	}
	return nil
}

// Commit returns the commit that the event concerns, or nil.
func (n Notice) Commit() *deploy.Commit {
	switch {
	case n.Details.Commit != nil:
		return n.Details.Commit
	case n.Deployment != nil:
		return &n.Deployment.Trigger.Commit
	}
	return nil
}

// ofNoApplication reports whether the event concerns no application.
func (n Notice) ofNoApplication() bool {
	return n.Event.ApplicationID == "" && n.ApplicationName() == ""
}

// Subject returns the name of the application, or the workload when there is none.
func (n Notice) Subject() string {
	if name := n.ApplicationName(); name != "" || n.Details.Workload == nil {
		return name
	}
	return n.Details.Workload.String()
}

// Order returns the default order key: the deployment, else the application, else the
// workload, else the agent. Notices with the same key are delivered in order.
func (n Notice) Order() string {
	switch {
	case n.Event.DeploymentID != "":
		return "deployment/" + n.Event.DeploymentID
	case n.Event.ApplicationID != "":
		return "application/" + n.Event.ApplicationID
	case n.Details.Workload != nil:
		return "workload/" + n.Details.Cluster + "/" + n.Details.Workload.Key()
	}
	return "piped"
}

// Mentioned returns the Slack accounts and groups that the application's configuration
// mentions for this event type or for all ("*"), without duplicates. As in PipeCD, events of
// stages and of the agent itself mention no users.
func (n Notice) Mentioned() (accounts, groups []string) {
	if g := n.Event.Type.Group(); g == deploy.GroupStage || g == deploy.GroupPiped {
		return nil, nil
	}
	for _, m := range n.Mentions {
		if m.Event != "*" && m.Event != string(n.Event.Type) {
			continue
		}
		accounts = append(append(accounts, m.Slack...), m.SlackUsers...)
		groups = append(groups, m.SlackGroups...)
	}
	for i, a := range accounts {
		accounts[i] = strings.TrimPrefix(a, "@")
	}
	for i, g := range groups {
		groups[i] = strings.TrimSuffix(strings.TrimPrefix(g, "<!subteam^"), ">")
	}
	return distinct(accounts), distinct(groups)
}

// distinct returns list without duplicates, in order of first occurrence.
func distinct(list []string) []string {
	var out []string
	for _, text := range list {
		if !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// subjectCache reads the applications and deployments of events, each at most once. A row that
// cannot be read, such as a damaged one, counts as missing, so that it does not block
// notifications.
type subjectCache struct {
	store        Store
	unreadable   func(id string, err error)
	applications map[string]*deploy.Application
	deployments  map[string]*deploy.Deployment
}

func (c *Courier) newSubjectCache() *subjectCache {
	return &subjectCache{store: c.Store, unreadable: c.logUnreadable, applications: map[string]*deploy.Application{}, deployments: map[string]*deploy.Deployment{}}
}

// notice returns the notice of e for the given attempt.
func (l *subjectCache) notice(ctx context.Context, e deploy.Event, attempt int) (Notice, error) {
	n := Notice{Event: e, Key: e.Key, Attempt: attempt, Details: e.Details()}
	var err error
	if n.Application, err = lookup(ctx, l, l.applications, e.ApplicationID, l.store.Application); err != nil {
		return n, err
	}
	d, err := lookup(ctx, l, l.deployments, e.DeploymentID, l.store.Deployment)
	if err != nil {
		return n, err
	}
	if d != nil {
		n.Deployment, n.Stage = atEvent(*d, e, n.Details)
	}
	about := d
	if about == nil && n.Application != nil && n.Application.LastTriggered != nil {
		about, err = lookup(ctx, l, l.deployments, n.Application.LastTriggered.DeploymentID, l.store.Deployment)
	}
	if about != nil {
		n.Mentions = mentionsOf(about)
	}
	return n, err
}

// logUnreadable logs, once per ID, that an object cannot be read.
func (c *Courier) logUnreadable(id string, err error) {
	if _, logged := c.unreadable.LoadOrStore(id, struct{}{}); !logged {
		c.Logger.Error("a stored object cannot be read; notifications about it omit its details", "subject", id, "error", err)
	}
}

// lookup returns the object with the given ID, from the cache if it was read before. It
// returns nil for an object that is missing or unreadable, and an error when the store
// is unavailable.
func lookup[T any](ctx context.Context, l *subjectCache, known map[string]*T, id string, read func(context.Context, string) (T, error)) (*T, error) {
	v, ok := known[id]
	if id == "" || ok {
		return v, nil
	}
	switch got, err := read(ctx, id); {
	case err == nil:
		v = &got
	case deploy.IsKind(err, deploy.Internal):
		l.unreadable(id, err)
	case !deploy.IsKind(err, deploy.NotFound):
		return nil, err
	}
	known[id] = v
	return v, nil
}

// atEvent returns copies of d and the event's stage, with the status that they had at e.
func atEvent(d deploy.Deployment, e deploy.Event, details deploy.EventPayload) (*deploy.Deployment, *deploy.Stage) {
	d = d.Clone()
	switch {
	case details.To == "":
	case e.StageID == "":
		if d.Status = deploy.Status(details.To); !d.Status.Completed() {
			d.CompletedAt = time.Time{}
		}
		d.StatusReason, d.UpdatedAt = details.Reason, e.At
	default:
		if s := d.Stage(e.StageID); s != nil {
			s.Status, s.StatusReason, s.UpdatedAt = deploy.StageStatus(details.To), details.Reason, e.At
		}
	}
	return &d, d.Stage(e.StageID)
}

// mentionsOf returns the mentions of the configuration that d was created from.
func mentionsOf(d *deploy.Deployment) []deploy.Mention {
	var m struct {
		Mentions []deploy.Mention `json:"mentions"`
	}
	if json.Unmarshal([]byte(d.Metadata[deploy.MetaNotification]), &m) != nil {
		return nil // none, or a format of another version
	}
	return m.Mentions
}
